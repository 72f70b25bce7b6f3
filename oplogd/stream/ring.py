"""The latest entries in memory, encoded once and shared by all consumers. No I/O.

The ring is one list of encoded entries. A ``View`` holds those that pass one filter; consumers with equal filters share it,
and an index by type and parent makes an operation cost the views it passes, not the number of consumers.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import Protocol

from oplogd.event_id import MAX_MS, Mark
from oplogd.operation import Data, decode_data
from oplogd.store import Entry
from oplogd.stream.filters import Filter
from oplogd.stream.frames import Framer

_CACHED_SLICES = 8
"""Joined slices that a view keeps until the next append, at most."""


class Waiter(Protocol):
    def wake(self) -> None: ...


class Window:
    """A run of encoded entries: their marks, bytes and, for cutting by size, where each ends."""

    __slots__ = ("ends", "frames", "marks")

    def __init__(self) -> None:
        self.marks: list[Mark] = []
        self.frames: list[bytes] = []
        self.ends: list[int] = []

    def append(self, mark: Mark, frame: bytes) -> None:
        self.ends.append((self.ends[-1] if self.ends else 0) + len(frame))
        self.marks.append(mark)
        self.frames.append(frame)

    def drop(self, count: int) -> None:
        del self.marks[:count], self.frames[:count], self.ends[:count]

    @property
    def size(self) -> int:
        """Bytes held."""
        return self.ends[-1] - self.ends[0] + len(self.frames[0]) if self.ends else 0

    def after(self, offset: int) -> int:
        """The index of the first entry past ``offset``."""
        return bisect_right(self.marks, (offset, MAX_MS))

    def missing(self, offset: int) -> tuple[int, int]:
        """How many entries are past ``offset``, and the time of the first in ms, 0 if there is none."""
        first = self.after(offset)
        count = len(self.marks) - first
        return count, self.marks[first].ms if count else 0

    def cut(self, offset: int, max_bytes: int) -> tuple[int, int]:
        """The slice of entries past ``offset`` of at most ``max_bytes``, but at least one if there is one."""
        first = self.after(offset)
        if first == len(self.marks):
            return first, first
        start = self.ends[first] - len(self.frames[first])
        return first, max(first + 1, bisect_right(self.ends, start + max_bytes, first))


class View:
    """What passes one filter. Its window holds all of that past offset ``base``; ``users`` counts its consumers."""

    __slots__ = ("_cache", "base", "filter", "ring", "start", "users", "waiting", "window")

    def __init__(self, ring: "Ring", filter_: Filter) -> None:
        self.ring = ring
        self.filter = filter_
        self.start = self.base = ring.head.offset
        self.window = Window()
        self.users = 0
        self.waiting: dict[Waiter, None] = {}
        self._cache: dict[tuple[int, int], tuple[bytes, int, Mark]] = {}

    def append(self, mark: Mark, frame: bytes) -> None:
        self.window.append(mark, frame)
        if self._cache:  # a slice that ends earlier than it might lets those that lag do so more
            self._cache.clear()

    def covers(self, after: int) -> bool:
        """Whether ``take`` can tell what follows ``after``. A view of rare operations reaches further back than the ring."""
        return after >= self.base or after >= self.ring.base

    def take(self, after: int, max_bytes: int) -> tuple[bytes, int, Mark]:
        """The bytes of the next entries past offset ``after``, how many they are, and the place then reached.

        Only for an ``after`` that is covered.
        """
        if after < self.start:
            return self._scan(after, max_bytes)
        if cached := self._cache.get((after, max_bytes)):
            return cached
        window = self.window
        first, end = window.cut(after, max_bytes)
        if first == end:
            return b"", 0, self.ring.head
        # The place reached is the head when nothing that passes is left, so that a rare type does not lag behind.
        reached = self.ring.head if end == len(window.frames) else window.marks[end - 1]
        taken = b"".join(window.frames[first:end]), end - first, reached
        if self.users > 1:  # those that keep up ask from the same place, those that catch up each from another
            if len(self._cache) == _CACHED_SLICES:
                del self._cache[next(iter(self._cache))]
            self._cache[after, max_bytes] = taken
        return taken

    def missing(self, after: int) -> tuple[int, int]:
        """How many entries past offset ``after`` there are to ``take``, and the time in ms of the first, 0 without any.

        Only for an ``after`` that is covered. Of those from before the view was made all are counted.
        """
        count, ms = self.window.missing(after)
        if after >= self.start:
            return count, ms
        unfiltered, first_ms = self.ring.window.missing(after)
        later, _ = self.ring.window.missing(self.start)
        return unfiltered - later + count, first_ms

    def _scan(self, after: int, max_bytes: int) -> tuple[bytes, int, Mark]:
        """From before the view was made on: filter the ring itself, a bounded piece at a time."""
        ring = self.ring
        first, end = ring.window.cut(after, max_bytes)
        frames = [ring.window.frames[i] for i in range(first, end) if self.filter.matches(ring.data[i])]
        return b"".join(frames), len(frames), ring.window.marks[end - 1]

    def restart(self, head: Mark) -> None:
        self.window = Window()
        self.start = self.base = head.offset
        self._cache.clear()
        self.wake()

    def drop_until(self, offset: int) -> None:
        count = self.window.after(offset)
        if count:
            self.base = max(self.base, self.window.marks[count - 1].offset)
            self.window.drop(count)

    def wake(self) -> None:
        waiting, self.waiting = self.waiting, {}
        self.ring.wake(waiting)


class Ring:
    """The newest entries, at most ``max_entries`` and ``max_bytes`` (encoded) of them.

    Holds every entry with an offset past ``base`` and up to ``head``. ``epoch`` changes when the log did not go on where
    the ring ended: consumers then judge their position anew. ``wake`` is given those for whom there is something new.
    """

    def __init__(
        self, framer: Framer, max_entries: int, max_bytes: int, wake: Callable[[Iterable[Waiter]], None]
    ) -> None:
        self._framer = framer
        self.max_entries = max_entries
        self.max_bytes = max_bytes
        self.window = Window()
        self.data: list[Data] = []
        self.wake = wake
        self.head = Mark(0, 0)
        self.epoch = 0
        self._views: dict[Filter, View] = {}
        self._unfiltered: list[View] = []
        self._by_type: dict[str, list[View]] = {}
        self._by_parent: dict[str, list[View]] = {}

    @property
    def base(self) -> int:
        """Entries past this offset are here."""
        return self.head.offset - len(self.window.marks)

    def restart(self, head: Mark) -> None:
        """Begin anew after ``head``, which does not continue what the ring held."""
        self.window = Window()
        self.data = []
        self.head = head
        self.epoch += 1
        for view in self._views.values():
            view.restart(head)

    def append(self, entries: Iterable[Entry]) -> None:
        """Add entries that follow the head without a gap, then wake the consumers whom one of them concerns."""
        touched: dict[int, View] = {}
        for entry in entries:
            data = decode_data(entry.data)
            mark = Mark(entry.offset, entry.ms)
            frame = self._framer.entry(entry, data)
            self.window.append(mark, frame)
            self.data.append(data)
            self.head = mark
            for view in self._concerned(data):
                view.append(mark, frame)
                touched[id(view)] = view
        self._trim()
        for view in touched.values():
            view.wake()

    def view(self, filter_: Filter) -> View:
        """The shared view for a filter; give it back with ``release``."""
        view = self._views.get(filter_)
        if view is None:
            view = self._views[filter_] = View(self, filter_)
            for listed in self._places(filter_):
                listed(view)
        view.users += 1
        return view

    def release(self, view: View) -> None:
        view.users -= 1
        if view.users == 0:
            del self._views[view.filter]
            self._unlist(view)

    def _places(self, filter_: Filter) -> list[Callable[[View], None]]:
        if filter_.parents:
            return [self._by_parent.setdefault(parent, []).append for parent in filter_.parents]
        if filter_.types:
            return [self._by_type.setdefault(type_, []).append for type_ in filter_.types]
        return [self._unfiltered.append]

    def _unlist(self, view: View) -> None:
        for index, keys in ((self._by_parent, view.filter.parents), (self._by_type, view.filter.types)):
            for key in keys:
                if view in index.get(key, ()):
                    index[key].remove(view)
                    if not index[key]:
                        del index[key]
        if view in self._unfiltered:
            self._unfiltered.remove(view)

    def _concerned(self, data: Data) -> list[View]:
        """The views that an operation passes, each once."""
        if not self._by_parent:
            typed = self._by_type.get(data.type)
            return self._unfiltered + typed if typed else self._unfiltered
        views = {id(v): v for v in (*self._unfiltered, *self._by_type.get(data.type, ()))}
        for parent in data.parents:
            for view in self._by_parent.get(parent, ()):
                if view.filter.matches(data):
                    views[id(view)] = view
        return list(views.values())

    def _trim(self) -> None:
        """Drop the oldest entries once an eighth too many are held, so that the lists are not moved at every append."""
        window = self.window
        held = len(window.marks)
        if held <= self.max_entries * 9 // 8 and window.size <= self.max_bytes * 9 // 8:
            return
        count = max(0, held - self.max_entries)
        if window.size > self.max_bytes:
            count = max(count, bisect_left(window.ends, window.ends[-1] - self.max_bytes) + 1)
        count = min(count, held - 1)
        window.drop(count)
        del self.data[:count]
        for view in self._views.values():
            view.drop_until(self.base)

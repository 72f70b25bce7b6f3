"""The latest entries in memory, encoded once and shared by all consumers. No I/O.

The ring is one list of encoded entries. A ``View`` reads those that pass one filter, when a consumer asks; consumers with equal
filters share it. Postings tell a view which entries those are, so that an operation costs its own listed values, not the
number of views.
"""

import heapq
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import NamedTuple, Protocol

from oplogd.event_id import Mark
from oplogd.store import Entry, decode_stored
from oplogd.stream.filters import Filter
from oplogd.stream.frames import Framer, data_of
from oplogd.stream.postings import Index, Posting, is_posted_whole
from oplogd.stream.window import Window

_CACHED_BYTES = 1 << 20
"""Joined slices that the ring keeps for consumers with equal filters until the next append, at most."""

_SLICE_BYTES = 256
"""What a kept slice costs beside its bytes."""

_CHEAP = 8
"""Looking at this many entries costs as much as finding the place in one posting."""

_PIECE = 8_192
"""Entries looked at in one ``take``, at most: a millisecond."""

_MAX_COUNTED = 2_000
"""More entries than this are counted by their postings, where one with two listed parents counts twice."""

_EVERYTHING = Filter()


class Waiter(Protocol):
    def wake(self) -> None: ...


class Taken(NamedTuple):
    """The bytes of entries, how many they are, and the place reached by them."""

    chunk: bytes
    entries: int
    reached: Mark


class View:
    """What passes one filter; ``users`` counts its consumers. ``postings`` is empty if everything passes."""

    __slots__ = ("_whole", "filter", "postings", "ring", "start", "users", "waiting")

    def __init__(self, ring: "Ring", filter_: Filter, index: Index) -> None:
        self.ring = ring
        self.filter = filter_
        self.users = 0
        self.waiting: dict[Waiter, None] = {}
        self.postings = index.list(self, ring.head.offset)
        self._whole = is_posted_whole(filter_)
        self.restart()

    def restart(self) -> None:
        self.start = max((posting.since for posting in self.postings), default=0)
        """Past this offset the postings tell what passes; up to it the entries themselves do."""

    @property
    def last(self) -> int:
        """No entry past this offset passes."""
        return max((posting.last for posting in self.postings), default=self.ring.head.offset)

    def covers(self, after: int) -> bool:
        """Whether ``take`` can tell what follows ``after``. A view of rare operations reaches further back than the ring."""
        if after >= self.ring.base:
            return True
        return bool(self.postings) and all(after >= posting.dropped for posting in self.postings)

    def take(self, after: int, max_bytes: int) -> Taken:
        """The next entries past offset ``after``, at most ``max_bytes`` or one entry.

        None of them, but a place further on, where a long piece of the ring held nothing that passes. Only for an ``after``
        that is covered.
        """
        if self.users == 1:
            return self._take(after, max_bytes)
        slices = self.ring.slices
        taken = slices.get(self, after, max_bytes)
        if taken is None:
            taken = self._take(after, max_bytes)
            slices.keep(self, after, max_bytes, taken)
        return taken

    def missing(self, after: int) -> tuple[int, int]:
        """How many entries past offset ``after`` there are to ``take``, and the time in ms of the first, 0 without any.

        Only for an ``after`` that is covered. All entries from before the filter's values were listed are counted.
        """
        window = self.ring.window
        if not self.postings or after >= self.ring.head.offset:
            return window.missing(after)
        before, ms = window.missing(after) if after < self.start else (0, 0)
        before -= window.missing(self.start)[0] if before else 0
        runs = [(posting, posting.after(max(after, self.start))) for posting in self.postings]
        runs = [(posting, first) for posting, first in runs if first < len(posting.offsets)]
        count = sum(len(posting.offsets) - first for posting, first in runs)
        if len(runs) > 1 and self.filter.parents:
            if count <= _MAX_COUNTED:
                count = len({offset for posting, first in runs for offset in posting.run(first)})
            count = min(count, window.end - window.after(after))
        if not before and runs:
            ms = window.times[window.index(min(posting.offsets[first] for posting, first in runs))]
        return before + count, ms if before + count else 0

    def give(self, due: list[Waiter]) -> None:
        """Move the waiting consumers to ``due``."""
        due += self.waiting
        self.waiting.clear()

    def _take(self, after: int, max_bytes: int) -> Taken:
        ring, window = self.ring, self.ring.window
        first, end = window.after(after), window.end
        if first == end:
            return Taken(b"", 0, ring.head)
        if not self.postings:
            until = window.cut(first, max_bytes)
            return Taken(b"".join(window.frames[first:until]), until - first, self._mark(until))
        if after < self.start:
            until = min(window.after(self.start), window.cut(first, max_bytes))
            return self._join(range(first, until), until, max_bytes, whole=False)
        if end - first <= _CHEAP * len(self.postings):
            until = min(end, first + _PIECE)
            carried, postings = window.carried, self.postings
            near = [i for i in range(first, until) if not postings.isdisjoint(carried[i])]
            return self._join(near, until, max_bytes, whole=self._whole)
        return self._join(self._merged(after), end, max_bytes, whole=self._whole)

    def _merged(self, after: int) -> Iterable[int]:
        """The indices of the posted entries past ``after``, ascending, each once."""
        runs = [p.run(first) for p in self.postings if (first := p.after(after)) < len(p.offsets)]
        index = self.ring.window.index
        if len(runs) < 2:
            return map(index, runs[0] if runs else ())
        return (index(offset) for offset, _ in groupby(heapq.merge(*runs)))

    def _join(self, indices: Iterable[int], until: int, max_bytes: int, *, whole: bool) -> Taken:
        """Those of the entries that pass, ``whole``: all do. ``until``: further on there may be more."""
        window = self.ring.window
        looked_at: list[int] = []
        size = 0
        for i in indices:
            size += len(window.frames[i])
            if size > max_bytes and looked_at:
                until = looked_at[-1] + 1
                break
            looked_at.append(i)
        frames = [window.frames[i] for i in looked_at]
        if not whole:
            frames = [frame for frame in frames if self.filter.matches(data_of(frame))]
        return Taken(b"".join(frames), len(frames), self._mark(until))

    def _mark(self, until: int) -> Mark:
        """The place reached: the head if nothing is left to look at, so that a rare type does not lag behind."""
        return self.ring.head if until == self.ring.window.end else self.ring.window.mark(until - 1)


class Slices:
    """Joined bytes that several consumers are about to ask for: the ones that keep up ask from the same place."""

    def __init__(self) -> None:
        self._taken: dict[tuple[View, int, int], Taken] = {}
        self._bytes = 0

    def get(self, view: View, after: int, max_bytes: int) -> Taken | None:
        return self._taken.get((view, after, max_bytes))

    def keep(self, view: View, after: int, max_bytes: int, taken: Taken) -> None:
        self._taken[view, after, max_bytes] = taken
        self._bytes += len(taken.chunk) + _SLICE_BYTES
        while self._bytes > _CACHED_BYTES:
            oldest = next(iter(self._taken))
            self._bytes -= len(self._taken.pop(oldest).chunk) + _SLICE_BYTES

    def clear(self) -> None:
        if self._taken:
            self._taken.clear()
            self._bytes = 0

    def __len__(self) -> int:
        return len(self._taken)


class Ring:
    """The newest entries, at most ``max_entries`` of them and ``max_bytes`` of memory.

    Holds every entry with an offset past ``base`` and up to ``head``. ``epoch`` changes when the log did not go on where
    the ring ended: consumers then judge their position anew. ``wake`` is given the consumers for whom there is something new.
    """

    def __init__(
        self,
        framer: Framer,
        max_entries: int,
        max_bytes: int,
        wake: Callable[[Iterable[Waiter]], None],
    ) -> None:
        self._framer = framer
        self.max_entries = max_entries
        self.max_bytes = max_bytes
        self.window = Window(0)
        self.slices = Slices()
        self.wake = wake
        self.head = Mark(0, 0)
        self.epoch = 0
        self._views: dict[Filter, View] = {}
        self._index = Index()

    @property
    def base(self) -> int:
        """Entries past this offset are here."""
        return self.window.base

    def restart(self, head: Mark) -> None:
        """Begin anew after ``head``, which does not continue what the ring held."""
        self.window = Window(head.offset)
        self.slices.clear()
        self.head = head
        self.epoch += 1
        self._index.restart(head)
        due: list[Waiter] = []
        for view in self._views.values():
            view.restart()
            view.give(due)
        self.wake(due)

    def append(self, entries: Iterable[Entry]) -> None:
        """Add entries that follow the head without a gap, then wake the consumers whom one of them concerns.

        Holds the event loop for the time it takes: the caller appends a long batch in pieces.
        """
        before = self.head
        touched: dict[Posting, None] = {}
        try:
            for entry in entries:
                data = decode_stored(entry.data)
                carried = self._index.carried(data)
                self.window.append(entry.ms, self._framer.entry(entry, data), carried)
                self.head = Mark(entry.offset, entry.ms)
                for posting in carried:
                    posting.add(entry.offset)
                    touched[posting] = None
                self._trim()
        finally:
            if self.head != before:
                self.slices.clear()
                self._wake(touched)

    def view(self, filter_: Filter) -> View:
        """The shared view for a filter; give it back with ``release``."""
        view = self._views.get(filter_)
        if view is None:
            view = self._views[filter_] = View(self, filter_, self._index)
        view.users += 1
        return view

    def release(self, view: View) -> None:
        view.users -= 1
        if view.users == 0:
            del self._views[view.filter]
            self._index.unlist(view)

    def _wake(self, touched: Iterable[Posting]) -> None:
        due: list[Waiter] = []
        if everything := self._views.get(_EVERYTHING):
            everything.give(due)
        for posting in touched:
            for view in posting.views:
                if view.waiting:
                    view.give(due)
        if due:
            self.wake(due)

    def _trim(self) -> None:
        """Drop the oldest entries over the bounds, but never the newest one."""
        window = self.window
        while len(window) > 1 and (len(window) > self.max_entries or window.size > self.max_bytes):
            offset = window.base + 1
            for posting in window.drop():
                posting.drop(offset)

"""The entries of the ring that pass one filter. No I/O."""

import heapq
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple, Protocol

from oplogd.model.event_id import Mark
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.frames import data_of, event_of
from oplogd.stream.ring.index import Index
from oplogd.stream.ring.keys import is_posted_whole
from oplogd.stream.ring.postings import Listing, Waiter
from oplogd.stream.ring.window import Window

# Most bytes of joined entries cached until the next append.
_CACHED_BYTES = 1 << 20

# Memory of a slice besides its bytes.
_SLICE_BYTES = 256

# Looking at this many entries costs as much as one search in a posting.
CHEAP = 8

# Most entries looked at in one ``take``, about a millisecond of work.
PIECE = 8_192

# Above this number, an entry with two listed parents may be counted twice.
MAX_COUNTED = 2_000


class Taken(NamedTuple):
    """The bytes of some entries, their number, and the mark reached."""

    chunk: bytes
    entries: int
    reached: Mark


class Viewed(Protocol):
    """A ring, as its views read it."""

    head: Mark
    window: Window
    slices: "Slices"

    @property
    def base(self) -> int:
        """The offset behind which the ring holds every entry."""


class View(Listing):
    """The entries of the ring that pass one filter.

    ``users``: number of its consumers. ``postings``: empty if everything passes.
    """

    __slots__ = ("_whole", "ring", "start", "users")

    def __init__(self, ring: Viewed, filter_: Filter, index: Index) -> None:
        self.ring = ring
        self.filter = filter_
        self.users = 0
        self.waiting: dict[Waiter, None] = {}
        self.postings = index.list(self, ring.head.offset)
        self._whole = is_posted_whole(filter_)
        self.restart()

    def restart(self) -> None:
        """Set ``start``: the postings find the entries past it. Each earlier one is looked at."""
        self.start = max((posting.since for posting in self.postings), default=0)

    @property
    def last(self) -> int:
        """The offset behind which no entry passes."""
        return max((posting.last for posting in self.postings), default=self.ring.head.offset)

    def covers(self, after: int) -> bool:
        """Return whether ``take`` knows every entry past ``after``, maybe from before the ring."""
        if after >= self.ring.base:
            return True
        return bool(self.postings) and all(after >= posting.dropped for posting in self.postings)

    def take(self, after: int, max_bytes: int) -> Taken:
        """Return the next entries past offset ``after``: at most ``max_bytes``, or one entry.

        ``covers(after)`` must be true. If nothing passes in a long piece of the ring, the result
        has no bytes and a later mark.
        """
        if self.users == 1:
            return self._take(after, max_bytes)
        slices = self.ring.slices
        taken = slices.get(self, after, max_bytes)
        if taken is None:
            taken = self._take(after, max_bytes)
            slices.keep(self, after, max_bytes, taken)
        return taken

    def held_by(self, after: int) -> int | None:
        """Return the pointer whose decision must come before ``take(after)``, or None."""
        return None

    def expansion_after(self, after: int) -> int | None:
        """Return the number of records to read from the store instead of ``take(after)``, or None.

        ``covers(after)`` must be true.
        """
        return None

    def remaining(self, after: int) -> tuple[int, int]:
        """Return the number of entries past offset ``after``, and the time of the first in ms or 0.

        ``covers(after)`` must be true. Entries up to ``start`` all count, whether they pass or not.
        """
        window = self.ring.window
        if not self.postings or after >= self.ring.head.offset:
            return window.remaining(after)
        unposted, ms = window.remaining(after) if after < self.start else (0, 0)
        unposted -= window.remaining(self.start)[0] if unposted else 0
        runs = [(posting, posting.after(max(after, self.start))) for posting in self.postings]
        runs = [(posting, first) for posting, first in runs if first < len(posting.offsets)]
        count = sum(len(posting.offsets) - first for posting, first in runs)
        if len(runs) > 1 and (self.filter.parents or self.filter.within):
            if count <= MAX_COUNTED:
                count = len({offset for posting, first in runs for offset in posting.run(first)})
            count = min(count, window.end - window.after(after))
        if not unposted and runs:
            ms = window.times[window.index(min(posting.offsets[first] for posting, first in runs))]
        return unposted + count, ms if unposted + count else 0

    def _take(self, after: int, max_bytes: int) -> Taken:
        ring, window = self.ring, self.ring.window
        first, end = window.after(after), window.end
        if first == end:
            return Taken(b"", 0, ring.head)
        if not self.postings:
            until = window.cut(first, max_bytes)
            frames = window.frames[first:until]
            count = sum(map(bool, frames)) if window.voids else until - first
            return Taken(b"".join(frames), count, self._mark(until))
        if after < self.start:
            until = min(window.after(self.start), window.cut(first, max_bytes))
            return self._join(range(first, until), until, max_bytes, whole=False)
        if end - first <= CHEAP * len(self.postings):
            until = min(end, first + PIECE)
            listed, postings = self.postings, window.postings
            posted = [i for i in range(first, until) if not listed.isdisjoint(postings[i])]
            return self._join(posted, until, max_bytes, whole=self._whole)
        runs = [p.run(first) for p in self.postings if (first := p.after(after)) < len(p.offsets)]
        offsets = (
            runs[0] if len(runs) == 1 else (offset for offset, _ in groupby(heapq.merge(*runs)))
        )
        return self._join(map(window.index, offsets), end, max_bytes, whole=self._whole)

    def _join(self, indices: Iterable[int], until: int, max_bytes: int, *, whole: bool) -> Taken:
        """Join the passing entries up to index ``until``; with ``whole`` all of them pass."""
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
        if window.voids:
            frames = [frame for frame in frames if frame]
        if not whole:
            matches = self.filter.matches
            frames = [frame for frame in frames if matches(event_of(frame), data_of(frame))]
        return Taken(b"".join(frames), len(frames), self._mark(until))

    def _mark(self, until: int) -> Mark:
        """Return the mark of the entry before index ``until``; at the end of the ring, its head."""
        return self.ring.head if until == self.ring.window.end else self.ring.window.mark(until - 1)


class Slices:
    """Caches joined bytes, ``size`` of them: consumers that keep up ask for the same entries."""

    def __init__(self) -> None:
        self._taken: dict[tuple[View, int, int], Taken] = {}
        self.size = 0

    def get(self, view: View, after: int, max_bytes: int) -> Taken | None:
        return self._taken.get((view, after, max_bytes))

    def keep(self, view: View, after: int, max_bytes: int, taken: Taken) -> None:
        self._taken[view, after, max_bytes] = taken
        self.size += len(taken.chunk) + _SLICE_BYTES
        while self.size > _CACHED_BYTES:
            oldest = next(iter(self._taken))
            self.size -= len(self._taken.pop(oldest).chunk) + _SLICE_BYTES

    def clear(self) -> None:
        if self._taken:
            self._taken.clear()
            self.size = 0

    def __len__(self) -> int:
        return len(self._taken)

    def __iter__(self) -> Iterator[Taken]:
        return iter(self._taken.values())

"""Postings: the entries of the ring with a value listed by some filter. No I/O.

A posting belongs to one listed value: a type, a parent, or a pair of both. It holds the ascending
offsets of its entries from the moment the value was first listed. So an operation costs one look-up
for its type and one per listed parent, for any number of consumers.
"""

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import Protocol

from oplogd.model.event_id import Mark
from oplogd.model.operation import Data
from oplogd.stream.ring.filters import Filter

# Most postings retained without a view, and bytes of their values. A returning consumer reads them,
# not the whole ring.
MAX_IDLE = 16_384
MAX_IDLE_BYTES = 8 << 20

# With more pairs of a type and a parent, a filter uses the postings of its parents, and its view
# checks types.
_MAX_PAIRS = 1_024

_COMPACT = 64

# Stands for any type or parent. No operation has an empty one.
_ANY = ""

# A type and a parent; one of them may be ``_ANY``.
Key = tuple[str, str]


class Waiter(Protocol):
    """A consumer waiting for entries."""

    def wake(self) -> None:
        """Read them now."""


class Listing:
    """A view, as the postings of its filter know it. ``waiting``: consumers to wake."""

    __slots__ = ("filter", "postings", "waiting")

    filter: Filter
    postings: "frozenset[Posting]"
    waiting: dict[Waiter, None]

    def move_waiting(self, due: list[Waiter]) -> None:
        """Move the waiting consumers to ``due``."""
        due += self.waiting
        self.waiting.clear()


class Posting:
    """The offsets of the entries past ``since`` with one value.

    ``dropped``: offsets up to this one may be missing. ``last``: the newest offset, ``since`` if
    there is none. ``views``: the views listing the value.
    """

    __slots__ = ("alone", "dropped", "first", "key", "last", "offsets", "since", "views")

    def __init__(self, key: Key, since: int) -> None:
        self.key = key
        self.views: dict[Listing, None] = {}
        self.alone: tuple[Posting, ...] = (self,)
        self.restart(since)

    def restart(self, since: int) -> None:
        self.since = self.dropped = self.last = since
        self.first = 0
        self.offsets = array("Q")

    def add(self, offset: int) -> None:
        self.offsets.append(offset)
        self.last = offset

    def drop(self, offset: int) -> None:
        """Remove ``offset`` if it is the oldest one."""
        if self.first == len(self.offsets) or self.offsets[self.first] != offset:
            return
        self.first += 1
        self.dropped = offset
        if self.first >= _COMPACT and self.first * 2 > len(self.offsets):
            del self.offsets[: self.first]
            self.first = 0

    def after(self, offset: int) -> int:
        """Return the index of the first offset past ``offset``."""
        return bisect_right(self.offsets, offset, self.first)

    def run(self, index: int) -> Iterator[int]:
        """Return the offsets from ``index`` on."""
        offsets = self.offsets
        return (offsets[i] for i in range(index, len(offsets)))


class Index:
    """All postings of a ring by their values.

    ``idle``: postings without a view, oldest first. ``idle_bytes``: memory of their values.
    """

    def __init__(self) -> None:
        self._by_type: dict[str, Posting] = {}
        self._by_parent: dict[str, dict[str, Posting]] = {}
        self.idle: dict[Posting, None] = {}
        self.idle_bytes = 0

    def postings_of(self, data: Data) -> tuple[Posting, ...]:
        """Return the postings of an operation's values, each once."""
        typed = self._by_type.get(data.type)
        parents = self._by_parent.keys() & data.parents if self._by_parent and data.parents else ()
        if not parents:
            return typed.alone if typed else ()
        found = [typed] if typed else []
        for parent in parents:
            of_parent = self._by_parent[parent]
            found += [posting for type_ in (_ANY, data.type) if (posting := of_parent.get(type_))]
        return tuple(found)

    def list(self, view: Listing, since: int) -> frozenset[Posting]:
        """Return the postings of the view's filter, and add the view to them.

        Missing ones are created, for entries past ``since``.
        """
        postings = []
        for key in keys_of(view.filter):
            type_, parent = key
            level = self._by_parent.setdefault(parent, {}) if parent else self._by_type
            posting = level.get(type_)
            if posting is None:
                posting = level[type_] = Posting(key, since)
            elif not posting.views:
                self._remove_idle(posting)
            posting.views[view] = None
            postings.append(posting)
        return frozenset(postings)

    def unlist(self, view: Listing) -> None:
        """Undo ``list``. Postings without a view are retained up to MAX_IDLE and MAX_IDLE_BYTES."""
        for posting in view.postings:
            del posting.views[view]
            if not posting.views:
                self.idle[posting] = None
                self.idle_bytes += _bytes_of(posting.key)
        while len(self.idle) > MAX_IDLE or self.idle_bytes > MAX_IDLE_BYTES:
            self._forget(next(iter(self.idle)))

    def restart(self, head: Mark) -> None:
        """Empty the postings: the ring restarts behind ``head``."""
        for idle in list(self.idle):
            self._forget(idle)
        for posting in self:
            posting.restart(head.offset)

    def __iter__(self) -> Iterator[Posting]:
        yield from self._by_type.values()
        for of_parent in self._by_parent.values():
            yield from of_parent.values()

    def _remove_idle(self, posting: Posting) -> None:
        del self.idle[posting]
        self.idle_bytes -= _bytes_of(posting.key)

    def _forget(self, posting: Posting) -> None:
        type_, parent = posting.key
        self._remove_idle(posting)
        posting.restart(posting.last)
        posting.alone = ()  # else a cycle is left to the garbage collector
        if not parent:
            del self._by_type[type_]
            return
        of_parent = self._by_parent[parent]
        del of_parent[type_]
        if not of_parent:
            del self._by_parent[parent]


def _bytes_of(key: Key) -> int:
    return sum(map(sys.getsizeof, key))


def is_posted_whole(filter_: Filter) -> bool:
    """Return whether every entry in the filter's postings passes the filter."""
    return not filter_.parents or len(filter_.types) * len(filter_.parents) <= _MAX_PAIRS


def keys_of(filter_: Filter) -> list[Key]:
    """Return the keys of the filter's postings."""
    types, parents = filter_.types, filter_.parents
    if not parents:
        return [(type_, _ANY) for type_ in types]
    if not types or not is_posted_whole(filter_):
        return [(_ANY, parent) for parent in parents]
    return [(type_, parent) for type_ in types for parent in parents]

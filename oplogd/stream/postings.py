"""Which entries of the ring carry a value that some filter lists. No I/O.

A posting belongs to one listed value: a type, a parent, or a pair of both. It holds the ascending offsets of the entries that
carry the value, from the moment the value was first listed. So an operation costs one look-up for its type and for each of
its listed parents, however many consumers there are.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

from oplogd.event_id import Mark
from oplogd.operation import Data
from oplogd.stream.filters import Filter

if TYPE_CHECKING:
    from oplogd.stream.ring import View

MAX_IDLE = 16_384
"""Postings kept though no consumer lists them any more: a consumer that comes back reads them instead of the whole ring."""

_MAX_PAIRS = 1_024
"""A filter with more pairs of a type and a parent is posted by its parents; its reader checks the type."""

_COMPACT = 64
_ANY = ""
"""No operation has an empty type or parent."""

Key = tuple[str, str]
"""A type, a parent; one of them may be ``_ANY``."""


class Posting:
    """The offsets of the entries past ``since`` that carry one value.

    ``dropped``: up to here offsets may have left the ring; ``last``: the newest offset posted, ``since`` before the first.
    ``views``: the views that list the value.
    """

    __slots__ = ("alone", "dropped", "first", "key", "last", "offsets", "since", "views")

    def __init__(self, key: Key, since: int) -> None:
        self.key = key
        self.views: dict[View, None] = {}
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
        """Forget ``offset`` if it is the oldest one held."""
        if self.first == len(self.offsets) or self.offsets[self.first] != offset:
            return
        self.first += 1
        self.dropped = offset
        if self.first >= _COMPACT and self.first * 2 > len(self.offsets):
            del self.offsets[: self.first]
            self.first = 0

    def after(self, offset: int) -> int:
        """The index of the first offset past ``offset``."""
        return bisect_right(self.offsets, offset, self.first)

    def run(self, index: int) -> Iterator[int]:
        """The offsets from ``index`` on."""
        offsets = self.offsets
        return (offsets[i] for i in range(index, len(offsets)))


class Index:
    """All postings of a ring by their values."""

    def __init__(self) -> None:
        self._by_type: dict[str, Posting] = {}
        self._by_parent: dict[str, dict[str, Posting]] = {}
        self._idle: dict[Posting, None] = {}

    def carried(self, data: Data) -> tuple[Posting, ...]:
        """The postings whose values an operation carries, each once."""
        typed = self._by_type.get(data.type)
        parents = self._by_parent.keys() & data.parents if self._by_parent and data.parents else ()
        if not parents:
            return typed.alone if typed else ()
        found = [typed] if typed else []
        for parent in parents:
            of_parent = self._by_parent[parent]
            found += [posting for type_ in (_ANY, data.type) if (posting := of_parent.get(type_))]
        return tuple(found)

    def list(self, view: "View", since: int) -> frozenset[Posting]:
        """The postings that hold all that can pass the view's filter; new ones begin at ``since``."""
        postings = []
        for key in keys_of(view.filter):
            type_, parent = key
            level = self._by_parent.setdefault(parent, {}) if parent else self._by_type
            posting = level.get(type_)
            if posting is None:
                posting = level[type_] = Posting(key, since)
            elif not posting.views:
                del self._idle[posting]
            posting.views[view] = None
            postings.append(posting)
        return frozenset(postings)

    def unlist(self, view: "View") -> None:
        for posting in view.postings:
            del posting.views[view]
            if not posting.views:
                self._idle[posting] = None
        while len(self._idle) > MAX_IDLE:
            self._forget(next(iter(self._idle)))

    def restart(self, head: Mark) -> None:
        for idle in list(self._idle):
            self._forget(idle)
        for posting in self:
            posting.restart(head.offset)

    def __iter__(self) -> Iterator[Posting]:
        yield from self._by_type.values()
        for of_parent in self._by_parent.values():
            yield from of_parent.values()

    def _forget(self, posting: Posting) -> None:
        type_, parent = posting.key
        del self._idle[posting]
        posting.restart(posting.last)
        posting.alone = ()  # no cycle for the garbage collector
        if not parent:
            del self._by_type[type_]
            return
        of_parent = self._by_parent[parent]
        del of_parent[type_]
        if not of_parent:
            del self._by_parent[parent]


def is_posted_whole(filter_: Filter) -> bool:
    """Whether every entry in the filter's postings passes the filter."""
    return not filter_.parents or len(filter_.types) * len(filter_.parents) <= _MAX_PAIRS


def keys_of(filter_: Filter) -> list[Key]:
    types, parents = filter_
    if not parents:
        return [(type_, _ANY) for type_ in types]
    if not types or not is_posted_whole(filter_):
        return [(_ANY, parent) for parent in parents]
    return [(type_, parent) for type_ in types for parent in parents]

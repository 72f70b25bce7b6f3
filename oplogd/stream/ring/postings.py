"""Postings: the entries of the ring with values listed by some filter. No I/O.

A posting belongs to one key: an id, a parent or two, a type, an event, or several of these. It
holds the ascending offsets of its entries from the moment the key was first listed. So an operation
costs one look-up for its type, one for its id, and one for each listed parent, for any number of
consumers. One that lacks a value of a key costs nothing more.
"""

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Protocol, TypeAlias

from oplogd.model.event_id import Mark
from oplogd.model.operation import Data
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.keys import ANY, Key, keys_of

# Most postings retained without a view, and bytes of their values. A returning consumer reads them,
# not the whole ring.
MAX_IDLE = 16_384
MAX_IDLE_BYTES = 8 << 20

_COMPACT = 64

# The dictionaries and names that lead to a posting.
_Way: TypeAlias = "list[tuple[dict[str, Any], str]]"


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
    """The offsets of the entries past ``since`` with the values of one key.

    ``dropped``: offsets up to this one may be missing. ``last``: the newest offset, ``since`` if
    there is none. ``views``: the views listing the key.
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


class _Node:
    """The postings of the operations with certain values, by type.

    ``by_parent``: those of the operations that have a further parent, too.
    """

    __slots__ = ("by_parent", "by_type")

    def __init__(self) -> None:
        self.by_type: dict[str, Posting] = {}
        self.by_parent: dict[str, _Node] = {}

    def gather(self, data: Data, parents: frozenset[str], found: list[Posting]) -> None:
        """Add the postings of an operation to ``found``. ``parents``: its parents."""
        for type_ in (ANY, data.type):
            if posting := self.by_type.get(type_):
                found.append(posting)
        if self.by_parent and parents:
            for parent in self.by_parent.keys() & parents:  # as many steps as the smaller has
                self.by_parent[parent].gather(data, parents, found)

    def __bool__(self) -> bool:
        return bool(self.by_type or self.by_parent)

    def __iter__(self) -> Iterator[Posting]:
        yield from self.by_type.values()
        for node in self.by_parent.values():
            yield from node


class _Root(_Node):
    """The postings of one event, or of any event."""

    __slots__ = ("by_id",)

    def __init__(self) -> None:
        super().__init__()
        self.by_id: dict[str, _Node] = {}

    def postings_of(self, data: Data) -> tuple[Posting, ...]:
        """Return the postings of an operation's values, each once."""
        typed = self.by_type.get(data.type)
        of_id = self.by_id.get(data.id)
        listed = self.by_parent.keys() & data.parents if self.by_parent and data.parents else ()
        anything = self.by_type.get(ANY)
        if not listed and of_id is None and anything is None:
            return typed.alone if typed else ()
        found = [posting for posting in (anything, typed) if posting]
        parents = frozenset(data.parents)
        if of_id is not None:
            of_id.gather(data, parents, found)
        for parent in listed:
            self.by_parent[parent].gather(data, parents, found)
        return tuple(found)

    def __bool__(self) -> bool:
        return bool(self.by_id) or super().__bool__()

    def __iter__(self) -> Iterator[Posting]:
        yield from super().__iter__()
        for node in self.by_id.values():
            yield from node


class Index:
    """All postings of a ring by their values.

    ``idle``: postings without a view, oldest first. ``idle_bytes``: memory of their values.
    """

    def __init__(self) -> None:
        self._roots: dict[str, _Root] = {}
        self.idle: dict[Posting, None] = {}
        self.idle_bytes = 0

    def postings_of(self, event: str, data: Data) -> tuple[Posting, ...]:
        """Return the postings of an operation's values, each once."""
        of_any, of_event = self._roots.get(ANY), self._roots.get(event)
        found = of_any.postings_of(data) if of_any is not None else ()
        return found if of_event is None else (*found, *of_event.postings_of(data))

    def list(self, view: Listing, since: int) -> frozenset[Posting]:
        """Return the postings of the view's filter, and add the view to them.

        Missing ones are created, for entries past ``since``.
        """
        postings: list[Posting] = []
        for key in keys_of(view.filter):
            postings_by_type, type_ = self._way_to(key)[-1]
            posting = postings_by_type.get(type_)
            if posting is None:
                posting = postings_by_type[type_] = Posting(key, since)
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
        for root in self._roots.values():
            yield from root

    def _way_to(self, key: Key) -> _Way:
        """Return the way to the posting of a key. Missing nodes are created."""
        root = self._roots.setdefault(key.event, _Root())
        node: _Node = root
        way: _Way = [(self._roots, key.event)]
        if key.id:
            way.append((root.by_id, key.id))
            node = root.by_id.setdefault(key.id, _Node())
        for parent in key.parents:
            way.append((node.by_parent, parent))
            node = node.by_parent.setdefault(parent, _Node())
        return [*way, (node.by_type, key.type)]

    def _remove_idle(self, posting: Posting) -> None:
        del self.idle[posting]
        self.idle_bytes -= _bytes_of(posting.key)

    def _forget(self, posting: Posting) -> None:
        self._remove_idle(posting)
        posting.restart(posting.last)
        posting.alone = ()  # else a cycle is left to the garbage collector
        *nodes, (postings_by_type, type_) = self._way_to(posting.key)
        del postings_by_type[type_]
        for level, name in reversed(nodes):
            if level[name]:
                return
            del level[name]


def _bytes_of(key: Key) -> int:
    return sum(map(sys.getsizeof, (key.type, key.id, *key.parents)))

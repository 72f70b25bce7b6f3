"""The index of a ring: it finds the postings of an entry by the entry's values. No I/O.

An operation costs one look-up for its type, one for its id, one for each listed parent, and one for
each number of shards, for any number of consumers. One that lacks a value of a key costs nothing
more.
"""

import sys
from collections.abc import Iterator
from typing import Any, TypeAlias

from oplogd.errors import TooManyShardsError
from oplogd.model.event_id import Mark
from oplogd.model.operation import Data
from oplogd.model.shard import MAX_TOTALS, object_hash
from oplogd.stream.ring.keys import ANY, Key, keys_of
from oplogd.stream.ring.postings import Listing, Posting

# Most postings retained without a view, and bytes of their values. A returning consumer reads them,
# not the whole ring.
MAX_IDLE = 16_384
MAX_IDLE_BYTES = 8 << 20

# The dictionaries and names that lead to a posting.
_Way: TypeAlias = list[tuple[dict[Any, Any], Any]]


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
        return _together(found)

    def __bool__(self) -> bool:
        return bool(self.by_id) or super().__bool__()

    def __iter__(self) -> Iterator[Posting]:
        yield from super().__iter__()
        for node in self.by_id.values():
            yield from node


_Roots: TypeAlias = dict[str, _Root]


def _gathered(roots: _Roots, event: str, data: Data) -> tuple[Posting, ...]:
    of_any, of_event = roots.get(ANY), roots.get(event)
    found = of_any.postings_of(data) if of_any is not None else ()
    return found if of_event is None else (*found, *of_event.postings_of(data))


class Index:
    """All postings of a ring by their values.

    ``idle``: postings without a view, oldest first. ``idle_bytes``: memory of their values.
    """

    def __init__(self) -> None:
        self._roots: dict[str, _Root] = {}
        # The roots of each shard, by the total and the number.
        self._shards: dict[int, dict[int, _Roots]] = {}
        # The number of views of each total.
        self._totals: dict[int, int] = {}
        self.idle: dict[Posting, None] = {}
        self.idle_bytes = 0

    def postings_of(self, event: str, data: Data) -> tuple[Posting, ...]:
        """Return the postings of an operation's values, each once."""
        found = _gathered(self._roots, event, data)
        if self._shards:
            for roots in self._roots_of(object_hash(data)):
                found += _gathered(roots, event, data)
        return found

    @property
    def has_shards(self) -> bool:
        """Whether some posting is of a shard."""
        return bool(self._shards)

    def postings_of_shards(self, hash_: int | None) -> tuple[Posting, ...]:
        """Return the postings of all entries of the shards with this hash. None: of each shard.

        For the messages of topics: filters by other values have no posting there.
        """
        return _together(
            [
                posting
                for roots in self._roots_of(hash_)
                if (root := roots.get(ANY)) and (posting := root.by_type.get(ANY))
            ]
        )

    def _roots_of(self, hash_: int | None) -> Iterator[_Roots]:
        for total, numbers in self._shards.items():
            if hash_ is None:
                yield from numbers.values()
            elif (roots := numbers.get(hash_ % total)) is not None:
                yield roots

    def list(self, view: Listing, since: int) -> frozenset[Posting]:
        """Return the postings of the view's filter, and add the view to them.

        Missing ones are created, for entries past ``since``. Raises TooManyShardsError.
        """
        postings: list[Posting] = []
        if view.filter.shard is not None:
            self._count(view.filter.shard.total)
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
        if view.filter.shard is not None:
            self._totals[view.filter.shard.total] -= 1

    def restart(self, head: Mark) -> None:
        """Empty the postings: the ring restarts behind ``head``."""
        for idle in list(self.idle):
            self._forget(idle)
        for posting in self:
            posting.restart(head.offset)

    def __iter__(self) -> Iterator[Posting]:
        for roots in (self._roots, *self._roots_of(None)):
            for root in roots.values():
                yield from root

    def _count(self, total: int) -> None:
        """Count a view of a total. Drop the postings of one without views if there are too many."""
        totals = self._totals
        if total not in totals and len(totals) == MAX_TOTALS:
            unused = next((each for each, views in totals.items() if not views), None)
            if unused is None:
                used = ", ".join(map(str, sorted(totals)))
                raise TooManyShardsError(
                    f"the log is read in {MAX_TOTALS} numbers of shards already: {used}"
                )
            for posting in list(self.idle):
                if posting.key.shard is not None and posting.key.shard.total == unused:
                    self._forget(posting)
            del totals[unused]
        totals[total] = totals.get(total, 0) + 1

    def _way_to(self, key: Key) -> _Way:
        """Return the way to the posting of a key. Missing nodes are created."""
        roots: _Roots = self._roots
        way: _Way = []
        if key.shard is not None:
            number, total = key.shard
            numbers = self._shards.setdefault(total, {})
            roots = numbers.setdefault(number, {})
            way += [(self._shards, total), (numbers, number)]
        way.append((roots, key.event))
        root = roots.setdefault(key.event, _Root())
        node: _Node = root
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


def _together(found: list[Posting]) -> tuple[Posting, ...]:
    """Return the postings of an entry. Entries with the same single one share its tuple."""
    return found[0].alone if len(found) == 1 else tuple(found)


def _bytes_of(key: Key) -> int:
    return sum(map(sys.getsizeof, (key.type, key.id, *key.parents)))

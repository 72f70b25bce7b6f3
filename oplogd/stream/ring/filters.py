"""Filters: the entries that a consumer wants. No I/O."""

from collections.abc import Sequence
from typing import NamedTuple

from oplogd.errors import FilterError
from oplogd.model.operation import EVENTS, MAX_ID_BYTES, MAX_OPERATION_BYTES, MAX_TYPE_BYTES, Data
from oplogd.model.shard import Shard, object_hash
from oplogd.model.transaction import Isolation

_ALL_EVENTS = frozenset(EVENTS)
_DELETE = "delete"
_ONLY_DELETE = frozenset({_DELETE})

# No operation has this type: a type has no '/'.
_NO_TYPES = frozenset({"/"})


class Filter(NamedTuple):
    """Passes an operation if its type, its id, its event, and one of its parents are listed.

    Empty sets pass all. ``within``: a second set of parents. The operation needs one of these, too.
    ``committed``: of a topic. The reader sees the records of a transaction at its commit, and waits
    for the decisions of pointers. ``shard``: the entry is in this part of the log.
    """

    types: frozenset[str] = frozenset()
    parents: frozenset[str] = frozenset()
    committed: bool = False
    within: frozenset[str] = frozenset()
    ids: frozenset[str] = frozenset()
    events: frozenset[str] = frozenset()
    shard: Shard | None = None

    @property
    def isolation(self) -> Isolation:
        return Isolation.READ_COMMITTED if self.committed else Isolation.READ_UNCOMMITTED

    @property
    def wants_live(self) -> bool:
        """Whether the states of live objects may pass. They stand for inserts and updates."""
        return self.types != _NO_TYPES and self.events != _ONLY_DELETE

    @property
    def wants_deleted(self) -> bool:
        """Whether the states of deleted objects may pass."""
        return self.types != _NO_TYPES and (not self.events or _DELETE in self.events)

    def matches(self, event: str, data: Data) -> bool:
        """Return whether an operation passes."""
        return (not self.events or event in self.events) and self.concerns(data)

    def matches_state(self, data: Data, *, deleted: bool) -> bool:
        """Return whether the state of an object passes."""
        return (self.wants_deleted if deleted else self.wants_live) and self.concerns(data)

    def concerns(self, data: Data) -> bool:
        """Return whether some operation with this data passes."""
        return (
            (not self.types or data.type in self.types)
            and (not self.ids or data.id in self.ids)
            and (not self.parents or not self.parents.isdisjoint(data.parents))
            and (not self.within or not self.within.isdisjoint(data.parents))
            and (self.shard is None or self.shard.has(object_hash(data)))
        )

    def narrowed(self, types: frozenset[str] | None, parents: frozenset[str] | None) -> "Filter":
        """Return a filter of the operations that pass this one, and have such types and parents.

        None narrows nothing, an empty set leaves nothing. A filter that passes nothing has one
        form, and one set of parents is left if it holds the other. Raises ValueError if a third set
        of parents were needed: narrow a filter by parents once.
        """
        left = self.types if types is None else types & self.types if self.types else types
        leaves_nothing = (types is not None and not left) or (parents is not None and not parents)
        if leaves_nothing or left == _NO_TYPES:
            return Filter(types=_NO_TYPES, committed=self.committed)
        narrowed = self._replace(types=left)
        return narrowed if parents is None else narrowed._within(parents)

    def _within(self, parents: frozenset[str]) -> "Filter":
        if not self.parents or parents <= self.parents:
            if self.within >= parents:
                return self._replace(parents=parents, within=frozenset())
            return self._replace(parents=parents)
        if parents >= self.parents or (self.within and parents >= self.within):
            return self
        if self.within and not parents <= self.within:
            raise ValueError("a filter has at most two sets of parents")
        return self._replace(within=parents)


def parse_filter(
    types: Sequence[str],
    parents: Sequence[str],
    most: int,
    *,
    events: Sequence[str] = (),
    ids: Sequence[str] = (),
    shard: Shard | None = None,
) -> Filter:
    """Read a filter from the query's values.

    Types are lower case and have no comma, so every value is a comma-separated list. So is every
    value of events, in any case. A single value of parents or ids is such a list, too. Several
    values are one parent or id each, which may have a comma. Raises FilterError for an unknown
    event, for a value longer than in any operation, and for more than ``most`` types, parents and
    ids.
    """
    of_type = _values(",".join(types).lower().split(","))
    _check_length("types", "type", of_type, MAX_TYPE_BYTES)
    of = _names(parents)
    _check_length("parents", "parent", of, MAX_OPERATION_BYTES)
    objects = _names(ids)
    _check_length("ids", "id", objects, MAX_ID_BYTES)
    _check_number({"types": of_type, "parents": of, "ids": objects}, most)
    wanted = _values(",".join(events).lower().split(","))
    if not wanted <= _ALL_EVENTS:
        raise FilterError("events", "each must be insert, update or delete")
    if wanted == _ALL_EVENTS:
        wanted = frozenset()
    return Filter(of_type, of, ids=objects, events=wanted, shard=shard)


def _names(given: Sequence[str]) -> frozenset[str]:
    return _values(given[0].split(",") if len(given) == 1 else given)


def _values(given: Sequence[str]) -> frozenset[str]:
    return frozenset(value for value in given if value)


def _check_length(field: str, name: str, values: frozenset[str], max_bytes: int) -> None:
    longest = max((len(value.encode("utf-8", "surrogatepass")) for value in values), default=0)
    if longest > max_bytes:
        raise FilterError(
            field, f"a value has {longest:,} bytes; no {name} has more than {max_bytes:,}"
        )


def _check_number(lists: dict[str, frozenset[str]], most: int) -> None:
    count = sum(map(len, lists.values()))
    if count > most:
        *first, last = (field for field, values in lists.items() if values)
        raise FilterError(
            f"{', '.join(first)} and {last}" if first else last,
            f"are {count:,} values, more than {most:,} (--max-filter-values)",
        )

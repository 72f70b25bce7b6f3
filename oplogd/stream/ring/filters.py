"""Filters: the entries that a consumer wants. No I/O."""

from collections.abc import Sequence
from typing import NamedTuple

from oplogd.errors import FilterError
from oplogd.model.operation import MAX_OPERATION_BYTES, MAX_TYPE_BYTES, Data
from oplogd.model.transaction import Isolation


class Filter(NamedTuple):
    """Passes an operation if its type and one of its parents are listed. Empty lists pass all.

    ``committed``: of a topic. The reader sees the records of a transaction at its commit, and waits
    for the decisions of pointers.
    """

    types: frozenset[str] = frozenset()
    parents: frozenset[str] = frozenset()
    committed: bool = False

    @property
    def isolation(self) -> Isolation:
        return Isolation.READ_COMMITTED if self.committed else Isolation.READ_UNCOMMITTED

    def matches(self, data: Data) -> bool:
        return (not self.types or data.type in self.types) and (
            not self.parents or not self.parents.isdisjoint(data.parents)
        )


def parse_filter(types: Sequence[str], parents: Sequence[str], most: int) -> Filter:
    """Read a filter from the query's values.

    Types are lower case and have no comma, so every value is a comma-separated list. A single value
    of parents is such a list, too. Several values are one parent each, which may have a comma.
    Raises FilterError for a value longer than in any operation, and for more than ``most`` values.
    """
    listed = _values(",".join(types).lower().split(","))
    _check_length("types", "type", listed, MAX_TYPE_BYTES)
    of = _values(parents[0].split(",") if len(parents) == 1 else parents)
    _check_length("parents", "parent", of, MAX_OPERATION_BYTES)
    if len(listed) + len(of) > most:
        raise FilterError(
            "types and parents" if listed and of else "types" if listed else "parents",
            f"are {len(listed) + len(of):,} values, more than {most:,} (--max-filter-values)",
        )
    return Filter(listed, of)


def _values(given: Sequence[str]) -> frozenset[str]:
    return frozenset(value for value in given if value)


def _check_length(field: str, name: str, values: frozenset[str], max_bytes: int) -> None:
    longest = max((len(value.encode("utf-8", "surrogatepass")) for value in values), default=0)
    if longest > max_bytes:
        raise FilterError(
            field, f"a value has {longest:,} bytes; no {name} has more than {max_bytes:,}"
        )

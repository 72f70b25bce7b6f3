"""Which operations a consumer wants. No I/O."""

from collections.abc import Sequence
from typing import NamedTuple

from oplogd.operation import Data


class Filter(NamedTuple):
    """Passes an operation whose type is listed and of which any parent is listed; an empty list passes all."""

    types: frozenset[str] = frozenset()
    parents: frozenset[str] = frozenset()

    def matches(self, data: Data) -> bool:
        return (not self.types or data.type in self.types) and (
            not self.parents or not self.parents.isdisjoint(data.parents)
        )


def parse_filter(types: Sequence[str], parents: Sequence[str]) -> Filter:
    """From the query's values. Types cannot hold a comma and are stored in lower case: every value is a list of them.

    One value of parents is a comma-separated list; of several each stands for itself, so that it can hold a comma.
    """
    listed = ",".join(types).lower().split(",")
    return Filter(_values(listed), _values(parents[0].split(",") if len(parents) == 1 else parents))


def _values(given: Sequence[str]) -> frozenset[str]:
    return frozenset(value for value in given if value)

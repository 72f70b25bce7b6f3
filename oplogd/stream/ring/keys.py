"""Keys of postings: the values by which an operation finds the filters that it passes. No I/O."""

from itertools import product
from typing import Any, NamedTuple

from oplogd.model.shard import Shard
from oplogd.stream.ring.filters import Filter

# Most keys of a filter that lists several kinds of values. With more combinations it leaves out the
# less selective kinds, and its view checks them.
_MAX_PAIRS = 1_024

# Stands for any event, type or id. No operation has an empty one.
ANY = ""
_EACH = frozenset({ANY})

# The sets of a filter, the most selective first.
_SELECTIVE = ("ids", "parents", "within", "types", "events")


class Key(NamedTuple):
    """The values that an operation must have. Each of the texts may be ``ANY``.

    ``parents``: at most two, ascending. ``shard``: the operation is in it; None: in any.
    """

    type: str
    parents: tuple[str, ...]
    id: str
    event: str
    shard: Shard | None = None


def is_posted_whole(filter_: Filter) -> bool:
    """Return whether every entry in the filter's postings passes the filter."""
    return _posted(filter_) == filter_._replace(committed=False, shard=None)


def keys_of(filter_: Filter) -> list[Key]:
    """Return the keys of the filter's postings, within its shard if it has one.

    Empty: the filter passes everything.
    """
    posted = _posted(filter_)
    if not any(posted) and filter_.shard is None:
        return []
    pairs = product(posted.parents or _EACH, posted.within or _EACH)
    parents = {tuple(sorted({*pair} - _EACH)) for pair in pairs}
    return [
        Key(*values, filter_.shard)
        for values in product(
            posted.types or _EACH, parents, posted.ids or _EACH, posted.events or _EACH
        )
    ]


def _posted(filter_: Filter) -> Filter:
    """Return a filter of the posted sets: the most selective one, and more up to _MAX_PAIRS."""
    posted: dict[str, Any] = {}
    count = 1
    for kind in _SELECTIVE:
        values = getattr(filter_, kind)
        if values and (not posted or count * len(values) <= _MAX_PAIRS):
            posted[kind] = values
            count *= len(values)
    return Filter(**posted)

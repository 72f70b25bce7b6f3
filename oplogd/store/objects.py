"""The interface between the agent and the objects of a store: look-ups of their states.

A key is ``type/id``. Keys are sorted as the store compares texts, in general by their bytes.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from oplogd.model.event_id import Mark
from oplogd.model.operation import Data

# So many objects have at most 1 MB.
FEW_KEYS = 16

# Most keys made of the types and ids of a selection. For more of them its types are searched.
_MAX_KEYS = 10_000

# The character behind '/'.
_PAST_SLASH = "0"


class ObjectState(NamedTuple):
    """The last operation of one object. ``mark``: of its entry; offset 0 if the log had none."""

    key: str
    mark: Mark
    deleted: bool
    data: str


class ObjectsPage(NamedTuple):
    """Some objects, sorted by key. ``next``: the key behind which the next page begins.

    None: there are no more. An empty page may have a next one.
    """

    states: list[ObjectState]
    next: str | None


class Selection(Protocol):
    """The objects that are wanted. Empty ``types`` and ``ids`` are no restriction."""

    @property
    def types(self) -> frozenset[str]: ...

    @property
    def ids(self) -> frozenset[str]: ...

    def matches_state(self, data: Data, *, deleted: bool) -> bool:
        """Return whether an object is wanted."""


class Objects(Protocol):
    """The objects of a store. Every method may raise StoreUnavailableError.

    Methods may be called concurrently. They may not know an operation yet that was stored just
    before: wait for ``Store.checkpoint``.
    """

    async def find(self, type_: str, id_: str) -> ObjectState | None:
        """Return the state of an object, also of a deleted one; None if it never existed."""

    async def of_keys(self, keys: Sequence[str]) -> list[ObjectState]:
        """Return the states of at most FEW_KEYS, also of deleted objects."""

    async def page(self, after: str, limit: int, selection: Selection) -> ObjectsPage:
        """Return the live objects past a key that are selected.

        Looks at about ``limit`` states and about 1 MB of them, whether they are selected or not. So
        a page may be short or empty although more objects follow.
        """


class Span(NamedTuple):
    """All keys between two, both excluded. ``before`` None: there is no end."""

    after: str
    before: str | None


def keys_of(selection: Selection, after: str = "") -> list[str] | None:
    """Return the keys of the selected objects past a key, sorted; None: search by ``spans_of``."""
    types, ids = selection.types, selection.ids
    if not types or not ids or len(types) * len(ids) > _MAX_KEYS:
        return None
    keys = sorted(f"{type_}/{id_}" for type_ in types for id_ in ids)
    return keys[bisect_right(keys, after) :]


def spans_of(selection: Selection, after: str) -> list[Span]:
    """Return the spans with all selected objects past a key, in order."""
    if not selection.types:
        return [Span(after, None)]
    starts = sorted(f"{type_}/" for type_ in selection.types)
    spans = [Span(max(after, start), start[:-1] + _PAST_SLASH) for start in starts]
    return [span for span in spans if span.after < (span.before or "")]

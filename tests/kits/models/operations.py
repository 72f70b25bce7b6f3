"""Short ways to make operations and entries."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, permutations, product
from typing import NamedTuple

from hypothesis import strategies as st

from oplogd.model.operation import Data, Operation, decode_data, encode_data
from oplogd.store import Entry

TIMESTAMP = "2014-11-06T11:04:39.041Z"


def operation(
    event: str = "insert",
    type_: str = "video",
    id_: str = "a",
    parents: Sequence[str] = (),
    timestamp: str = TIMESTAMP,
) -> Operation:
    return Operation(event, f"{type_}/{id_}", encode_data(timestamp, list(parents), type_, id_))


def numbered(count: int, first: int = 1, type_: str = "video") -> list[Operation]:
    """Return inserts of ``count`` objects with ids from ``first`` on."""
    return [operation(type_=type_, id_=str(number)) for number in range(first, first + count)]


def entry(offset: int, ms: int, made: Operation) -> Entry:
    return Entry(offset, ms, made.event, made.data.decode())


def key_of(data: str | Data) -> str:
    read = decode_data(data) if isinstance(data, str) else data
    return f"{read.type}/{read.id}"


class Known(NamedTuple):
    """The last operation of an object, as in the states."""

    offset: int
    deleted: bool
    data: str


def fold(entries: Iterable[Entry], before: Mapping[str, Known] | None = None) -> dict[str, Known]:
    """Return the expected states after these entries, by key."""
    states = dict(before or {})
    for offset, _, event, data in entries:
        states[key_of(data)] = Known(offset, event == "delete", data)
    return states


def operations(
    types: Sequence[str] = ("a", "b"),
    ids: Sequence[str] = ("1", "2", "3"),
    parents: Sequence[str] = ("x", "y", "z"),
) -> st.SearchStrategy[Operation]:
    """Draw operations on few objects, so that objects repeat. Each is one draw, which is fast."""
    chosen = [()] * max(1, len(parents)), [(each,) for each in parents], permutations(parents, 2)
    every = product(
        ["insert", "update", "delete"],
        types,
        ids,
        list(chain(*chosen)),
        [TIMESTAMP, "2026-01-01T00:00:00.000Z"],
    )
    return st.sampled_from([operation(*each) for each in every])

"""What a reader wants as filters of MongoDB, and documents as rows. No I/O."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bson import ObjectId
from bson.datetime_ms import DatetimeMS

from oplog_sync.backend.base import Row, Wanted
from oplogd.event_id import MAX_MS, MAX_OFFSET, Mark, format_id
from oplogd.operation import parse_timestamp
from oplogd.store.mongo.damage import milliseconds, offset_of, sound_event
from oplogd.store.mongo.layout import LOG, STATES, Document, key_of, mark_of, text


class Table(NamedTuple):
    """A collection, the indexed field by which it is divided and read, and how its documents become rows."""

    name: str
    order: str
    fields: tuple[str, ...]
    fields_without_data: tuple[str, ...]
    filters: Callable[[Wanted], list[Document]]
    row: Callable[[Document, bool], Row]
    """The second argument: whether the row's data is wanted."""


def past(field: str, after: Any, last: Any) -> Document:
    """The filter for values past the first up to and with the second; None is no bound."""
    bounds = {name: value for name, value in (("$gt", after), ("$lte", last)) if value is not None}
    return {field: bounds} if bounds else {}


def _between(field: str, low: Any, high: Any) -> list[Document]:
    bounds = {name: value for name, value in (("$gte", low), ("$lte", high)) if value is not None}
    return [{field: bounds}] if bounds else []


def _common_filters(wanted: Wanted) -> list[Document]:
    filters: list[Document] = []
    if wanted.events is not None:
        filters.append({"event": {"$in": sorted(wanted.events)}})
    if wanted.types is not None:
        filters.append({"data.t": {"$in": sorted(wanted.types)}})
    low, high = (None if text is None else parse_timestamp(text) for text in wanted.timestamp)
    return filters + _between("data.ts", low, high)


def _state_filters(wanted: Wanted) -> list[Document]:
    filters = _common_filters(wanted)
    if wanted.types:
        # As keys, so that the index tells. A key begins with the type and a slash; the next character is a nought.
        filters.append(
            {
                "$or": [
                    {"_id": {"$gt": f"{name}/", "$lt": f"{name}0"}} for name in sorted(wanted.types)
                ]
            }
        )
    filters += _between("ts", *(None if ms is None else DatetimeMS(ms) for ms in wanted.logged))
    low, high = wanted.n
    if low is not None and low > 0:
        filters.append({"n": {"$gte": low}})
    if high is not None:
        filters.append({"n": {"$not": {"$gt": high}}})  # a state of the first server may have none
    return filters


def _operation_filters(wanted: Wanted) -> list[Document]:
    low, high = (None if ms is None else min(max(ms, 0), MAX_MS) for ms in wanted.logged)
    first = None if low is None else ObjectId(format_id(Mark(0, low)))
    last = None if high is None else ObjectId(format_id(Mark(MAX_OFFSET, high)))
    return _common_filters(wanted) + _between("_id", first, last) + _between("n", *wanted.n)


def _state_row(document: Mapping[str, Any], with_data: bool) -> Row:
    event = "delete" if document.get("event") == "delete" else "insert"
    ms = milliseconds(document.get("ts")) or 0
    data = text(document, ms) if with_data else ""
    return Row(document["_id"], event, max(offset_of(document), 0), ms, data)


def _operation_row(document: Document, with_data: bool) -> Row:
    mark = mark_of(document)
    data = text(document, mark.ms) if with_data else ""
    return Row(key_of(document), sound_event(document), mark.offset, mark.ms, data)


STATE_TABLE = Table(
    STATES, "_id", ("event", "n", "ts", "data"), ("event", "n", "ts"), _state_filters, _state_row
)
OPERATION_TABLE = Table(
    LOG,
    "n",
    ("event", "n", "data"),
    ("event", "n", "data.t", "data.id"),
    _operation_filters,
    _operation_row,
)

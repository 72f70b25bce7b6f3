"""Turn conditions into MongoDB filters, and documents into rows. No I/O."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bson import ObjectId
from bson.datetime_ms import DatetimeMS

from oplog_sync.backend.base import StoreRow, Wanted
from oplogd.model.event_id import MAX_MS, MAX_OFFSET, Mark, format_id
from oplogd.store.mongo.link.damage import milliseconds, offset_of, sound_event
from oplogd.store.mongo.link.layout import LOG, STATES, Document, key_of, mark_of, text


class MongoTable(NamedTuple):
    """A collection to read. ``order``: the indexed field for ranges and sorting.

    ``row`` makes a row of a document. Its second argument: whether the row needs data.
    """

    name: str
    order: str
    fields: tuple[str, ...]
    fields_without_data: tuple[str, ...]
    filters: Callable[[Wanted], list[Document]]
    row: Callable[[Document, bool], StoreRow]


def past(field: str, after: Any, last: Any, least: str = "$gt") -> Document:
    """Return the filter for values in (``after``, ``last``]. None is no bound."""
    bounds = {name: value for name, value in ((least, after), ("$lte", last)) if value is not None}
    return {field: bounds} if bounds else {}


def _between(field: str, low: Any, high: Any) -> Document:
    return past(field, low, high, "$gte")


def _common_filters(wanted: Wanted) -> list[Document]:
    filters: list[Document] = []
    if wanted.events is not None:
        filters.append({"event": {"$in": sorted(wanted.events)}})
    if wanted.types is not None:
        filters.append({"data.t": {"$in": sorted(wanted.types)}})
    if wanted.parents is not None:
        filters.append({"data.p": {"$in": sorted(wanted.parents)}})
    return filters


def _state_filters(wanted: Wanted) -> list[Document]:
    filters = _common_filters(wanted)
    if wanted.types:
        # Ranges of keys use the index. A key is type/id, and "0" is the character after the slash.
        ranges = [{"$gt": f"{name}/", "$lt": f"{name}0"} for name in sorted(wanted.types)]
        filters.append({"$or": [{"_id": each} for each in ranges]})
    times = (None if ms is None else DatetimeMS(ms) for ms in wanted.ms)
    filters.append(_between("ts", *times))
    low, high = wanted.offset
    if low is not None and low > 0:
        filters.append({"n": {"$gte": low}})
    if high is not None:
        # A state of the first server may have no offset.
        filters.append({"n": {"$not": {"$gt": high}}})
    return filters


def _operation_filters(wanted: Wanted) -> list[Document]:
    low, high = (None if ms is None else min(max(ms, 0), MAX_MS) for ms in wanted.ms)
    first = None if low is None else ObjectId(format_id(Mark(0, low)))
    last = None if high is None else ObjectId(format_id(Mark(MAX_OFFSET, high)))
    bounds = _between("_id", first, last), _between("n", *wanted.offset)
    return [*_common_filters(wanted), *bounds]


def _state_row(document: Mapping[str, Any], with_data: bool) -> StoreRow:
    event = "delete" if document.get("event") == "delete" else "insert"
    ms = milliseconds(document.get("ts")) or 0
    data = text(document, ms) if with_data else ""
    return StoreRow(document["_id"], event, max(offset_of(document), 0), ms, data)


def _operation_row(document: Document, with_data: bool) -> StoreRow:
    mark = mark_of(document)
    data = text(document, mark.ms) if with_data else ""
    return StoreRow(key_of(document), sound_event(document), mark.offset, mark.ms, data)


STATE_TABLE = MongoTable(
    STATES, "_id", ("event", "n", "ts", "data"), ("event", "n", "ts"), _state_filters, _state_row
)
OPERATION_TABLE = MongoTable(
    LOG,
    "n",
    ("event", "n", "data", "txn", "lsn", "of"),
    ("event", "n", "data.t", "data.id"),
    _operation_filters,
    _operation_row,
)

"""The documents of the three collections. No I/O.

``oplog_ops`` and ``oplog_states`` are laid out as the first server did (WIRE.md), with the offset ``n`` besides, and in
the log ``w`` and ``s``: who wrote the entry, and which of the writer's operations it is. Corrections have neither: the
states tell whether they are there.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from bson import ObjectId
from bson.datetime_ms import DatetimeMS
from pymongo import IndexModel

from oplogd.event_id import Mark, format_id
from oplogd.operation import Operation, decode_data, encode_data, format_ms
from oplogd.store.base import Entry, State, StateCursor

Document = dict[str, Any]

LOG = "oplog_ops"
STATES = "oplog_states"
META = "oplog_meta"
FIRST_SERVERS_LOG = "oplog_ops_of_first_server"
"""Where the log of the first server is kept. Never replaced."""

LEASE = f"{LOG}:lease"
OFFSET_INDEX = "offset"
"""The unique index on ``n``. Only the holder of the lease creates it: a log without it is not to be written."""

STATES_INDEXES = [
    IndexModel([("event", 1), ("ts", 1)]),
    IndexModel([("event", 1), ("data.t", 1), ("ts", 1)]),
    IndexModel([("ts", 1)]),
    IndexModel([("data.t", 1), ("ts", 1)]),
    IndexModel([("ts", 1), ("n", 1), ("_id", 1)]),  # ours: states of one millisecond are paged in log order
]
STATES_ORDER = [("ts", 1), ("n", 1), ("_id", 1)]
ENTRY_OVERHEAD = 160
"""About what BSON adds to the key and the JSON text of an operation, with the index, in bytes."""


def entry_id(mark: Mark) -> ObjectId:
    return ObjectId(format_id(mark))


def mark_of(document: Mapping[str, Any]) -> Mark:
    """The place of an entry that has an offset."""
    raw = document["_id"].binary
    ms = int.from_bytes(raw[:4], "big") * 1000 + int.from_bytes(raw[4:6], "big")
    return Mark(int(document["n"]), ms)


def entry_document(operation: Operation, mark: Mark, writer: str | None, sequence: int) -> Document:
    data = decode_data(operation.data.decode())
    document = {
        "_id": entry_id(mark),
        "event": operation.event,
        "data": {"ts": datetime.fromisoformat(data.timestamp), "p": data.parents, "t": data.type, "id": data.id},
        "n": mark.offset,
    }
    return document if writer is None else {**document, "w": writer, "s": sequence}


def entry(document: Document) -> Entry:
    mark = mark_of(document)
    return Entry(mark.offset, mark.ms, document["event"], _text(document["data"]))


def state_document(document: Document) -> Document:
    """The state that an entry leaves: without its key, an update as an insert."""
    mark = mark_of(document)
    return {
        "event": "delete" if document["event"] == "delete" else "insert",
        "ts": DatetimeMS(mark.ms),
        "data": document["data"],
        "n": mark.offset,
    }


def key_of(document: Document) -> str:
    data = document["data"]
    return f"{data['t']}/{data['id']}"


def state(document: Document) -> State:
    tie = f"{int(document.get('n', -1)) + 1:012x}{document['_id']}"
    return State(StateCursor(int(document["ts"]), tie), document["event"] == "delete", _text(document["data"]))


def states_past(cursor: StateCursor) -> Document:
    """The filter for what follows a place in ``STATES_ORDER``. States of the first server share their ``n``, or have none."""
    at = DatetimeMS(cursor.ms)
    if cursor.tie is None:
        return {"ts": {"$gte": at}}
    tie = str(cursor.tie)
    offset, key = int(tie[:12], 16) - 1, tie[12:]
    same = {"n": offset if offset >= 0 else None, "_id": {"$gt": key}}
    return {"ts": {"$gte": at}, "$or": [{"ts": {"$gt": at}}, {"n": {"$gt": offset}}, same]}


def _text(data: Document) -> str:
    timestamp = format_ms(int(data["ts"]))
    return encode_data(timestamp, data.get("p") or [], data["t"], data["id"]).decode()

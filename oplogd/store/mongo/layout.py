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
from oplogd.operation import Operation, encode_data, format_ms
from oplogd.store.base import Entry, State, StateCursor
from oplogd.store.mongo.damage import Damage, milliseconds, offset_of, sound_data, sound_event
from oplogd.store.stored import decode_stored

Document = dict[str, Any]

LOG = "oplog_ops"
STATES = "oplog_states"
META = "oplog_meta"
FIRST_SERVERS_LOG = "oplog_ops_of_first_server"
"""Where the log of the first server is kept. Never replaced."""

LEASE = f"{LOG}:lease"
OFFSET_INDEX = "offset"
"""The unique index on ``n``. Only the holder of the lease creates it: a log without it is not to be written."""

STATES_ORDER = [("ts", 1), ("n", 1), ("_id", 1)]
LIVE_STATES_ORDER = [("event", 1), *STATES_ORDER]

STATES_INDEXES = [
    IndexModel([("event", 1), ("ts", 1)]),
    IndexModel([("event", 1), ("data.t", 1), ("ts", 1)]),
    IndexModel([("ts", 1)]),
    IndexModel([("data.t", 1), ("ts", 1)]),
    IndexModel(STATES_ORDER),  # ours: states of one millisecond are paged in log order
    IndexModel(LIVE_STATES_ORDER),  # ours: live states without a look at deleted ones
]
ENTRY_OVERHEAD = 160
"""About what BSON adds to the key and the JSON text of an operation, with the index, in bytes."""


def entry_id(mark: Mark) -> ObjectId:
    return ObjectId(format_id(mark))


def mark_of(document: Mapping[str, Any]) -> Mark:
    """The place of an entry that has an offset."""
    key = document["_id"]
    raw = key.binary if isinstance(key, ObjectId) else bytes(12)
    ms = int.from_bytes(raw[:4], "big") * 1000 + int.from_bytes(raw[4:6], "big")
    return Mark(int(document["n"]), ms)


def is_in_keeping(document: Mapping[str, Any]) -> bool:
    """Whether the id of an entry is the one that its offset has."""
    key, n = document["_id"], document.get("n")
    return (
        isinstance(key, ObjectId)
        and isinstance(n, int)
        and n == int.from_bytes(key.binary[6:], "big") > 0
    )


def entry_document(operation: Operation, mark: Mark, writer: str | None, sequence: int) -> Document:
    data = decode_stored(operation.data.decode())
    document = {
        "_id": entry_id(mark),
        "event": operation.event,
        "data": {
            "ts": datetime.fromisoformat(data.timestamp),
            "p": data.parents,
            "t": data.type,
            "id": data.id,
        },
        "n": mark.offset,
    }
    return document if writer is None else {**document, "w": writer, "s": sequence}


def weight(document: Mapping[str, Any]) -> int:
    """About how many characters an entry brings."""
    data = document.get("data")
    if not isinstance(data, dict):
        return 0
    parents = data.get("p")
    own = len(str(data.get("id")))
    return own + sum(len(str(each)) for each in parents) if isinstance(parents, list) else own


def entry(document: Document, damage: Damage | None = None) -> Entry:
    mark = mark_of(document)
    return Entry(mark.offset, mark.ms, sound_event(document), text(document, mark.ms, damage))


def state_document(document: Document, damage: Damage | None = None) -> Document:
    """The state that an entry leaves: without its key, an update as an insert."""
    mark = mark_of(document)
    return {
        "event": "delete" if sound_event(document) == "delete" else "insert",
        "ts": DatetimeMS(mark.ms),
        "data": sound_data(document, mark.ms, damage),
        "n": mark.offset,
    }


def key_of(document: Document, damage: Damage | None = None) -> str:
    data = sound_data(document, 0, damage)
    return f"{data['t']}/{data['id']}"


def state(document: Document, damage: Damage | None = None) -> State:
    ms = milliseconds(document.get("ts")) or 0
    tie = f"{offset_of(document) + 1:012x}{document['_id']}"
    return State(
        StateCursor(ms, tie), document.get("event") == "delete", text(document, ms, damage)
    )


def states_past(cursor: StateCursor, upto: int, live_only: bool = False) -> list[Document]:
    """The filters for the states past a place in ``STATES_ORDER`` with an offset of at most ``upto``.

    What they find stands one behind the other. Each is one range of an index, which gives the order, too: however many states
    share a time or are deleted, a page costs its length. States of the first server share their ``n``, or have none; any
    other is unique.
    """
    at = DatetimeMS(cursor.ms)
    upto_filter: Document = {"$not": {"$gt": upto}}  # also those without
    if cursor.tie is None:
        filters: list[Document] = [{"ts": {"$gte": at}, "n": upto_filter}]
    else:
        tie = str(cursor.tie)
        offset, key = int(tie[:12], 16) - 1, tie[12:]
        filters = [
            {"ts": at, "n": {"$gt": offset, "$lte": upto}},
            {"ts": {"$gt": at}, "n": upto_filter},
        ]
        if offset <= 0:
            filters.insert(0, {"ts": at, "n": offset if offset >= 0 else None, "_id": {"$gt": key}})
    return [{"event": "insert", **each} for each in filters] if live_only else filters


def text(document: Mapping[str, Any], ms: int, damage: Damage | None = None) -> str:
    """The JSON text of an entry's or a state's operation. ``ms`` takes the place of a date that cannot be read."""
    data = sound_data(document, ms, damage)
    return encode_data(
        format_ms(int(data["ts"])), data.get("p") or [], data["t"], data["id"]
    ).decode()

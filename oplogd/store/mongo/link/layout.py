"""The documents of the three collections. No I/O.

``oplog_ops`` and ``oplog_states`` have the first server's layout, and the offset ``n``. Entries of
the log also have ``w`` and ``s``: the token of the writer and the sequence of the operation.
Corrections have neither: the states tell whether they are there. Operations of a transaction have
``txn``, ``lsn`` and ``of`` instead: its id, their number in it, and their number in the oplog.
States never have these.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from bson import ObjectId
from bson.datetime_ms import DatetimeMS
from pymongo import IndexModel

from oplogd.model.event_id import Mark, format_id
from oplogd.model.operation import Operation, encode_data, format_ms
from oplogd.store.base import Entry, State, StateCursor, decode_stored
from oplogd.store.mongo.link.damage import (
    Damage,
    milliseconds,
    offset_of,
    sound_data,
    sound_event,
    whole,
)

Document = dict[str, Any]

# An operation and its number: the sequence of its writer, its lsn in a transaction, or its place
# among corrections.
Numbered = tuple[int, Operation]


class OfTransaction(NamedTuple):
    """The transaction of operations. ``of``: how many operations it has in the oplog."""

    txn: int
    of: int


LOG = "oplog_ops"
STATES = "oplog_states"
META = "oplog_meta"

# The log of the first server, once it was set aside. Never replaced.
FIRST_SERVERS_LOG = "oplog_ops_of_first_server"

LEASE = f"{LOG}:lease"

# The row of the guarded time in ``oplog_meta``: the members of ``Saved``.
CLOCK = f"{LOG}:clock"

# The document ``{identity, secret}`` in ``oplog_meta``.
IDENTITY = f"{LOG}:store"

# The unique index on ``n``. Only the holder of the lease creates it. A log without it must not be
# written.
OFFSET_INDEX = "offset"

STATES_ORDER = [("ts", 1), ("n", 1), ("_id", 1)]
LIVE_STATES_ORDER = [("event", 1), *STATES_ORDER]

STATES_INDEXES = [
    IndexModel([("event", 1), ("ts", 1)]),
    IndexModel([("event", 1), ("data.t", 1), ("ts", 1)]),
    IndexModel([("ts", 1)]),
    IndexModel([("data.t", 1), ("ts", 1)]),
    # The first server had only the indexes above.
    IndexModel(STATES_ORDER),  # pages states of one millisecond in log order
    IndexModel(LIVE_STATES_ORDER),  # finds live states without reading tombstones
]

# Bytes of BSON and the index beside the key and the JSON text of an operation, approximately.
ENTRY_OVERHEAD = 160


def entry_id(mark: Mark) -> ObjectId:
    return ObjectId(format_id(mark))


def mark_of(document: Mapping[str, Any]) -> Mark:
    """Return the mark of an entry with an offset."""
    key = document["_id"]
    raw = key.binary if isinstance(key, ObjectId) else bytes(12)
    ms = int.from_bytes(raw[:4], "big") * 1000 + int.from_bytes(raw[4:6], "big")
    return Mark(int(document["n"]), ms)


def id_has_offset(document: Mapping[str, Any]) -> bool:
    """Return whether the id of an entry ends with its offset."""
    key, n = document["_id"], document.get("n")
    return (
        isinstance(key, ObjectId)
        and isinstance(n, int)
        and n == int.from_bytes(key.binary[6:], "big") > 0
    )


def entry_document(
    operation: Operation, mark: Mark, writer: str | OfTransaction | None, sequence: int
) -> Document:
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
    if isinstance(writer, OfTransaction):
        return {**document, "txn": writer.txn, "lsn": sequence, "of": writer.of}
    return document if writer is None else {**document, "w": writer, "s": sequence}


def weight(document: Mapping[str, Any]) -> int:
    """Return the approximate number of characters of an entry."""
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
    """Return the state after an entry, without its key. An update becomes an insert."""
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


def states_past(cursor: StateCursor, upto: int, event: str | None = None) -> list[Document]:
    """Return filters for the states past a cursor, with an offset of at most ``upto``.

    ``event``: of the states; None: of any.

    Their results follow one another in ``STATES_ORDER``. Each filter is one range of an index in
    this order. So the cost of a page depends on its length only, however many states share a time
    or are deleted. States of the first server share one ``n`` or have none. Any other ``n`` is
    unique.
    """
    at = DatetimeMS(cursor.ms)
    upto_filter: Document = {"$not": {"$gt": upto}}  # also matches states without n
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
    return filters if event is None else [{"event": event, **each} for each in filters]


def text(document: Mapping[str, Any], ms: int, damage: Damage | None = None) -> str:
    """Return the JSON text of the operation of an entry or a state.

    ``ms`` replaces an unreadable date.
    """
    data = sound_data(document, ms, damage)
    encoded = encode_data(
        format_ms(int(data["ts"])), data.get("p") or [], data["t"], data["id"]
    ).decode()
    if (found := transaction_of(document)) is None:
        return encoded
    txn, lsn, count = found
    return f'{encoded[:-1]},"txn":"{txn}","lsn":{lsn},"of":{count}}}'


def transaction_of(document: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """Return the transaction of an entry, the ``lsn`` and ``of``; None if it has none."""
    if "txn" not in document:
        return None
    txn, lsn, count = (whole(document.get(name)) for name in ("txn", "lsn", "of"))
    return None if txn is None or lsn is None or count is None else (txn, lsn, count)

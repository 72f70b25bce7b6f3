"""The columns of the data source. Turns stored rows into Arrow batches."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import types as T

from oplog_sync.arrow import INSTANT, arrow_schema, batch_of, instants
from oplog_sync.arrow import milliseconds as milliseconds
from oplog_sync.backend import StoreRow
from oplog_sync.errors import OptionError
from oplogd.model.event_id import prefix
from oplogd.store import decode_stored

# Position of the timestamp in the output of ``encode_data``.
_TIMESTAMP = slice(14, 38)

_MS = pa.timestamp("ms", tz="UTC")


class _WithParents(msgspec.Struct, gc=False):
    parents: list[str]


_all_parents = msgspec.json.Decoder(list[_WithParents]).decode


def event_ids(rows: Sequence[StoreRow]) -> list[str]:
    """Return the event id of each row, its replication id if an agent sent no offset (0)."""
    prefixes = {ms: prefix(ms) for ms in {row.ms for row in rows}}
    return [f"{prefixes[row.ms]}{row.offset:012x}" if row.offset else str(row.ms) for row in rows]


_MAKERS: dict[str, tuple[T.DataType, Callable[[Sequence[StoreRow]], Any]]] = {
    "event_id": (T.StringType(), lambda rows: event_ids(rows)),
    "offset": (T.LongType(), lambda rows: [row.offset for row in rows]),
    "event": (T.StringType(), lambda rows: [row.event for row in rows]),
    "key": (T.StringType(), lambda rows: [row.key for row in rows]),
    "type": (T.StringType(), lambda rows: [row.key.partition("/")[0] for row in rows]),
    "id": (T.StringType(), lambda rows: [row.key.partition("/")[2] for row in rows]),
    "timestamp": (T.TimestampType(), lambda rows: _timestamps(rows)),
    "parents": (T.ArrayType(T.StringType()), lambda rows: _parents(rows)),
    "logged": (T.TimestampType(), lambda rows: pa.array([r.ms for r in rows], _MS).cast(INSTANT)),
    "data": (T.StringType(), lambda rows: [row.data for row in rows]),
}


# Columns made without the operation's JSON text.
WITHOUT_DATA = {"event_id", "offset", "event", "key", "type", "id", "logged"}


def full_schema() -> T.StructType:
    """Return all columns. States and operations have the same."""
    return T.StructType([T.StructField(name, kind) for name, (kind, _) in _MAKERS.items()])


def check_schema(schema: T.StructType, whole: T.StructType | None = None) -> None:
    """Raise OptionError unless each column of the schema exists and has that type.

    ``whole``: all columns. None: ``full_schema``.
    """
    whole = whole or full_schema()
    for field in schema.fields:
        if field.name not in whole.names:
            raise OptionError(
                f"schema: there is no column {field.name}; the columns are {', '.join(whole.names)}"
            )
        kind = whole[field.name].dataType.simpleString()
        if field.dataType.simpleString() != kind:
            raise OptionError(f"schema: the column {field.name} is of type {kind}")


def arrow_batch(rows: Sequence[StoreRow], schema: T.StructType) -> pa.RecordBatch:
    columns = [_MAKERS[field.name][1](rows) for field in schema.fields]
    names = (f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
    return batch_of(columns, arrow_schema(", ".join(names)))


def _parents(rows: Sequence[StoreRow]) -> list[list[str]]:
    try:
        found = _all_parents(f"[{','.join([row.data for row in rows])}]")
    except msgspec.MsgspecError:
        found = []
    if len(found) == len(rows):
        return [each.parents for each in found]
    return [decode_stored(row.data).parents for row in rows]  # raises the error of a damaged row


def _timestamps(rows: Sequence[StoreRow]) -> pa.Array:
    try:
        return instants([row.data[_TIMESTAMP] for row in rows])
    except pa.ArrowInvalid:  # damaged: decode_stored raises the error
        return instants([decode_stored(row.data).timestamp for row in rows])

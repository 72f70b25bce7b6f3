"""The columns of the data source, and stored rows as Arrow batches."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructType, TimestampType

from oplog_sync.backend import Row
from oplog_sync.errors import OptionError
from oplogd.event_id import Mark, format_id
from oplogd.store import decode_stored

_TIMESTAMP = slice(14, 38)
"""Where the timestamp stands in what ``encode_data`` made."""

INSTANT = pa.timestamp("us", tz="UTC")


def event_id(row: Row) -> str:
    """The id of the row's operation. An agent's replication names no offset (0): then milliseconds since 1970."""
    return format_id(Mark(row.n, row.ms)) if row.n else str(row.ms)


_MAKERS: dict[str, tuple[DataType, Callable[[Sequence[Row]], Any]]] = {
    "event_id": (StringType(), lambda rows: [event_id(row) for row in rows]),
    "n": (LongType(), lambda rows: [row.n for row in rows]),
    "event": (StringType(), lambda rows: [row.event for row in rows]),
    "key": (StringType(), lambda rows: [row.key for row in rows]),
    "type": (StringType(), lambda rows: [row.key.partition("/")[0] for row in rows]),
    "id": (StringType(), lambda rows: [row.key.partition("/")[2] for row in rows]),
    "timestamp": (TimestampType(), lambda rows: _timestamps(rows)),
    "parents": (
        ArrayType(StringType()),
        lambda rows: [decode_stored(row.data).parents for row in rows],
    ),
    "logged": (
        TimestampType(),
        lambda rows: pa.array([row.ms * 1000 for row in rows], pa.int64()).cast(INSTANT),
    ),
    "data": (StringType(), lambda rows: [row.data for row in rows]),
}

ARROW_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "timestamp": INSTANT,
    "array<string>": pa.list_(pa.field("element", pa.string())),
}


def full_schema() -> StructType:
    """Every column, the same for states and operations. A reader asked for some reads only those."""
    schema = StructType()
    for name, (kind, _) in _MAKERS.items():
        schema.add(name, kind)
    return schema


def check_schema(schema: StructType) -> None:
    """Raise OptionError unless each column asked for exists with that type."""
    for field in schema.fields:
        if field.name not in _MAKERS:
            raise OptionError(
                f"schema: there is no column {field.name}; there are {', '.join(_MAKERS)}"
            )
        kind = _MAKERS[field.name][0]
        if field.dataType.simpleString() != kind.simpleString():
            raise OptionError(f"schema: the column {field.name} is of type {kind.simpleString()}")


def arrow_batch(rows: Sequence[Row], schema: StructType) -> pa.RecordBatch:
    arrays = []
    for field in schema.fields:
        kind, make = _MAKERS[field.name]
        values = make(rows)
        is_made = isinstance(values, pa.Array)
        arrays.append(values if is_made else pa.array(values, ARROW_TYPES[kind.simpleString()]))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(schema))


def _timestamps(rows: Sequence[Row]) -> pa.Array:
    try:
        return instants([row.data[_TIMESTAMP] for row in rows])
    except pa.ArrowInvalid:  # damaged, which decode_stored says
        return instants([decode_stored(row.data).timestamp for row in rows])


def arrow_schema(schema: StructType) -> pa.Schema:
    return pa.schema(
        [(field.name, ARROW_TYPES[field.dataType.simpleString()]) for field in schema.fields]
    )


def instants(texts: Sequence[str | None]) -> pa.Array:
    """Times in the stored form, which has milliseconds and ``Z``."""
    return pa.array(texts, pa.string()).cast(INSTANT)

"""The columns of the data source. Turns stored rows into Arrow batches."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructType, TimestampType

from oplog_sync.arrow import INSTANT, arrow_schema, batch_of, instants
from oplog_sync.backend import StoreRow
from oplog_sync.errors import OptionError
from oplogd.model.event_id import Mark, format_id
from oplogd.store import decode_stored

# Position of the timestamp in the output of ``encode_data``.
_TIMESTAMP = slice(14, 38)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def event_id(row: StoreRow) -> str:
    """Return the event id of the row, or its replication id if an agent sent no offset (0)."""
    return format_id(Mark(row.offset, row.ms)) if row.offset else str(row.ms)


_MAKERS: dict[str, tuple[DataType, Callable[[Sequence[StoreRow]], Any]]] = {
    "event_id": (StringType(), lambda rows: [event_id(row) for row in rows]),
    "offset": (LongType(), lambda rows: [row.offset for row in rows]),
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


def full_schema() -> StructType:
    """Return all columns. States and operations have the same.

    A reader reads only the columns of its schema.
    """
    schema = StructType()
    for name, (kind, _) in _MAKERS.items():
        schema.add(name, kind)
    return schema


def check_schema(schema: StructType) -> None:
    """Raise OptionError unless each column of the schema exists and has that type."""
    for field in schema.fields:
        if field.name not in _MAKERS:
            raise OptionError(
                f"schema: there is no column {field.name}; the columns are {', '.join(_MAKERS)}"
            )
        kind = _MAKERS[field.name][0]
        if field.dataType.simpleString() != kind.simpleString():
            raise OptionError(f"schema: the column {field.name} is of type {kind.simpleString()}")


def arrow_batch(rows: Sequence[StoreRow], schema: StructType) -> pa.RecordBatch:
    columns = [_MAKERS[field.name][1](rows) for field in schema.fields]
    names = (f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
    return batch_of(columns, arrow_schema(", ".join(names)))


def _timestamps(rows: Sequence[StoreRow]) -> pa.Array:
    try:
        return instants([row.data[_TIMESTAMP] for row in rows])
    except pa.ArrowInvalid:  # damaged: decode_stored raises the error
        return instants([decode_stored(row.data).timestamp for row in rows])


def milliseconds(moment: datetime) -> int:
    """Return milliseconds since 1970, rounded down. A time without a zone is UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MILLISECOND

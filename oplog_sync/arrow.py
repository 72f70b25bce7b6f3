"""Arrow batches from rows or columns, with schemas in Spark's words, and times."""

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any

import pyarrow as pa

# Several chunks of rows.
_NEW_OBJECTS = 100_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

# Position of the parents in the output of ``encode_data``.
_PARENTS = len('{"timestamp":"2014-11-06T11:04:39.041Z","parents":')

INSTANT = pa.timestamp("us", tz="UTC")

_TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "timestamp": INSTANT,
    "boolean": pa.bool_(),
    "array<string>": pa.list_(pa.field("element", pa.string())),
}


def arrow_schema(columns: str) -> pa.Schema:
    """Return the schema of columns such as ``key string, offset bigint``."""
    return pa.schema([(name, _TYPES[kind]) for name, kind in map(str.split, columns.split(", "))])


def batch_of(columns: Iterable[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch of these columns. A column is a sequence of values or an Arrow array."""
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def columns_of(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> list[Sequence[Any]]:
    """Return the columns of rows, also if there is no row."""
    # Not zip(*rows): with ten thousand rows it takes ten times as long.
    return [list(map(itemgetter(number), rows)) for number in range(len(schema))]


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let Python seldom look for garbage in the block: the rows of a chunk hold no cycles."""
    before = gc.get_threshold()
    gc.set_threshold(_NEW_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def instants(times: Sequence[str | None]) -> pa.Array:
    """Return times in the stored form, with milliseconds and ``Z``, as instants."""
    return pa.array(times, pa.string()).cast(INSTANT)


def milliseconds(moment: datetime) -> int:
    """Return milliseconds since 1970, rounded down. A time without a zone is UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MILLISECOND


def parents_of(data: str) -> str:
    """Return the JSON list of parents in the output of ``encode_data``; fails if it is damaged."""
    # No text can hold the part behind the list: it has quotes without escapes.
    return data[_PARENTS : data.index('],"type":"', _PARENTS) + 1]

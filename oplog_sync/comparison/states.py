"""Read the states of a store as DataFrames, each range in a task."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import Accumulator
from pyspark.sql import DataFrame, SparkSession

from oplog_sync.arrow import (
    arrow_schema,
    batch_of,
    columns_of,
    instants,
    parents_of,
    rare_collections,
)
from oplog_sync.backend import Backend, Range, StoreRow, Wanted
from oplogd.model.operation import encode_data
from oplogd.store import decode_stored

# timestamp: microseconds since 1970.
WHOLE = "key string, live boolean, offset bigint, timestamp bigint, data string"
# parents: a JSON list.
NARROW = "key string, live boolean, timestamp bigint, parents string"

# Rows of a task.
_RANGE_ROWS = 250_000
# Together at most 8 MiB.
_LOOK_UP_ROWS = 128

# Position of the timestamp in the output of ``encode_data``.
_TIMESTAMP = slice(14, 38)

_Batches = Iterator[pa.RecordBatch]


def read_states(
    spark: SparkSession,
    backend: Backend,
    types: frozenset[str],
    columns: str,
    counter: Accumulator[int] | None = None,
) -> DataFrame:
    """Return all states of ``types`` (empty: all). ``columns``: WHOLE or NARROW.

    Raises StoreError. A task reads its range when it runs. ``counter`` counts the states read.
    """
    ranges = backend.state_ranges(_RANGE_ROWS)
    if not ranges:
        return no_states(spark, columns)
    numbers = spark.range(0, len(ranges), 1, len(ranges))
    return numbers.mapInArrow(_range_reader(backend, ranges, types, columns, counter), columns)


def find_states(keys: DataFrame, backend: Backend) -> DataFrame:
    """Return the states of the keys in the first column, with WHOLE."""
    schema = arrow_schema(WHOLE)

    def find(batches: Iterable[pa.RecordBatch]) -> _Batches:
        for batch in batches:
            wanted = batch.column(0).to_pylist()
            for first in range(0, len(wanted), _LOOK_UP_ROWS):
                yield _batch(backend.find(wanted[first : first + _LOOK_UP_ROWS]), schema)

    return keys.mapInArrow(find, WHOLE)


def no_states(spark: SparkSession, columns: str) -> DataFrame:
    return spark.createDataFrame([], columns)


def _range_reader(
    backend: Backend,
    ranges: Sequence[Range],
    types: frozenset[str],
    columns: str,
    counter: Accumulator[int] | None,
) -> Callable[[Iterable[pa.RecordBatch]], _Batches]:
    wanted = Wanted(types=types or None)
    schema = arrow_schema(columns)

    def read(batches: Iterable[pa.RecordBatch]) -> _Batches:
        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        with rare_collections():
            for number in numbers:
                for rows in backend.states(ranges[number], wanted):
                    if counter is not None:
                        counter.add(len(rows))
                    if types:  # the store may return more
                        rows = [row for row in rows if row.key.partition("/")[0] in types]
                    yield _batch(rows, schema)

    return read


def _batch(rows: Sequence[StoreRow], schema: pa.Schema) -> pa.RecordBatch:
    keys, events, offsets, _, contents = columns_of(rows, _STORE_ROW)
    live = [event == "insert" for event in events]
    columns: dict[str, Any] = {"key": keys, "live": live, "offset": offsets, "data": contents}
    columns["timestamp"] = _times(contents)
    if "parents" in schema.names:
        columns["parents"] = [_parents(data) for data in contents]
    return batch_of([columns[name] for name in schema.names], schema)


_STORE_ROW = arrow_schema("key string, event string, offset bigint, ms bigint, data string")


def _times(contents: Sequence[str]) -> pa.Array:
    try:
        times = instants([data[_TIMESTAMP] for data in contents])
    except pa.ArrowInvalid:  # damaged: decode_stored raises the error
        times = instants([decode_stored(data).timestamp for data in contents])
    return times.cast(pa.int64())


def _parents(data: str) -> str:
    try:
        return parents_of(data)
    except ValueError:  # not from ``encode_data``, or damaged: decode_stored raises the error
        found = decode_stored(data)
        return parents_of(encode_data(found.timestamp, found.parents, "t", "i").decode())

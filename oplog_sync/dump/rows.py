"""Check and normalise the JSON rows in Python, and explain the invalid ones."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame

from oplog_sync.arrow import arrow_schema, batch_of, columns_of, instants
from oplogd.errors import OperationError
from oplogd.model.operation import decode_row, encode_data

# The key of an invalid row. The key of an object begins with its type, which is never empty.
INVALID = "/"

# timestamp: microseconds since 1970. A local time would be ambiguous when clocks are set back.
# has_parents: the row names its parents; otherwise the store's parents remain.
SCHEMA = "key string, timestamp bigint, data string, has_parents boolean"

# file: a URL, empty if the dump is not a file. row: number of the row, from 1, after block, the
# position in the file at which Spark began to read.
INVALID_SCHEMA = "file string, block bigint, row bigint, reason string"

_ARROW_SCHEMA, _ARROW_INVALID = arrow_schema(SCHEMA), arrow_schema(INVALID_SCHEMA)
_INVALID_ROW = (INVALID, None, None, None)

# Returns why a row is at fault, or None.
_Fault = Callable[[bytes], str | None]


def normalised(raw: DataFrame, types: frozenset[str]) -> DataFrame:
    """Return rows with SCHEMA, only of ``types`` unless it is empty. Invalid rows stay."""
    wanted = raw.where("may_be_wanted").select("value", "flaw")
    return wanted.mapInArrow(partial(_normalise, types), SCHEMA)


def invalid_reason(raw: bytes) -> str | None:
    """Return why a row is invalid, None if it is valid."""
    try:
        decode_row(raw)
    except OperationError as error:
        return str(error)
    return None


def faulty_rows(raw: DataFrame, fault: _Fault = invalid_reason) -> DataFrame:
    """Return the rows with a fault, with INVALID_SCHEMA. Reads the dump again."""
    return raw.mapInArrow(partial(_explain, fault), INVALID_SCHEMA)


def rows_before(raw: DataFrame) -> dict[tuple[str, int], int]:
    """Return the rows before each file and block, as in INVALID_SCHEMA. Reads the dump again."""
    counted = raw.groupBy("file", "block").count().orderBy("file", "block").collect()
    before: dict[tuple[str, int], int] = {}
    seen: dict[str, int] = {}
    for file, block, count in counted:
        before[file, block] = seen.get(file, 0)
        seen[file] = before[file, block] + count
    return before


def _normalise(
    types: frozenset[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows: list[tuple[str, str | None, bytes | None, bool | None]] = []
        for raw, flaw in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if flaw is None and (not raw or raw.isspace()):
                continue
            try:
                row = decode_row(raw) if flaw is None else None
            except OperationError:
                row = None
            if row is None:
                rows.append(_INVALID_ROW)
            elif not types or row.type in types:
                data = encode_data(row.timestamp, row.parents or [], row.type, row.id)
                has_parents = row.parents is not None
                rows.append((f"{row.type}/{row.id}", row.timestamp, data, has_parents))
        keys, timestamps, contents, parents = columns_of(rows, _ARROW_SCHEMA)
        times = instants(timestamps).cast(pa.int64())
        yield batch_of([keys, times, contents, parents], _ARROW_SCHEMA)


def _explain(fault: _Fault, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    place: tuple[str, int] | None = None
    row = 0
    for batch in batches:
        found: list[tuple[str, int, int, str]] = []
        for values in batch.to_pylist():
            at = values["file"], values["block"]
            if at != place:
                place, row = at, 0
            row += 1
            raw, flaw = values["value"], values["flaw"]
            if flaw is not None:
                why = flaw if fault is invalid_reason else None
            else:
                why = fault(raw) if raw and not raw.isspace() else None
            if why is not None and values["may_be_wanted"]:
                found.append((*at, row, why))
        yield batch_of(columns_of(found, _ARROW_INVALID), _ARROW_INVALID)

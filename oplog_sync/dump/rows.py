"""Check and normalise the JSON rows in Python, and explain the invalid ones."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from oplog_sync.source.columns import instants
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

_ARROW_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("timestamp", pa.int64()),
        ("data", pa.string()),
        ("has_parents", pa.bool_()),
    ]
)
_INVALID_TYPES = (pa.string(), pa.int64(), pa.int64(), pa.string())

_Batches = Iterable[pa.RecordBatch]


def normalised(raw: DataFrame, types: frozenset[str]) -> DataFrame:
    """Return rows with SCHEMA, only of ``types`` unless it is empty. Invalid rows stay."""
    return raw.where("may_be_wanted").select("value", "flaw").mapInArrow(_normaliser(types), SCHEMA)


def invalid_reason(raw: bytes) -> str | None:
    """Return why a row is invalid, None if it is valid."""
    try:
        decode_row(raw)
    except OperationError as error:
        return str(error)
    return None


def faulty_rows(raw: DataFrame, fault: Callable[[bytes], str | None] = invalid_reason) -> DataFrame:
    """Return the rows with a fault, with INVALID_SCHEMA.

    Reads the dump again. ``fault`` returns a row's fault or None.
    """
    return raw.mapInArrow(_explainer(fault, fault is invalid_reason), INVALID_SCHEMA)


def rows_before(raw: DataFrame) -> dict[tuple[str, int], int]:
    """Return the number of rows before each position at which Spark began to read a file.

    Reads the dump again.
    """
    counted = raw.groupBy("file", "block").count().orderBy("file", "block").collect()
    before: dict[tuple[str, int], int] = {}
    seen: dict[str, int] = {}
    for file, block, count in counted:
        before[file, block] = seen.get(file, 0)
        seen[file] = before[file, block] + count
    return before


def _normaliser(types: frozenset[str]) -> Callable[[_Batches], Iterator[pa.RecordBatch]]:
    def normalise(batches: _Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            keys: list[str] = []
            timestamps: list[str | None] = []
            texts: list[bytes | None] = []
            has_parents: list[bool | None] = []
            for raw, flaw in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if flaw is None and (not raw or raw.isspace()):
                    continue
                try:
                    row = decode_row(raw) if flaw is None else None
                except OperationError:
                    row = None
                if row is None:
                    keys.append(INVALID)
                    timestamps.append(None)
                    texts.append(None)
                    has_parents.append(None)
                    continue
                if types and row.type not in types:
                    continue
                keys.append(f"{row.type}/{row.id}")
                timestamps.append(row.timestamp)
                texts.append(encode_data(row.timestamp, row.parents or [], row.type, row.id))
                has_parents.append(row.parents is not None)
            times = instants(timestamps).cast(pa.int64())
            columns = [
                pa.array(keys, pa.string()),
                times,
                pa.array(texts, pa.string()),
                pa.array(has_parents),
            ]
            yield pa.RecordBatch.from_arrays(
                [*columns[:3], columns[3].cast(pa.bool_())], schema=_ARROW_SCHEMA
            )

    return normalise


def _explainer(
    fault: Callable[[bytes], str | None], tells_flaws: bool
) -> Callable[[_Batches], Iterator[pa.RecordBatch]]:
    def reason(values: dict[str, Any]) -> str | None:
        raw, flaw = values["value"], values["flaw"]
        if not values["may_be_wanted"]:
            return None
        if flaw is not None:
            return str(flaw) if tells_flaws else None
        return fault(raw) if raw and not raw.isspace() else None

    def explain(batches: _Batches) -> Iterator[pa.RecordBatch]:
        place: tuple[str, int] | None = None
        row = 0
        for batch in batches:
            found: list[tuple[str, int, int, str]] = []
            for values in batch.to_pylist():
                at = values["file"], values["block"]
                if at != place:
                    place, row = at, 0
                row += 1
                if (why := reason(values)) is not None:
                    found.append((*at, row, why))
            arrays = [
                pa.array([line[i] for line in found], kind) for i, kind in enumerate(_INVALID_TYPES)
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=["file", "block", "row", "reason"])

    return explain

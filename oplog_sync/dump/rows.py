"""Check and normalise the JSON rows in Python, and explain the invalid ones."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Accumulator, Broadcast
from pyspark.sql import DataFrame

from oplog_sync.arrow import arrow_schema, batch_of, columns_of, instants, parents_of
from oplog_sync.dump.plain import PlainRows, plain_rows
from oplogd.errors import OperationError
from oplogd.model.operation import decode_row, encode_data

# The key of an invalid row. The key of an object begins with its type, which is never empty.
INVALID = "/"

# timestamp: microseconds since 1970. A local time would be ambiguous when clocks are set back.
# has_parents: the row names its parents; otherwise the store's parents remain.
WHOLE = "key string, timestamp bigint, data string, has_parents boolean"
# parents: a JSON list, null if the row names none.
NARROW = "key string, timestamp bigint, parents string"

# file: a URL, empty if the dump is not a file. row: number of the row, from 1, after block, the
# position in the file at which Spark began to read.
INVALID_SCHEMA = "file string, block bigint, row bigint, reason string"

_ARROW_INVALID = arrow_schema(INVALID_SCHEMA)

# Key, time in the stored form, data, and whether it names its parents.
_Row = tuple[str, str | None, str | None, bool | None]
_INVALID_ROW: _Row = (INVALID, None, None, None)

# The keys of a second read, on the workers.
Keys = Broadcast[frozenset[str]] | None

# Returns why a row is at fault, or None.
_Fault = Callable[[bytes], str | None]


def normalised(
    raw: DataFrame,
    types: frozenset[str],
    columns: str = WHOLE,
    keys: Keys = None,
    counter: Accumulator[int] | None = None,
) -> DataFrame:
    """Return the valid rows of ``types`` (empty: all), and invalid rows with the key INVALID.

    ``columns``: WHOLE or NARROW. ``keys``: only valid rows with these keys, None: all rows.
    ``counter`` counts the rows read.
    """
    wanted = raw.where("may_be_wanted").select("value", "flaw")
    return wanted.mapInArrow(partial(_normalise, types, columns, keys, counter), columns)


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
    types: frozenset[str],
    columns: str,
    keys: Keys,
    counter: Accumulator[int] | None,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(columns)
    only = None if keys is None else keys.value
    for batch in batches:
        if counter is not None:
            counter.add(batch.num_rows)
        lines, flaws = batch.columns
        flawed = len(flaws) - flaws.null_count
        plain, others = plain_rows(lines.filter(flaws.is_null()) if flawed else lines)
        if types:
            plain = plain.filter(pc.is_in(plain.types, pa.array(sorted(types), pa.string())))
        if only is not None:
            plain = plain.filter(
                pa.array([key in only for key in plain.keys().to_pylist()], pa.bool_())
            )
        yield _plain_batch(plain, schema)
        found = [_INVALID_ROW] * flawed
        found += [_decoded(raw) for raw in others.to_pylist() if raw and not raw.isspace()]
        yield _batch([row for row in found if _is_wanted(row, types, only)], schema)


def _decoded(raw: bytes) -> _Row:
    try:
        row = decode_row(raw)
    except OperationError:
        return _INVALID_ROW
    data = encode_data(row.timestamp, row.parents or [], row.type, row.id).decode()
    return f"{row.type}/{row.id}", row.timestamp, data, row.parents is not None


def _is_wanted(row: _Row, types: frozenset[str], only: Collection[str] | None) -> bool:
    if only is not None:
        return row[0] in only
    return not types or row[0] == INVALID or row[0].partition("/")[0] in types


def _plain_batch(rows: PlainRows, schema: pa.Schema) -> pa.RecordBatch:
    if "parents" in schema.names:
        return batch_of([rows.keys(), rows.times(), rows.parents], schema)
    columns = [rows.keys(), rows.times(), rows.contents(), rows.parents.is_valid()]
    return batch_of(columns, schema)


def _batch(rows: Sequence[_Row], schema: pa.Schema) -> pa.RecordBatch:
    keys, stamps, contents, has_parents = columns_of(rows, arrow_schema(WHOLE))
    times = instants(stamps).cast(pa.int64())
    if "parents" not in schema.names:
        return batch_of([keys, times, contents, has_parents], schema)
    parents = [None if not has else parents_of(data or "") for _, _, data, has in rows]
    return batch_of([keys, times, parents], schema)


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

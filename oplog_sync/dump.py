"""The dump as rows ``key, timestamp, data``, checked and normalised by the operation's own rules.

Every format is turned into one JSON object a row first, so that there is one way in. An invalid row becomes a row as well,
with a key no object can have: it travels along and is counted in the same pass. Where it is and what is wrong with it takes
another look at the dump, which a sound one is spared.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DateType, TimestampNTZType, TimestampType

from oplog_sync.errors import OptionError, SyncError
from oplog_sync.settings import Settings
from oplog_sync.source.columns import INSTANT, instants
from oplogd.errors import OperationError
from oplogd.operation import decode_row, encode_data

INVALID = "/"
"""The key of an invalid row; an object's key begins with its type, which is never empty."""

SCHEMA = "key string, timestamp timestamp, data string"

_ARROW_SCHEMA = pa.schema([("key", pa.string()), ("timestamp", INSTANT), ("data", pa.string())])
_INVALID_TYPES = (pa.string(), pa.int64(), pa.int64(), pa.string())
_MAGIC = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst"}


INVALID_SCHEMA = "file string, block bigint, row bigint, reason string"
"""``file`` is a URL, empty where the dump is no file; ``row`` counts from 1 past ``block``, the place in the file where
Spark began to read."""


def normalised(raw: DataFrame, types: frozenset[str]) -> DataFrame:
    """What ``raw_rows`` brought, with SCHEMA: only those types, none is all. Invalid rows stay in."""
    return raw.select("value").mapInArrow(_normaliser(types), SCHEMA)


def invalid_rows(raw: DataFrame) -> DataFrame:
    """The rows that are invalid, with INVALID_SCHEMA. Reads the dump once more."""
    return raw.mapInArrow(_explain_invalid, INVALID_SCHEMA)


def raw_rows(spark: SparkSession, settings: Settings, paths: list[str]) -> DataFrame:
    """Each row as JSON in bytes, the file it is from and where in that Spark began. Raises SyncError."""
    reader = spark.read.options(**dict(settings.options))
    try:
        if settings.format == "json":
            if any(name.lower() == "multiline" for name, _ in settings.options):
                raise OptionError("--option multiLine: a JSON dump holds one object a line")
            return _with_place(reader.text(paths), F.col("value"))
        if settings.format == "jdbc":
            return _json_rows(reader.format("jdbc").load())
        if settings.format == "csv" and not any(name.lower() == "header" for name, _ in settings.options):
            reader = reader.option("header", "true")
        return _json_rows(reader.format(settings.format).load(paths))
    except PySparkException as error:
        raise SyncError(f"the dump cannot be read: {str(error).splitlines()[0]}") from error


def spool(source: BinaryIO, folder: Path) -> str:
    """Standard input as a file that Spark can read; its compression is told by its first bytes."""
    head = source.read(4)
    suffix = next((name for magic, name in _MAGIC.items() if head.startswith(magic)), "")
    with tempfile.NamedTemporaryFile(dir=folder, prefix="stdin.", suffix=f".jsonl{suffix}", delete=False) as file:
        file.write(head)
        while chunk := source.read(1 << 20):
            file.write(chunk)
    return file.name


def rows_before(raw: DataFrame) -> dict[tuple[str, int], int]:
    """How many rows of a file stand before each place where Spark began. Reads the dump once more."""
    counted = raw.groupBy("file", "block").count().orderBy("file", "block").collect()
    before: dict[tuple[str, int], int] = {}
    seen: dict[str, int] = {}
    for file, block, count in counted:
        before[file, block] = seen.get(file, 0)
        seen[file] = before[file, block] + count
    return before


def _json_rows(rows: DataFrame) -> DataFrame:
    columns = {field.name: field.dataType for field in rows.schema.fields}
    for name in ("type", "id", "timestamp"):
        if name not in columns:
            raise SyncError(f"the dump has no column {name}; it needs type, id, timestamp and may have parents")
    timestamp = F.col("timestamp").cast("string")
    if isinstance(columns["timestamp"], TimestampType | TimestampNTZType | DateType):
        timestamp = F.date_format(F.col("timestamp").cast("timestamp"), "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")
    named = [F.col(name).cast("string").alias(name) for name in ("type", "id")]
    value = F.to_json(F.struct(*named, timestamp.alias("timestamp")))
    if "parents" in columns:
        # {"parents":[...],"type":... or, when all the rest is null, {"parents":[...]}
        rest = F.when(value == "{}", "}").otherwise(F.concat(F.lit(","), F.substring(value, 2, 1 << 30)))
        is_list = isinstance(columns["parents"], ArrayType)
        value = F.concat(F.lit('{"parents":'), _list(F.col("parents"), is_list), rest)
    return _with_place(rows, value)


def _list(parents: Column, is_list: bool) -> Column:
    """As JSON. A text is a JSON list, or else names with commas between."""
    if is_list:
        return F.coalesce(F.to_json(parents), F.lit("null"))
    text = F.trim(parents.cast("string"))
    return (
        F.when(text.isNull() | (text == ""), "null")
        .when(text.startswith("["), text)
        .otherwise(F.to_json(F.split(text, ",")))
    )


def _with_place(rows: DataFrame, value: Column) -> DataFrame:
    try:
        file, block = rows["_metadata.file_path"], rows["_metadata.file_block_start"]
    except PySparkException:  # not from files
        file, block = F.lit(""), F.lit(0)
    return rows.select(value.cast("binary").alias("value"), file.alias("file"), block.cast("bigint").alias("block"))


def _normaliser(types: frozenset[str]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def normalise(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            keys: list[str] = []
            timestamps: list[str | None] = []
            texts: list[bytes | None] = []
            for raw in batch.column("value").to_pylist():
                if not raw or raw.isspace():
                    continue
                try:
                    data = decode_row(raw)
                except OperationError:
                    keys.append(INVALID)
                    timestamps.append(None)
                    texts.append(None)
                    continue
                if types and data.type not in types:
                    continue
                keys.append(f"{data.type}/{data.id}")
                timestamps.append(data.timestamp)
                texts.append(encode_data(data.timestamp, data.parents, data.type, data.id))
            columns = [pa.array(keys, pa.string()), instants(timestamps), pa.array(texts, pa.string())]
            yield pa.RecordBatch.from_arrays(columns, schema=_ARROW_SCHEMA)

    return normalise


def _explain_invalid(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    place: tuple[str, int] | None = None
    row = 0
    for batch in batches:
        found: list[tuple[str, int, int, str]] = []
        for at, values in _runs(batch):
            if at != place:
                place, row = at, 0
            for raw in values:
                row += 1
                if raw and not raw.isspace():
                    try:
                        decode_row(raw)
                    except OperationError as error:
                        found.append((*at, row, str(error)))
        arrays = [pa.array([line[i] for line in found], kind) for i, kind in enumerate(_INVALID_TYPES)]
        yield pa.RecordBatch.from_arrays(arrays, names=["file", "block", "row", "reason"])


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, int], list[bytes | None]]]:
    """The rows of a batch by the part of a file they are from; nearly always that is one."""
    files, blocks, values = (batch.column(name) for name in ("file", "block", "value"))
    start, count = 0, batch.num_rows
    while start < count:
        place = (files[start].as_py(), blocks[start].as_py())
        end = count
        if (files[count - 1].as_py(), blocks[count - 1].as_py()) != place:
            end = start + 1
            while (files[end].as_py(), blocks[end].as_py()) == place:
                end += 1
        yield place, values.slice(start, end - start).to_pylist()
        start = end

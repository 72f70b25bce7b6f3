"""Append the rows of a DataFrame to the log as operations."""

import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StringType, StructType

from oplog_kit.wording import counted
from oplog_sync.apply import apply, count
from oplog_sync.backend import make_backend
from oplog_sync.errors import OptionError, SyncError
from oplog_sync.source.columns import milliseconds
from oplog_sync.source.options import SourceOptions
from oplog_sync.source.patience import patiently
from oplog_sync.source.place import Placed
from oplog_sync.topics.write import write_operations
from oplogd.clock import now_ms
from oplogd.errors import OperationError, StoreError
from oplogd.model.operation import decode, format_ms
from oplogd.store import Correction, CorrectionResult

_REQUIRED = {"event", "type", "id"}
_KNOWN = {*_REQUIRED, "timestamp", "parents", "expected_offset"}
# Columns of a read. In a write, which INSERT INTO a view fills up with them, they must be null.
_READ_ONLY = {"event_id", "offset", "key", "logged", "data"}


@dataclass
class Written(WriterCommitMessage):
    """The result of one task, in rows."""

    applied: int
    skipped: int


class OplogWriter(Placed, DataSourceArrowWriter):
    """Appends rows. A log has no rollback; docs/reference/spark.md explains retries."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options)
        names = set(schema.fieldNames())
        if missing := sorted(_REQUIRED - names):
            raise OptionError(
                f"column {missing[0]} is missing; a row needs {', '.join(sorted(_REQUIRED))}"
            )
        if unknown := sorted(names - _KNOWN - _READ_ONLY):
            raise OptionError(
                f"column {unknown[0]} is unknown; an operation has {', '.join(sorted(_KNOWN))}"
            )
        for field in schema.fields:
            if field.name in _REQUIRED and field.dataType != StringType():
                raise OptionError(
                    f"column {field.name}: it must be a string, not {field.dataType.simpleString()}"
                )
        if options.agent and "expected_offset" in names:
            raise OptionError(
                "column expected_offset: an agent does not compare offsets; write to the store"
            )
        self._store = options.location
        self._agents = options.agents() if options.agent else None
        self._retry = partial(patiently, retry_for=options.retry_for)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        rows = (_given(row) for batch in iterator for row in batch.to_pylist())
        if self._agents is not None:
            with closing(self._agents):
                return Written(write_operations(self._agents, rows, self._retry), 0)
        self.check_place()
        arrival = format_ms(_now_ms(self._store))
        counts = count(apply(self._store, (_correction(row, arrival) for row in rows)))
        skipped = sum(counts[each] for each in counts if each[2] is CorrectionResult.SKIPPED)
        return Written(counts.total() - skipped, skipped)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        written = [message for message in messages if isinstance(message, Written)]
        skipped = sum(message.skipped for message in written)
        if skipped:
            rows = counted(skipped + sum(message.applied for message in written), "row")
            _tell(
                f"skipped {skipped:,} of {rows}: their objects have changed since expected_offset"
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _tell("the write failed; operations that its tasks have appended stay in the log")


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends the batches of a streaming query. A repeated batch is appended again."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._writer = OplogWriter(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._writer.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._writer.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._writer.abort(messages)


def _tell(text: str) -> None:
    print(f"oplog: {text}", file=sys.stderr)


def _now_ms(store: str) -> int:
    """Return the guarded time of a store, or this machine's time if there is no store yet."""
    backend = make_backend(store)
    try:
        return backend.locate(0).now_ms if backend.exists() else now_ms()
    except StoreError:  # another task is about to create it; the write tells of any other trouble
        return now_ms()


def _given(row: dict[str, Any]) -> dict[str, Any]:
    """Return the columns that are not null. Raises SyncError for a column that is not written."""
    given = {name: value for name, value in row.items() if value is not None}
    if wrong := sorted(_READ_ONLY.intersection(given)):
        raise SyncError(f"column {wrong[0]}: it is set by the log and must be null in a write")
    return given


def _correction(given: dict[str, Any], arrival: str) -> Correction:
    """Turn a row into a correction. Raises SyncError if the row is no valid operation."""
    offset = given.pop("expected_offset", None)
    timestamp = given.get("timestamp")
    if isinstance(timestamp, datetime):
        given["timestamp"] = format_ms(milliseconds(timestamp))
    try:
        return Correction(decode(msgspec.json.encode(given), arrival), offset)
    except OperationError as error:
        raise SyncError(f"a row is no operation: {error}") from None

"""Emit the corrections: one task appends them and returns the verdict on each."""

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from oplog_kit.wording import counted
from oplog_sync.apply import PATIENCE_SECONDS, apply
from oplog_sync.arrow import arrow_schema, batch_of, columns_of
from oplog_sync.errors import SyncError
from oplog_sync.failure import reason
from oplog_sync.report import NOT_EMITTED, UNKNOWN, ObjectCounts, tell, write_report
from oplog_sync.settings import JobSettings
from oplogd.errors import StoreError
from oplogd.model.operation import Operation
from oplogd.store import Correction, CorrectionResult

PROGRESS_SECONDS = 5.0

# Verdict of a row without a correction. Its data is the message of the store's error.
_FAILED = "failed"

_SCHEMA = "action string, key string, data string, offset bigint, verdict string"
_ARROW_SCHEMA = arrow_schema(_SCHEMA)
_BATCH = 1000

_Rows = Iterator[pa.RecordBatch]


class EmissionProgress:
    """Print the progress of the emission every few seconds."""

    def __init__(self, wanted: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.done = 0
        self._wanted = wanted
        self._clock = clock
        self._reported = (clock(), 0)

    def add(self, count: int) -> None:
        self.done += count
        now, (reported_at, reported) = self._clock(), self._reported
        if now - reported_at >= PROGRESS_SECONDS:
            rate = (self.done - reported) / (now - reported_at)
            wanted = counted(self._wanted, "correction")
            tell(f"emitted {self.done:,} of {wanted}, {rate:,.0f} per second")
            self._reported = now, self.done


def emit(corrections: DataFrame, settings: JobSettings, counts: ObjectCounts) -> None:
    """Append the corrections, write the report, and count the skipped corrections.

    Raises SyncError if the store fails. The report is written first.
    """
    wanted = counts.corrections()
    # One task: all writers append at the same end of the log and would only block each other.
    # Sorted by key: SQLite writes each page of its index once.
    rows = corrections.select("action", "key", "data", "offset").coalesce(1)
    rows = rows.sortWithinPartitions("key")
    # Persisted: the report must not emit again. A second emission finds all corrections PRESENT.
    emitted = rows.mapInArrow(_emitter(settings, wanted), _SCHEMA).persist(StorageLevel.DISK_ONLY)
    try:
        groups = emitted.groupBy(F.substring_index("key", "/", 1), "action", "verdict")
        message = F.max(F.when(F.col("verdict") == _FAILED, F.col("data")))
        found = groups.agg(F.count("*"), message).collect()
        if settings.report is not None:
            _report_emitted(emitted.where(F.col("verdict") != _FAILED), settings.report)
    except PySparkException:
        if settings.report is not None:  # the task itself failed: no verdict is known
            write_report(corrections, settings.report, UNKNOWN)
        raise
    finally:
        emitted.unpersist()
    done = sum(count for _, _, verdict, count, _ in found if verdict in set(CorrectionResult))
    for type_, event, verdict, count, failure in found:
        if verdict == _FAILED:
            raise SyncError(
                f"{failure}; emitted {done:,} of {counted(wanted, 'correction')} before; run the "
                "job again for the rest"
            )
        if verdict == CorrectionResult.SKIPPED:
            counts.add(type_, event, -count)
            counts.add(type_, "skipped", count)


def _report_emitted(rows: DataFrame, path: str) -> None:
    try:
        write_report(rows, path)
    except PySparkException as error:
        raise SyncError(
            f"the corrections were emitted, but --report {path} cannot be written: {reason(error)}"
        ) from error


def _emitter(settings: JobSettings, wanted: int) -> Callable[[Iterable[pa.RecordBatch]], _Rows]:
    """Return the function of the task. Only a report needs the data back."""
    store, new, max_rate = settings.store, settings.new_log, settings.max_rate
    patience, with_data = PATIENCE_SECONDS, settings.report is not None

    def emit_all(batches: Iterable[pa.RecordBatch]) -> _Rows:
        progress = EmissionProgress(wanted)
        corrections = _corrections(batches)
        unjudged: list[Correction] = []

        def handed_over() -> Iterator[Correction]:
            for correction in corrections:
                unjudged.append(correction)
                yield correction

        try:
            for judged in apply(store, handed_over(), new, max_rate, patience):
                unjudged.clear()
                progress.add(len(judged))
                yield _arrow(judged, with_data)
        except StoreError as error:
            if progress.done == 0:
                raise  # nothing was emitted: Spark may retry on another machine
            failed = {"data": str(error), "verdict": _FAILED}
            yield pa.RecordBatch.from_pylist([failed], _ARROW_SCHEMA)
            yield _arrow([(correction, UNKNOWN) for correction in unjudged], with_data)
            while rest := list(islice(corrections, _BATCH)):
                yield _arrow([(correction, NOT_EMITTED) for correction in rest], with_data)

    return emit_all


def _corrections(batches: Iterable[pa.RecordBatch]) -> Iterator[Correction]:
    for batch in batches:
        columns = (column.to_pylist() for column in batch.columns)
        for event, key, data, offset in zip(*columns, strict=True):
            yield Correction(Operation(event, key, data.encode()), offset)


def _arrow(judged: Iterable[tuple[Correction, str]], with_data: bool) -> pa.RecordBatch:
    rows = [
        (event, key, data.decode() if with_data else None, offset, str(verdict))
        for ((event, key, data), offset), verdict in judged
    ]
    return batch_of(columns_of(rows, _ARROW_SCHEMA), _ARROW_SCHEMA)

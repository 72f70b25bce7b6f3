"""Emit the corrections: one task after another appends them and returns the verdict on each."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import islice, pairwise
from math import ceil

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

# Corrections of a task. Some more tasks are planned if the rate is limited.
SLICE_ROWS = 100_000
_MOST_SLICES = 200

# Verdict of a row without a correction. Its data is the message of the store's error.
_FAILED = "failed"

_SCHEMA = "action string, key string, data string, offset bigint, verdict string"
_ARROW_SCHEMA = arrow_schema(_SCHEMA)
_BATCH = 1000

_Rows = Iterator[pa.RecordBatch]


class EmissionProgress:
    """Print the progress of the emission every few seconds. ``wanted``: corrections in all."""

    def __init__(self, wanted: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.done = 0
        self.wanted = wanted
        self._clock = clock
        self._reported = (clock(), 0)

    def add(self, count: int) -> None:
        self.done += count
        now, (reported_at, reported) = self._clock(), self._reported
        if now - reported_at >= PROGRESS_SECONDS:
            rate = (self.done - reported) / (now - reported_at)
            wanted = counted(self.wanted, "correction")
            tell(f"emitted {self.done:,} of {wanted}, {rate:,.0f} per second")
            self._reported = now, self.done


def emit(corrections: DataFrame, settings: JobSettings, counts: ObjectCounts) -> None:
    """Append the corrections, write the report, and count the skipped corrections.

    Raises SyncError if the store fails. The report is written first.
    """
    progress = EmissionProgress(counts.corrections())
    persisted: list[DataFrame] = []

    def kept(frame: DataFrame) -> DataFrame:
        persisted.append(frame)
        return frame.persist(StorageLevel.DISK_ONLY)

    slices = _slices(corrections, progress.wanted, settings.max_rate, kept)
    try:
        _emit(slices, settings, counts, progress, kept)
    finally:
        for frame in persisted:
            frame.unpersist()


def _emit(
    slices: Sequence[DataFrame],
    settings: JobSettings,
    counts: ObjectCounts,
    progress: EmissionProgress,
    kept: Callable[[DataFrame], DataFrame],
) -> None:
    judged: list[DataFrame] = []

    def report(begun: DataFrame | None = None) -> None:
        if settings.report is None:
            return
        left = slices[len(judged) + (begun is not None) :]
        unjudged = [each.withColumn("verdict", F.lit(NOT_EMITTED)) for each in left]
        if begun is not None:
            unjudged.insert(0, begun.withColumn("verdict", F.lit(UNKNOWN)))
        _report_emitted(reduce(DataFrame.unionByName, [*judged, *unjudged]), settings.report)

    for rows in slices:
        emitted = rows.mapInArrow(_emitter(settings, is_first=not judged), _SCHEMA)
        if settings.report is not None:
            emitted = kept(emitted)  # the report must not emit again, and find all PRESENT
        try:
            failure = _count(emitted, counts, progress)
        except PySparkException:  # the task itself failed: no verdict is known
            report(rows)
            raise
        judged.append(emitted.where(F.col("verdict") != _FAILED))
        if failure is not None:
            report()
            raise SyncError(
                f"{failure}; emitted {progress.done:,} of {counted(progress.wanted, 'correction')} "
                "before; run the job again for the rest"
            )
    report()


def _count(emitted: DataFrame, counts: ObjectCounts, progress: EmissionProgress) -> str | None:
    """Emit, and count the verdicts. Return the message of the store's error, if it has failed."""
    groups = emitted.groupBy(F.substring_index("key", "/", 1), "action", "verdict")
    message = F.max(F.when(F.col("verdict") == _FAILED, F.col("data")))
    failure: str | None = None
    done = 0
    for type_, event, verdict, count, text in groups.agg(F.count("*"), message).collect():
        if verdict in set(CorrectionResult):
            done += count
        if verdict == CorrectionResult.SKIPPED:
            counts.add(type_, event, -count)
            counts.add(type_, "skipped", count)
        failure = failure or text
    progress.add(done)
    return failure


def _slices(
    corrections: DataFrame,
    wanted: int,
    max_rate: int | None,
    kept: Callable[[DataFrame], DataFrame],
) -> list[DataFrame]:
    """Return the corrections in parts that take seconds each, all in the order of keys.

    SQLite writes each page of its index once in this order. Only the driver can show the progress
    on a cluster, and it hears from a task at its end. A slice is one task: all writers append at
    the same end of the log and would only block each other.
    """
    rows = corrections.select("action", "key", "data", "offset")
    size = SLICE_ROWS if max_rate is None else min(int(max_rate * PROGRESS_SECONDS), SLICE_ROWS)
    count = min(ceil(wanted / max(size, 1)), _MOST_SLICES)
    if count <= 1:
        return [rows.coalesce(1).sortWithinPartitions("key")]
    # Sorted: the cache skips what does not belong to a slice.
    ranged = kept(rows.repartitionByRange(count, "key").sortWithinPartitions("key"))
    lowest = ranged.groupBy(F.spark_partition_id()).agg(F.min("key")).collect()
    bounds = [None, *sorted(key for _, key in lowest)[1:], None]
    key = F.col("key")
    return [
        ranged.where(F.lit(low is None) | (key >= low))
        .where(F.lit(high is None) | (key < high))
        .coalesce(1)
        .sortWithinPartitions("key")
        for low, high in pairwise(bounds)
    ]


def _report_emitted(rows: DataFrame, path: str) -> None:
    try:
        write_report(rows, path)
    except PySparkException as error:
        raise SyncError(
            f"the corrections were emitted, but --report {path} cannot be written: {reason(error)}"
        ) from error


def _emitter(
    settings: JobSettings, *, is_first: bool
) -> Callable[[Iterable[pa.RecordBatch]], _Rows]:
    """Return the function of the task. Only a report needs the data back."""
    store, new, max_rate = settings.store, settings.new_log, settings.max_rate
    patience, with_data = PATIENCE_SECONDS, settings.report is not None

    def emit_all(batches: Iterable[pa.RecordBatch]) -> _Rows:
        corrections = _corrections(batches)
        unjudged: list[Correction] = []
        has_done = False

        def handed_over() -> Iterator[Correction]:
            for correction in corrections:
                unjudged.append(correction)
                yield correction

        try:
            for judged in apply(store, handed_over(), new, max_rate, patience):
                unjudged.clear()
                has_done = True
                yield _arrow(judged, with_data)
        except StoreError as error:
            if is_first and not has_done and not with_data:
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

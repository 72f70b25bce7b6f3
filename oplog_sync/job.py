"""The job: read, compare, refuse what is unsafe, emit, tell."""

import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from oplog_sync.apply import apply
from oplog_sync.backend import NewLog, make_backend
from oplog_sync.diff import CORRECTIONS, STATE_COLUMNS, compare, decide
from oplog_sync.dump import faulty_rows, normalised, raw_rows, rows_before, spool
from oplog_sync.errors import EXIT_EMPTY_DUMP, EXIT_INVALID_ROWS, EXIT_TOO_MANY_DELETES, RefusedError, SyncError
from oplog_sync.failure import translating
from oplog_sync.report import NO_TYPE, Counts, check_report, stage, tell, write_report
from oplog_sync.session import utc
from oplog_sync.settings import Settings
from oplog_sync.source import check_master, register
from oplog_sync.source.options import read_options
from oplogd.operation import Operation
from oplogd.store import Correction, Verdict

SHOWN_INVALID_ROWS = 10

_VERDICTS = "type string, event string, verdict string, count bigint"


def run(spark: SparkSession, settings: Settings) -> Counts:
    """Bring the store to the dump's state. Raises SyncError and StoreError; RefusedError where a safety rule says no."""
    with translating(), utc(spark), tempfile.TemporaryDirectory(prefix="oplog-sync.") as folder:
        return _run(spark, settings, Path(folder))


def _run(spark: SparkSession, settings: Settings, folder: Path) -> Counts:
    register(spark)
    master = spark.sparkContext.master or ""
    check_master(read_options({"store": settings.store}), master)
    if settings.report is not None:
        check_report(spark, settings.report)
    raw = raw_rows(spark, settings, _paths(settings, master, folder))
    compared = compare(_states(spark, settings), normalised(raw, settings.types)).persist(StorageLevel.DISK_ONLY)
    try:
        with stage("comparing the dump with the store"):
            is_invalid = F.col("action") == "invalid"
            whole = compared.agg(F.max("in_dump"), F.sum(F.when(is_invalid, F.col("count")))).first()
        assert whole is not None
        newest, invalid = whole
        if invalid:
            _show_invalid(raw, invalid, "line" if settings.format == "json" else "row")
            if not settings.skip_invalid:
                raise RefusedError(
                    EXIT_INVALID_ROWS,
                    f"{invalid:,} rows of the dump are invalid, so nothing was emitted; mend them, or leave them out "
                    "with --skip-invalid (an object that only they name then counts as absent)",
                )
        if newest is None and not settings.force:
            raise RefusedError(
                EXIT_EMPTY_DUMP,
                "the dump has no row to compare, so nothing was emitted; if that is right, give --force",
            )
        decided = decide(compared, newest)
        counts, live = _count(decided)
        deletes = counts.total("delete")
        corrections = decided.where(F.col("action").isin(*CORRECTIONS))
        if settings.report is not None:
            with stage(f"writing the report {settings.report}"):
                write_report(corrections, settings.report)
        if not settings.max_deletes.allows(deletes, live):
            raise RefusedError(
                EXIT_TOO_MANY_DELETES,
                f"{deletes:,} of {live:,} live objects would be deleted, more than --max-deletes {settings.max_deletes}"
                f" allows, so nothing was emitted; if the dump is complete, give --max-deletes {deletes}",
            )
        wanted = sum(counts.total(action) for action in CORRECTIONS)
        if settings.dry_run:
            tell(f"dry run: {wanted:,} corrections were not emitted")
        elif wanted:
            with stage(f"emitting {wanted:,} corrections"):
                _emit(corrections, settings, counts)
        return counts
    finally:
        compared.unpersist()


def _paths(settings: Settings, master: str, folder: Path) -> list[str]:
    if settings.dumps != ("-",):
        return list(settings.dumps)
    if not master.startswith("local"):
        raise SyncError(f"-: the executors of {master} cannot read this machine's standard input; name a file they can")
    return [spool(sys.stdin.buffer, folder)]


def _states(spark: SparkSession, settings: Settings) -> DataFrame:
    """The states to compare with. A store that is not there yet has none; emitting creates it."""
    backend = make_backend(settings.store)
    if not backend.exists():
        tell(f"{backend.name}: there is no oplog yet")
        return spark.createDataFrame([], STATE_COLUMNS)
    backend.check()
    if not settings.dry_run:
        backend.settle()
    reader = spark.read.format("oplog").option("store", settings.store)
    if not settings.types:
        return reader.schema(STATE_COLUMNS).load()
    # This DataFrame serves one query: see Options.push_filters.
    states = reader.option("pushFilters", "true").schema(f"{STATE_COLUMNS}, type string").load()
    return states.where(F.col("type").isin(*settings.types)).drop("type")


def _count(decided: DataFrame) -> tuple[Counts, int]:
    """Objects by type and action, and how many live ones of the store were compared."""
    counts = Counts({})
    live = 0
    groups = decided.groupBy("type", "action").agg(F.sum("count"), F.sum("live"))
    for type_, action, count, alive in groups.collect():
        counts.add(type_ or NO_TYPE, action, count)
        live += alive
    return counts, live


def _emit(corrections: DataFrame, settings: Settings, counts: Counts) -> None:
    """Append the corrections, and count as skipped those whose object has changed."""
    # One task: a log has one end, and several writers would only take it from each other.
    rows = corrections.coalesce(1).select("action", "key", "data", "n")
    for type_, event, verdict, count in rows.mapInArrow(
        _applier(settings.store, settings.new_log), _VERDICTS
    ).collect():
        if verdict == Verdict.SKIPPED:
            counts.add(type_, event, -count)
            counts.add(type_, "skipped", count)


def _applier(store: str, new: NewLog) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def apply_part(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts = apply(store, _corrections(batches), new)
        rows = [(*group, count) for group, count in counts.items()]
        types = (pa.string(), pa.string(), pa.string(), pa.int64())
        arrays = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(types)]
        yield pa.RecordBatch.from_arrays(arrays, names=["type", "event", "verdict", "count"])

    return apply_part


def _corrections(batches: Iterable[pa.RecordBatch]) -> Iterator[Correction]:
    for batch in batches:
        for event, key, data, n in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield Correction(Operation(event, key, data.encode()), n)


def _show_invalid(raw: DataFrame, count: int, word: str) -> None:
    """Where the first invalid rows are and what is wrong with them."""
    first = faulty_rows(raw).orderBy("file", "block", "row").limit(SHOWN_INVALID_ROWS).collect()
    before = rows_before(raw) if any(block for _, block, _, _ in first) else {}
    for file, block, row, reason in first:
        path = re.sub(r"^file:/+", "/", unquote(file))
        where = f"{path}, {word} {before.get((file, block), 0) + row}: " if file else ""
        tell(f"invalid: {where}{reason}")
    if count > len(first):
        tell(f"and {count - len(first):,} more invalid rows")

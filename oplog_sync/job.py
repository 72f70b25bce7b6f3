"""The job: read the dump, compare, apply the safety rules, emit, report."""

import sys
import tempfile
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from oplog_kit.wording import counted
from oplog_sync.backend import Backend, make_backend
from oplog_sync.comparison import Comparison, Look
from oplog_sync.comparison.diff import CORRECTIONS, decide
from oplog_sync.dump.local import is_small
from oplog_sync.dump.reading import raw_rows
from oplog_sync.dump.rows import faulty_rows, rows_before
from oplog_sync.dump.stdin import spool
from oplog_sync.emit import emit
from oplog_sync.errors import (
    EXIT_EMPTY_DUMP,
    EXIT_FUTURE_ROWS,
    EXIT_INVALID_ROWS,
    OptionError,
    SafetyRuleError,
    SyncError,
)
from oplog_sync.failure import shown_path, translating
from oplog_sync.guard import (
    CLOCK_TOLERANCE_SECONDS,
    TypeCounts,
    dated_after,
    refuse_excess,
    refuse_old,
)
from oplog_sync.report import (
    NO_TYPE,
    NOT_EMITTED,
    ObjectCounts,
    check_report,
    stage,
    tell,
    write_report,
)
from oplog_sync.session import utc
from oplog_sync.settings import JobSettings
from oplog_sync.source import check_master
from oplog_sync.source.options import read_options
from oplogd.clock import now_ms
from oplogd.model.operation import format_ms

SHOWN_ROWS = 10


def run(spark: SparkSession, settings: JobSettings) -> ObjectCounts:
    """Bring the store to the dump's state.

    Raises SyncError, StoreError, and SafetyRuleError if a safety rule stops the run.
    """
    with translating(), utc(spark), tempfile.TemporaryDirectory(prefix="oplog-sync.") as folder:
        return _run(spark, settings, Path(folder))


def _run(spark: SparkSession, settings: JobSettings, folder: Path) -> ObjectCounts:
    master = spark.sparkContext.master or ""
    check_master(read_options({"store": settings.store}), master)
    if settings.report is not None:
        check_report(spark, settings.report)
    raw = raw_rows(spark, settings, _paths(settings, master, folder))
    backend = _opened(settings)
    small = is_small(settings.arguments)
    with Comparison(spark, raw, backend, settings.types, is_small=small) as comparison:
        with stage("comparing the dump with the store"), comparison.progress.shown():
            look = comparison.look()
        newest = _newest(raw, look, settings)
        decided = decide(comparison.rows(), newest)
        with comparison.progress.shown():
            counts, found = _count(decided)
        _tell_missing(found, settings.types)
        corrections = decided.where(F.col("action").isin(*CORRECTIONS))
        try:
            if backend is not None and not settings.allow_old_dump:
                newest_ms = None if newest is None else newest // 1000
                refuse_old(found, newest_ms, backend.locate(0).purged_ms)
            refuse_excess(found, settings.max_deletes, settings.max_changes)
        except SafetyRuleError:
            _report(corrections, settings)
            raise
        wanted = counts.corrections()
        if settings.dry_run or not wanted:
            _report(corrections, settings)
        if settings.dry_run:
            tell(f"dry run: {counted(wanted, 'correction')} not emitted")
        elif wanted:
            with stage(f"emitting {counted(wanted, 'correction')}"):
                emit(corrections, settings, counts)
        return counts


def _newest(raw: DataFrame, look: Look, settings: JobSettings) -> int | None:
    """Return the time of the dump's newest row in microseconds since 1970; None: unknown.

    Raises SafetyRuleError for invalid rows, an empty dump and rows in the future.
    """
    newest, invalid, _ = look
    row_word = "line" if settings.format == "json" and settings.table is None else "row"
    if invalid:
        _show(raw, faulty_rows(raw), "invalid", row_word)
        if not settings.skip_invalid:
            raise SafetyRuleError(
                EXIT_INVALID_ROWS,
                f"the dump has {counted(invalid, 'invalid row')}, so nothing was emitted; "
                "correct the dump, or skip such rows with --skip-invalid (an object that has "
                "only invalid rows then counts as absent)",
            )
    if newest is None and not settings.force:
        raise SafetyRuleError(
            EXIT_EMPTY_DUMP,
            "the dump has no row to compare, so nothing was emitted; "
            "if this is correct, give --force",
        )
    now = now_ms()
    latest = now + CLOCK_TOLERANCE_SECONDS * 1000
    if newest is not None and newest // 1000 > latest:
        ahead = dated_after(format_ms(latest), settings.types)
        _show(raw, faulty_rows(raw, ahead), "in the future", row_word)
        if not settings.force:
            raise SafetyRuleError(
                EXIT_FUTURE_ROWS,
                f"the newest row of the dump is dated {format_ms(newest // 1000)}, but it is "
                f"{format_ms(now)} by this machine's clock, so nothing was emitted; correct the "
                "dump or the clock, or give --force (then nothing is deleted)",
            )
        return None
    return newest


def _paths(settings: JobSettings, master: str, folder: Path) -> list[str]:
    if settings.arguments != ("-",):
        return list(settings.arguments)
    if not master.startswith("local"):
        raise SyncError(
            f"-: the executors of {master} cannot read this machine's standard input; name a file "
            "that they can read"
        )
    return [spool(sys.stdin.buffer, folder)]


def find_store(settings: JobSettings) -> Backend | None:
    """Return the store, or None if it is missing and the run may create it.

    Raises OptionError for a missing store without --create, and for an unusable URL.
    """
    backend = make_backend(settings.store)
    if backend.exists():
        return backend
    if not settings.create:
        name = "--store" if settings.mongo_url is None else "--mongo-url"
        raise OptionError(f"{name}: there is no oplog at {backend.name}; --create makes a new one")
    return None


def _opened(settings: JobSettings) -> Backend | None:
    """Return the store to compare with, None if it is missing: the emission creates it."""
    backend = find_store(settings)
    if backend is None:
        tell(f"{make_backend(settings.store).name}: there is no oplog yet")
        return None
    backend.check()
    if not settings.dry_run:
        backend.settle()
    return backend


def _count(decided: DataFrame) -> tuple[ObjectCounts, dict[str, TypeCounts]]:
    """Count the objects by type and action, and by type for the safety rules."""
    counts = ObjectCounts({})
    by_type: dict[str, TypeCounts] = defaultdict(TypeCounts)
    has_rows = F.max("in_dump").isNotNull()
    groups = decided.groupBy("type", "action").agg(F.sum("count"), F.sum("live"), has_rows)
    for type_, action, count, live, is_in_dump in groups.collect():
        counts.add(type_ or NO_TYPE, action, count)
        if not type_:
            continue
        found = by_type[type_]
        found.live += live
        found.has_rows |= is_in_dump
        if action in CORRECTIONS:
            found.corrections[action] = count
    return counts, by_type


def _tell_missing(found: Mapping[str, TypeCounts], types: Collection[str]) -> None:
    """Print the types without rows or objects: forgotten or misspelt."""
    for type_, each in sorted(found.items()):
        if each.live and not each.has_rows:
            live = counted(each.live, "live object")
            tell(f"the dump has no row of type {type_}; the store has {live} of it")
    for type_ in sorted(set(types) - set(found)):
        tell(f"--types: neither the dump nor the store has objects of type {type_}")


def _report(corrections: DataFrame, settings: JobSettings) -> None:
    """Write the report, with all corrections not emitted."""
    if settings.report is not None:
        with stage(f"writing the report {settings.report}"):
            write_report(corrections, settings.report, NOT_EMITTED)


def _show(raw: DataFrame, rows: DataFrame, label: str, word: str) -> None:
    """Print the places and faults of the first of these rows."""
    first = rows.orderBy("file", "block", "row").limit(SHOWN_ROWS + 1).collect()
    before = rows_before(raw) if any(block for _, block, _, _ in first) else {}
    for file, block, row, reason in first[:SHOWN_ROWS]:
        number = before.get((file, block), 0) + row
        place = f"{shown_path(unquote(file))}, {word} {number}: " if file else ""
        tell(f"{label}: {place}{reason}")
    if len(first) > SHOWN_ROWS:
        tell(f"and more rows that are {label}")

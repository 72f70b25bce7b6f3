"""The emission: order, rate, progress and verdicts."""

import itertools
import re
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from oplog_sync import emit
from oplog_sync.apply import apply, count
from oplog_sync.errors import SafetyRuleError, SyncError
from oplogd.model.operation import Operation, encode_data
from oplogd.store import Correction, CorrectionResult
from tests.kits.spark.helpers import StorePlace, append, log, operation, row, sync, write_dump

T1, T2 = "2020-01-01T00:00:00.000Z", "2020-01-02T00:00:00.000Z"


def insert(number: int) -> Correction:
    return Correction(
        Operation("insert", f"video/{number}", encode_data(T1, [], "video", str(number))), 0
    )


def break_store(store: Path, when: str) -> None:
    """Let the store refuse entries under a condition in SQL."""
    with closing(sqlite3.connect(store)) as db:
        db.execute(
            f"CREATE TRIGGER broken BEFORE INSERT ON ops WHEN {when} BEGIN SELECT "
            "RAISE(ABORT, 'broken'); END"
        )


def verdicts(spark: SparkSession, report: Path) -> Counter[tuple[str, str]]:
    found = spark.read.json(str(report)).groupBy("event", "verdict").count().collect()
    return Counter({(each.event, each.verdict): each["count"] for each in found})


@pytest.mark.parametrize("slice_rows", [100_000, 700])
def test_corrections_are_emitted_in_the_order_of_keys_and_the_driver_tells_the_progress(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    slice_rows: int,
) -> None:
    monkeypatch.setattr(emit, "SLICE_ROWS", slice_rows)
    monkeypatch.setattr(emit, "PROGRESS_SECONDS", 0.0)
    store = tmp_path / "oplog.db"
    append(store, [operation("insert", "video", str(n), T1) for n in range(100)])
    dump = write_dump(tmp_path / "dump.jsonl", [row("video", str(n), T2) for n in range(20, 3000)])
    assert sync(spark, "--store", store, "--max-changes", "100%", dump).total("delete") == 20
    keys = [entry.data.split('"id":')[1] for entry in log(store, after=100)]
    assert len(keys) == 3000
    assert keys == sorted(keys)
    told = re.findall(r"emitted ([\d,]+) of 3,000 corrections", capsys.readouterr().err)
    assert len(told) == (1 if slice_rows > 3000 else 5)
    assert told[-1] == "3,000"


def test_the_report_has_the_verdict_on_each_correction(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, report = tmp_path / "oplog.db", tmp_path / "report.jsonl"
    append(store, [operation("insert", "video", str(n), T1) for n in range(10)])
    dump = write_dump(
        tmp_path / "dump.jsonl",
        [row("video", str(n), T2) for n in range(8)] + [row("user", "1", T1)],
    )
    sync(spark, "--store", store, "--dry-run", "--report", tmp_path / "dry.jsonl", dump)
    planned = {
        ("insert", "not emitted"): 1,
        ("update", "not emitted"): 8,
        ("delete", "not emitted"): 2,
    }
    assert verdicts(spark, tmp_path / "dry.jsonl") == planned
    with pytest.raises(SafetyRuleError):
        sync(
            spark,
            "--store",
            store,
            "--max-deletes",
            "1",
            "--report",
            tmp_path / "refused.jsonl",
            dump,
        )
    assert verdicts(spark, tmp_path / "refused.jsonl") == planned

    from oplog_sync import job

    def emit_late(*args: object) -> None:
        # Before the emission, one object changes, and another gets the same operation as its
        # correction.
        append(
            store,
            [operation("update", "video", "3", T2, "other"), operation("update", "video", "4", T2)],
        )
        emit.emit(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(job, "emit", emit_late)
    counts = sync(spark, "--store", store, "--report", report, dump)
    assert (counts.total("update"), counts.total("skipped")) == (7, 1)
    assert verdicts(spark, report) == {
        ("insert", "applied"): 1,
        ("update", "applied"): 6,
        ("update", "skipped"): 1,
        ("update", "present"): 1,
        ("delete", "applied"): 2,
    }
    (skipped,) = spark.read.json(str(report)).where("verdict = 'skipped'").collect()
    assert (skipped.type, skipped.id, skipped.timestamp, skipped.parents, skipped.offset) == (
        "video",
        "3",
        T2,
        [],
        4,
    )
    assert len(log(store)) == 10 + 2 + 9


def test_the_report_is_right_if_the_emission_fails_between_slices(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emit, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(emit, "SLICE_ROWS", 100)
    store, report = tmp_path / "oplog.db", tmp_path / "report.jsonl"
    append(store, [operation("insert", "video", "0", T1)])
    break_store(store, "NEW.data LIKE '%n0500%'")
    dump = write_dump(tmp_path / "dump.jsonl", [row("video", f"n{n:04}", T2) for n in range(1000)])
    with pytest.raises(SyncError, match=r"broken .*; emitted \d+ of 1,001 corr") as raised:
        sync(spark, "--store", store, "--max-deletes", "1", "--report", report, dump)
    done = len(log(store)) - 1
    assert 300 < done <= 501
    assert f"emitted {done} of" in str(raised.value)
    found = verdicts(spark, report)
    applied = found["insert", "applied"] + found["delete", "applied"]
    assert (applied, found["delete", "applied"], sum(found.values())) == (done, 1, 1001)
    assert 1 <= found["insert", "unknown"] <= 250
    order = spark.read.json(str(report)).orderBy("id").collect()
    ranks = [("applied", "unknown", "not emitted").index(each.verdict) for each in order]
    assert ranks == sorted(ranks)


@pytest.mark.parametrize("emitted", [0, 500])
def test_the_report_is_right_if_the_emission_fails_midway(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, emitted: int
) -> None:
    monkeypatch.setattr(emit, "PATIENCE_SECONDS", 0.0)
    store, report = tmp_path / "oplog.db", tmp_path / "report.jsonl"
    append(store, [operation("insert", "video", "old", T1)])
    break_store(store, f"NEW.seq > {emitted + 100}")
    dump = write_dump(tmp_path / "dump.jsonl", [row("video", f"{n:05}", T2) for n in range(2000)])
    with pytest.raises(
        SyncError, match=rf"broken .*; emitted {emitted} of 2,001 corrections before; run the job"
    ):
        sync(spark, "--store", store, "--max-deletes", "1", "--report", report, dump)
    assert verdicts(spark, report) == Counter({
        ("insert", "applied"): emitted, ("insert", "unknown"): 250,
        ("insert", "not emitted"): 1750 - emitted, ("delete", "not emitted"): 1,
    })  # fmt: skip
    done = spark.read.json(str(report)).where("verdict = 'applied'").orderBy("id").collect()
    assert [each.id for each in done] == [f"{number:05}" for number in range(emitted)]
    assert len(log(store)) == 1 + emitted
    with closing(sqlite3.connect(store)) as db:
        db.execute("DROP TRIGGER broken")
    counts = sync(spark, "--store", store, "--max-deletes", "1", dump)
    assert (counts.total("insert"), counts.total("delete")) == (2000 - emitted, 1)


def test_a_report_that_cannot_be_written_stops_the_run_before_it_emits(
    spark: SparkSession, tmp_path: Path
) -> None:
    dump = write_dump(tmp_path / "dump.jsonl", [row("video", "1")])
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(SyncError, match=r"--report .*file/report: cannot write there"):
        sync(spark, "--store", tmp_path / "oplog.db", "--report", file / "report", dump)
    assert not (tmp_path / "oplog.db").exists()


def test_max_rate_is_kept(place: StorePlace) -> None:
    started = time.monotonic()
    done = count(apply(str(place.store), (insert(n) for n in range(60)), max_rate=40))
    assert done == {("video", "insert", CorrectionResult.APPLIED): 60}
    assert time.monotonic() - started >= 60 / 40


def test_a_batch_of_large_corrections_is_short(tmp_path: Path) -> None:
    parents = [f"{number:0250}" for number in range(200)]
    large = [
        Correction(Operation("insert", f"a/{n}", encode_data(T1, parents, "a", str(n))), 0)
        for n in range(100)
    ]
    batches = [len(judged) for judged in apply(str(tmp_path / "oplog.db"), large)]
    assert batches == [42, 42, 16]  # of 50 KB each, so about 2 MiB


def test_progress_is_told_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    clock = itertools.count()  # a second for each look
    progress = emit.EmissionProgress(20_000, lambda: float(next(clock)))
    for _ in range(12):
        progress.add(1500)
    assert capsys.readouterr().err.splitlines() == [
        "oplog-sync: emitted 7,500 of 20,000 corrections, 1,500 per second",
        "oplog-sync: emitted 15,000 of 20,000 corrections, 1,500 per second",
    ]


def test_rows_clustered_by_object_are_appended_in_the_order_of_a_column(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = tmp_path / "oplog.db"
    changes = (
        spark.range(4000)
        .selectExpr(
            "IF(id % 7 = 3, 'delete', 'update') AS event",
            "'video' AS type",
            "CAST(id % 50 AS string) AS id",
            "id AS changed_at",
        )
        .orderBy(F.rand(3))
    )
    clustered = changes.repartition(4, "type", "id").sortWithinPartitions("changed_at")
    rows = clustered.selectExpr("event", "type", "id", "timestamp_millis(changed_at) AS timestamp")
    rows.write.format("oplog").option("store", str(store)).mode("append").save()
    orders: dict[str, list[str]] = {}
    for entry in log(store):
        timestamp, id_ = entry.data[14:38], entry.data.split('"id":')[1]
        orders.setdefault(id_, []).append(timestamp)
    assert len(orders) == 50
    assert all(len(order) == 80 and order == sorted(order) for order in orders.values())

"""Refused runs: their messages and exit codes."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from oplog_sync import session
from oplog_sync.cli import main
from oplog_sync.errors import (
    OptionError,
    SafetyRuleError,
    SyncError,
)
from oplog_sync.jvm import check_java
from oplog_sync.settings import command as oplog_sync
from oplog_sync.source import check_master
from oplog_sync.source.options import read_options
from oplogd.errors import StoreError
from tests.kits.spark.helpers import append, live, log, operation, row, sync, write_dump

Command = Callable[..., int]

T1, T2 = "2020-01-01T00:00:00.000Z", "2020-01-02T00:00:00.000Z"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Ten live objects."""
    store = tmp_path / "oplog.db"
    append(store, [operation("insert", "video", str(n), T1) for n in range(10)])
    return store


def test_more_deletes_than_allowed_emit_nothing(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    dump = write_dump(tmp_path / "dump.jsonl", [row("video", str(n), T2) for n in range(7)])
    with pytest.raises(SafetyRuleError, match="3 of 10 live objects would be deleted") as refused:
        sync(spark, "--store", store, dump)
    assert refused.value.exit_code == 3
    assert len(log(store)) == 10
    dump = write_dump(tmp_path / "dump.jsonl", [row("video", str(n), T2) for n in range(8)])
    assert sync(spark, "--store", store, dump).total("delete") == 2  # exactly 20 %


def test_invalid_rows_emit_nothing_and_are_named(
    spark: SparkSession, store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a dump"
    folder.mkdir()
    lines = [b'{"type":"video","id":"0","timestamp":"2020-01-02T00:00:00Z"}', b"", b"   "]
    lines += [
        b'{"type":"video","id":7,"timestamp":"2020-01-02T00:00:00Z"}',
        b'{"type":"a/b","id":"1"}',
        b"\xff",
    ]
    lines += [
        b'{"type":"a/b","id":"1","timestamp":"2020-01-02T00:00:00Z"}',
        b'{"type":"a","id":"1","timestamp":"no"}',
    ]
    lines += [b"[]"] * 8
    (folder / "part-1.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(SafetyRuleError, match="the dump has 13 invalid rows") as refused:
        sync(spark, "--store", store, folder)
    assert refused.value.exit_code == 4
    assert len(log(store)) == 10
    told = [
        line
        for line in capfd.readouterr().err.splitlines()
        if line.startswith("oplog-sync: invalid: ")
    ]
    file = folder / "part-1.jsonl"
    assert told[:5] == [
        f"oplog-sync: invalid: {file}, line 4: id: must be a string, not a number",
        f"oplog-sync: invalid: {file}, line 5: timestamp: is required",
        f"oplog-sync: invalid: {file}, line 6: operation: is not UTF-8 (byte 0)",
        f"oplog-sync: invalid: {file}, line 7: type: must not contain '/' or ','",
        f"oplog-sync: invalid: {file}, line 8: timestamp: not an RFC 3339 time such as "
        "2014-11-06T11:04:39.041Z",
    ]
    assert len(told) == 10
    counts = sync(spark, "--store", store, "--skip-invalid", "--max-deletes", "9", folder)
    assert (counts.total("invalid"), counts.total("update"), counts.total("delete")) == (13, 1, 9)


def test_an_invalid_line_deep_in_a_large_file_is_named_by_its_line(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    good = b'{"type":"video","id":"0","timestamp":"2020-01-02T00:00:00Z"}\n'
    (tmp_path / "dump.jsonl").write_bytes(good * 3000 + b"bad\n" + good * 10)
    spark.conf.set("spark.sql.files.maxPartitionBytes", "20000")
    spark.conf.set("spark.sql.files.openCostInBytes", "1000")
    try:
        with pytest.raises(SafetyRuleError):
            sync(spark, "--store", tmp_path / "oplog.db", tmp_path / "dump.jsonl")
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
        spark.conf.unset("spark.sql.files.openCostInBytes")
    assert f"{tmp_path}/dump.jsonl, line 3001: " in capfd.readouterr().err


def test_an_empty_dump_needs_force_and_deletes_nothing(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    dump = write_dump(tmp_path / "dump.jsonl.gz", [])
    with pytest.raises(SafetyRuleError, match="--force") as refused:
        sync(spark, "--store", store, dump)
    assert refused.value.exit_code == 5
    assert sync(spark, "--store", store, "--force", dump).total("untouched") == 10
    assert len(log(store)) == 10


def test_a_dry_run_does_all_but_emit(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    dump = write_dump(
        tmp_path / "dump.jsonl",
        [row("video", str(n), T2, "p") for n in range(9)] + [row("x", "1", T1)],
    )
    report = tmp_path / "report.jsonl"
    counts = sync(spark, "--store", store, "--dry-run", "--report", report, dump)
    assert [counts.total(name) for name in ("insert", "update", "delete")] == [1, 9, 1]
    assert len(log(store)) == 10
    rows = spark.read.json(str(report)).collect()
    found = sorted((r.event, r.type, r.id, r.timestamp, r.parents) for r in rows)
    assert found[0] == ("delete", "video", "9", T1, [])
    assert found[1] == ("insert", "x", "1", T1, [])
    assert found[2:] == [("update", "video", str(n), T2, ["p"]) for n in range(9)]
    with pytest.raises(SyncError, match="already exists"):
        sync(spark, "--store", store, "--report", report, dump)
    sync(spark, "--store", store, "--report", tmp_path / "report", dump)
    assert spark.read.parquet(str(tmp_path / "report")).count() == 11
    assert len(log(store)) == 21


def test_a_missing_store_is_refused_without_create_and_not_created(
    spark: SparkSession, tmp_path: Path
) -> None:
    dump = write_dump(tmp_path / "dump.jsonl", [row("video", "1")])
    for flags in ([], ["--dry-run"]):
        with pytest.raises(
            OptionError, match=r"^--store: there is no oplog at .*typo.db; --create"
        ):
            sync(spark, "--store", tmp_path / "typo.db", *flags, dump, create=False)
        assert not (tmp_path / "typo.db").exists()
    sync(spark, "--store", tmp_path / "oplog.db", dump)
    sync(spark, "--store", tmp_path / "oplog.db", dump, create=False)
    assert list(live(tmp_path / "oplog.db")) == ["video/1"]


def test_a_dry_run_creates_no_store(spark: SparkSession, tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "dump.jsonl", [row("video", "1")])
    assert sync(spark, "--store", tmp_path / "new.db", "--dry-run", dump).total("insert") == 1
    assert not (tmp_path / "new.db").exists()


def test_a_missing_dump_and_a_file_that_is_no_store_are_named(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    with pytest.raises(SyncError, match=r"the dump cannot be read: .*missing"):
        sync(spark, "--store", store, tmp_path / "missing.jsonl")
    other = write_dump(tmp_path / "dump.jsonl", [row("video", "1")])
    with pytest.raises(StoreError, match=r"dump.jsonl: it cannot be read"):
        sync(spark, "--store", other, other)


def test_a_sqlite_store_is_refused_if_executors_are_on_other_machines() -> None:
    with pytest.raises(OptionError, match="executors of spark://master:7077 cannot read"):
        check_master(read_options({"store": "oplog.db"}), "spark://master:7077")
    check_master(read_options({"store": "oplog.db"}), "local[4]")


def test_a_missing_java_is_said_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(
        SyncError, match="Spark needs Java 17 or later, and there is no Java; install one"
    ):
        check_java()


def test_a_report_may_lie_beside_the_dump() -> None:
    for dump in ("/x/*.jsonl.gz", "/x/dump", "-", "s3a://x/report.jsonl"):
        settings = oplog_sync().parse(["--report", "/x/report.jsonl", dump], {})
        assert settings.report == "/x/report.jsonl"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "name the dump"),
        (["--format", "xml", "x"], "--format: 'xml' is not one of json, parquet, orc, csv, jdbc"),
        (["--format", "jdbc", "x"], "--option url=..."),
        (["--max-deletes", "many", "x"], "--max-deletes: 'many' is neither a number"),
        (["--option", "header", "x"], "--option: must be NAME=VALUE"),
        (
            ["--mongo-url", "user:secret@host", "x"],
            "--mongo-url: the URL must begin with mongodb://",
        ),
        (["--store", "a", "--mongo-url", "mongodb://b", "x"], "exclude each other"),
        (["--log-collection", "plain", "x"], "--log-collection needs --mongo-url as well"),
        (
            ["--mongo-url", "mongodb://user:secret@host/db?w=secret&ssl=maybe", "x"],
            "--mongo-url (host): one of its",
        ),
        (["--capped-collection-size", "12", "x"], "--capped-collection-size: '12' is not a size"),
        (["--types", "a,,b", "x"], "--types: 'a,,b' holds an empty type"),
        (["-", "x"], "standard input is read as JSON lines"),
        (["--report", "x/report.jsonl", "x/"], "--report: it lies in the dump"),
        (["--report", "/x/report.jsonl", "/x/*.jsonl"], "--report: it lies in the dump"),
        (["--report", "s3a://b/x/y/report", "s3a://b/*/"], "--report: it lies in the dump"),
        (["--store", "/no/such.db", "x"], "--store: there is no oplog at /no/such.db; --create"),
        (["--mongo-url-file", "/no/such", "x"], "--mongo-url-file: cannot read '/no/such'"),
        (["--option", "password=secret"], "name the dump"),
        (["--sore", "x"], "unknown argument --sore; did you mean --store?"),
    ],
)
def test_wrong_flags_leave_2_and_one_sentence(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        main(argv)
    assert exited.value.code == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.startswith("oplog-sync: ")
    assert told.count("\n") == 1
    assert "secret" not in told


@pytest.fixture
def command(spark: SparkSession, store: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return the command on the store as a function that returns the exit code."""
    monkeypatch.setattr(session, "start", lambda *_: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda self: None)  # it is the session of all tests

    def run(*argv: str | Path) -> int:
        with pytest.raises(SystemExit) as exited:
            main(["--store", str(store), *map(str, argv)])
        assert isinstance(exited.value.code, int)
        return exited.value.code

    return run


def test_the_command_leaves_the_exit_code_and_prints_the_table(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = write_dump(tmp_path / "dump.jsonl", [row("video", "1", T2)])
    assert command(dump) == 3
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines()[-1].startswith("oplog-sync: 9 of 10 live objects would be deleted")
    assert command("--max-deletes", "9", dump) == 0
    figures = capsys.readouterr().out.splitlines()[1].split()
    assert figures == ["video", "0", "1", "9", "0", "0", "0", "0"]
    assert command(tmp_path / "missing") == 1
    assert "the dump cannot be read" in capsys.readouterr().err


def test_debug_shows_the_traces_of_python_and_java(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dump.csv.gz").write_bytes(gzip.compress(b"id,type")[:14])
    assert command("--debug", "--format", "csv", tmp_path / "dump.csv.gz") == 1
    told = capsys.readouterr().err
    assert "Traceback" in told
    assert "Caused by: " in told

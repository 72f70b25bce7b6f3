"""Columns of many types in Parquet files, CSV files and databases."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from oplog_sync.dump.reading import raw_rows
from oplog_sync.errors import SyncError
from oplog_sync.jvm import java_class
from oplog_sync.settings import command
from tests.integration.spark.dumps.dumps import WITHOUT_ZONE, without_zone, write_csv, write_parquet
from tests.kits.spark.helpers import (
    append,
    dump_state,
    live,
    log,
    objects_of,
    operation,
    read_dump,
    refusal,
    row,
    sync,
)

T = "2020-01-01T00:00:00.000Z"


def _table(path: Path, **columns: Any) -> Path:
    rows = len(columns["id"])
    pq.write_table(pa.table({"type": ["video"] * rows, "timestamp": [T] * rows, **columns}), path)
    return path


def test_ids_are_whole_numbers_or_text(spark: SparkSession, tmp_path: Path) -> None:
    parquet = ("--format", "parquet")
    numbers = pa.array([Decimal(7), Decimal("7.5")], pa.decimal128(38, 10))
    file = _table(tmp_path / "decimal.parquet", id=numbers)
    assert read_dump(spark, *parquet, file) == (
        dump_state([row("video", "7", T)]),
        [f"{file}, 2: id: is not a whole number"],
    )
    file = _table(tmp_path / "float.parquet", id=[7.0])
    assert "column id holds floating-point numbers" in refusal(spark, *parquet, file)
    file = _table(tmp_path / "two.parquet", id=["7"], ID=["8"])
    assert "there are two columns `id` in upper and lower case" in refusal(spark, *parquet, file)
    text = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xe9")]
    )
    file = _table(tmp_path / "latin.parquet", id=text)
    assert read_dump(spark, *parquet, file) == ({}, [f"{file}, 1: id: is not UTF-8"])


def test_text_may_be_written_as_bytes_of_utf_8(spark: SparkSession, tmp_path: Path) -> None:
    parquet, binary = ("--format", "parquet"), pa.binary()
    lists = pa.array([[b"user/\xc3\xa9", b"b"], [b"a", b"\xe9"]], pa.list_(binary))
    ids = pa.array([b"\xc3\xa9", b"1"], binary)
    file = _table(tmp_path / "bytes.parquet", id=ids, parents=lists)
    assert read_dump(spark, *parquet, file) == (
        dump_state([row("video", "é", T, "user/é", "b")]),
        [f"{file}, 2: parents: is not UTF-8"],
    )
    file = _table(tmp_path / "uuid.parquet", id=pa.array([b"\x8f\xff" * 8], pa.binary(16)))
    assert read_dump(spark, *parquet, file) == ({}, [f"{file}, 1: id: is not UTF-8"])


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("id", {"a": 1}, "struct<a:bigint>"),
        ("id", ["a"], "array<string>"),
        ("parents", {"a": "b"}, "struct<a:string>"),
        ("parents", [{"a": "b"}], "array<struct<a:string>>"),
    ],
)
def test_a_column_of_structures_is_refused(
    spark: SparkSession, tmp_path: Path, name: str, value: Any, kind: str
) -> None:
    file = _table(tmp_path / "a.parquet", **{"id": ["1"], name: [value]})
    sentence = f"the dump's column {name} is of type {kind}; write it as text"
    assert sentence in refusal(spark, "--format", "parquet", file)


def test_a_time_outside_the_years_1_to_9999_is_invalid(spark: SparkSession, tmp_path: Path) -> None:
    times = pa.array([-62135596800000001], pa.timestamp("us", "UTC"))
    file = _table(tmp_path / "a.parquet", id=["1"], timestamp=times)
    fault = f"{file}, 1: timestamp: out of range: the years are 1 to 9999"
    assert read_dump(spark, "--format", "parquet", file) == ({}, [fault])


def test_a_dump_without_parents_leaves_objects_theirs(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "oplog.db"
    append(store, [operation("insert", "video", str(number), T, "kept") for number in range(3)])
    newer = "2020-01-02T00:00:00.000Z"
    rows = [row("video", "0"), row("video", "1", newer), row("video", "new", newer)]
    dump = write_parquet(
        tmp_path / "dump.parquet", [*rows, row("video", "2", T)], without="parents"
    )
    for found in ([1, 1, 2], [0, 0, 4]):
        counts = sync(spark, "--store", store, "--format", "parquet", dump)
        assert [counts.total(name) for name in ("insert", "update", "untouched")] == found
    expected = [
        row("video", "0", T, "kept"),
        row("video", "1", newer, "kept"),
        row("video", "2", T, "kept"),
        rows[2],
    ]
    assert live(store) == dump_state(expected)


def test_a_change_of_parents_alone_is_corrected_once(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "oplog.db"
    append(store, [operation("insert", "video", str(number), T, "a", "b") for number in range(3)])
    rows = [row("video", "0", T, "b", "a"), row("video", "1", T, "a", "c"), row("video", "2", T)]
    dump = write_parquet(tmp_path / "dump.parquet", rows)
    for updates in (2, 0):
        assert sync(spark, "--store", store, "--format", "parquet", dump).total("update") == updates
    assert live(store) == dump_state([row("video", "0", T, "a", "b"), *rows[1:]])
    assert len(log(store)) == 5


def test_a_database_table_with_upper_case_columns_and_local_times(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = "org.apache.derby.iapi.jdbc.AutoloadedDriver"
    zones = java_class("java.util.TimeZone")
    before = zones.getDefault()
    url = f"jdbc:derby:{tmp_path}/derby;create=true"
    connection = java_class(driver)().connect(url, java_class("java.util.Properties")())
    statement = connection.createStatement()
    statement.executeUpdate(
        "CREATE TABLE dump (id INT, type VARCHAR(9), timestamp TIMESTAMP, parents VARCHAR(99))"
    )
    statement.executeUpdate(
        "INSERT INTO dump VALUES (7, 'Video', '2021-07-01 01:30:00.123', 'a,b')"
    )
    statement.executeUpdate("INSERT INTO dump VALUES (8, 'User', '2021-07-01 01:30:00.123', 'a,b')")
    connection.close()
    options = [f"url={url}", "dbtable=dump", f"driver={driver}"]
    argv = [
        "--format",
        "jdbc",
        *(argument for option in options for argument in ("--option", option)),
    ]
    try:
        zones.setDefault(zones.getTimeZone("America/New_York"))
        wanted = dump_state([row("video", "7", "2021-07-01T01:30:00.123Z", "a", "b")])
        assert objects_of(spark, "--types", "VIDEO", *argv) == wanted
        assert zones.getDefault().getID() == "America/New_York"
        # On a cluster the job cannot set Java's time zone, and raw_rows alone does not set it.
        rows = raw_rows(spark, command().parse(argv, {}), []).select("flaw").collect()
        flaw = rows[0].flaw
        assert flaw.startswith(
            "timestamp: America/New_York is the executors' time zone; give spark-submit --conf"
        )
    finally:
        zones.setDefault(before)
    argv = [
        "--format",
        "jdbc",
        "--option",
        "url=jdbc:postgresql://h/x?password=s3cret",
        "--option",
        "dbtable=d",
    ]
    with pytest.raises(SyncError, match="Spark lacks the database's JDBC driver"):
        sync(spark, "--store", tmp_path / "oplog.db", *argv)


def test_no_setting_of_the_platform_changes_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        row("video", "1", "0001-01-01T00:00:00.000Z", "a"),
        row("video", "2", "2021-07-01T01:30:00.000Z"),
    ]
    settings = {
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
        "spark.sql.caseSensitive": "true",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.jsonGenerator.ignoreNullFields": "false",
        "spark.sql.columnNameOfCorruptRecord": "id",
        "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
        "spark.sql.parquet.mergeSchema": "false",
        "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
        "spark.sql.csv.parser.columnPruning.enabled": "true",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.legacy.timeParserPolicy": "LEGACY",
    }
    before = {name: spark.conf.get(name, None) for name in settings}
    quotes = ["--option", 'escape="', "--option", "inferSchema=true"]
    dumps: list[list[str | Path]] = [
        ["--format", "parquet", write_parquet(tmp_path / "zone.parquet", rows)],
        ["--format", "parquet", write_parquet(tmp_path / "ntz.parquet", rows, WITHOUT_ZONE)],
        ["--format", "csv", *quotes, write_csv(tmp_path / "text.csv", rows)],
        ["--format", "csv", *quotes, write_csv(tmp_path / "naive.csv", rows, time=without_zone)],
    ]
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        for argv in dumps:
            assert objects_of(spark, *argv) == dump_state(rows), argv
        assert spark.conf.get("spark.sql.session.timeZone") == "America/New_York"
    finally:
        for name, saved in before.items():
            if saved is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, saved)

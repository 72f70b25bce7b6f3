"""Rows of tables: CSV, databases, and columns of many types."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from oplog_sync.dump import raw_rows
from oplog_sync.errors import SyncError
from oplog_sync.settings import parse
from tests.sync.dumps import WITHOUT_ZONE, without_zone, write_csv, write_parquet
from tests.sync.helpers import StorePlace, append, dump_state, live, log, operation, row, sync
from tests.sync.test_dump_files import put, refusal, state_after

T = "2020-01-01T00:00:00.000Z"
CSV = ("--format", "csv")


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("id,type,timestamp\n1,video,{T}\n2,video,{T},more\n", [], "row 2: it has more or fewer fields"),
        ("id,type,timestamp\n1,video,{T}\n2,video\n", [], "row 2: it has more or fewer fields"),
        ('id,type,timestamp\n"x""y",video,{T}\n', [], "row 1: id: holds a quote or a backslash; say with --option escape"),
        ('id,type,timestamp\n"a\\\\b",video,{T}\n', [], "row 1: id: holds a quote or a backslash"),
        ('id,type,timestamp,parents\n1,video,{T},"[""a""]"\n', [], "row 1: parents: holds a quote"),
        ('id,type,timestamp,parents\n1,video,{T},"[""a"",""b""]"\n', [], "row 1: it has more or fewer fields"),
        ("id,type,timestamp\n\u00e9,video,{T}\n", [], "row 1: id: is not UTF-8; --option encoding="),
        ("id,type,timestamp\n1,video,2020-01-01 00:00:00\n2,video,soon\n", ["inferSchema=true"], "row 1: timestamp: not an RFC"),
        ("id,type,timestamp\n1,video,2020-01-01 00:00:00\n", [], "row 1: timestamp: not an RFC 3339 time"),
    ],
)  # fmt: skip
def test_a_line_of_csv_that_may_mean_something_else_is_invalid(
    spark: SparkSession,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    text: str,
    options: list[str],
    reason: str,
) -> None:
    dump = put(tmp_path / "dump.csv", text.replace("{T}", T).encode("latin-1"))
    given = [argument for option in options for argument in ("--option", option)]
    assert "of the dump are invalid" in refusal(spark, tmp_path, *CSV, *given, dump)
    assert f"dump.csv, {reason}" in capfd.readouterr().err


def test_csv_says_how_it_is_written(spark: SparkSession, tmp_path: Path) -> None:
    text = 'ID,type,timestamp,parents\n"x""y",video,{T},"[""a"",""b,c""]"\n"a\\b",video,{T},"d,e"\n007,video,{T},[]\n'
    dump = put(
        tmp_path / "dump.csv",
        b"\xef\xbb\xbf" + text.replace("{T}", T).replace("\n", "\r\n").encode(),
    )
    wanted = dump_state(
        [
            row("video", 'x"y', T, "a", "b,c"),
            row("video", "a\\b", T, "d", "e"),
            row("video", "007", T),
        ]
    )
    for more in ([], ["--option", "inferSchema=true"]):
        assert state_after(spark, tmp_path, *CSV, "--option", 'escape="', *more, dump) == wanted
    latin = put(tmp_path / "latin.csv", f"id,type,timestamp\n\u00e9,video,{T}\n".encode("latin-1"))
    found = state_after(spark, tmp_path, *CSV, "--option", "encoding=ISO-8859-1", latin)
    assert found == dump_state([row("video", "\u00e9", T)])


def test_a_csv_file_with_another_header_is_named(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "dump/1.csv", f"id,type,timestamp\n1,video,{T}\n".encode())
    for header, line in (
        ("type,id,timestamp", f"video,2,{T}"),
        ("id,type", "2,video"),
        (f"2,video,{T}", "3,video,x"),
    ):
        put(tmp_path / "dump/2.csv", f"{header}\n{line}\n".encode())
        assert "csv has another header than the other files" in refusal(
            spark, tmp_path, *CSV, tmp_path / "dump"
        )
    put(tmp_path / "dump/2.csv", b"id,type,timestamp\n")
    assert list(state_after(spark, tmp_path, *CSV, tmp_path / "dump")) == ["video/1"]


def test_a_column_of_csv_may_have_no_name(spark: SparkSession, tmp_path: Path) -> None:
    rows = [row("video", str(number), T) for number in range(3)]
    text = "".join(f"{number},video,{number},{T},[]\n" for number in range(3))
    for number, header in enumerate(
        (",type,id,timestamp,parents", "_c0,type,id,timestamp,parents")
    ):
        file = put(tmp_path / f"{number}.csv", f"{header}\n{text}".encode())
        assert state_after(spark, tmp_path, *CSV, file) == dump_state(rows)
        put(tmp_path / f"dump{number}/1.csv", f"{header}\n{text}".encode())
        put(tmp_path / f"dump{number}/2.csv", f"n,type,id,timestamp,parents\n{text}".encode())
        assert "csv has another header than the other files" in refusal(
            spark, tmp_path, *CSV, tmp_path / f"dump{number}"
        )


def _table(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table({"type": ["video"], "timestamp": [T], **columns}), path)
    return path


def test_ids_are_whole_numbers_or_text(spark: SparkSession, tmp_path: Path) -> None:
    parquet = ("--format", "parquet")
    decimal = pa.decimal128(38, 10)
    file = _table(tmp_path / "decimal.parquet", id=pa.array([Decimal(7)], decimal))
    assert state_after(spark, tmp_path, *parquet, file) == dump_state([row("video", "7", T)])
    file = _table(tmp_path / "half.parquet", id=pa.array([Decimal("7.5")], decimal))
    assert "1 rows of the dump are invalid" in refusal(spark, tmp_path, *parquet, file)
    file = _table(tmp_path / "float.parquet", id=[7.0])
    assert "column id holds floating-point numbers" in refusal(spark, tmp_path, *parquet, file)
    file = _table(tmp_path / "two.parquet", id=["7"], ID=["8"])
    assert "it has two columns `id`" in refusal(spark, tmp_path, *parquet, file)
    text = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xe9")]
    )
    file = _table(tmp_path / "latin.parquet", id=text)
    assert "1 rows of the dump are invalid" in refusal(spark, tmp_path, *parquet, file)


def test_text_may_be_written_as_bytes_of_utf_8(spark: SparkSession, tmp_path: Path) -> None:
    parquet, binary = ("--format", "parquet"), pa.binary()
    lists = pa.array([[b"user/\xc3\xa9", b"b"]], pa.list_(binary))
    file = _table(tmp_path / "bytes.parquet", id=pa.array([b"\xc3\xa9"], binary), parents=lists)
    assert state_after(spark, tmp_path, *parquet, file) == dump_state(
        [row("video", "é", T, "user/é", "b")]
    )
    file = _table(tmp_path / "uuid.parquet", id=pa.array([b"\x8f\xff" * 8], pa.binary(16)))
    assert "1 rows of the dump are invalid" in refusal(spark, tmp_path, *parquet, file)
    file = _table(
        tmp_path / "latin.parquet", id=["1"], parents=pa.array([[b"a", b"\xe9"]], pa.list_(binary))
    )
    assert "1 rows of the dump are invalid" in refusal(spark, tmp_path, *parquet, file)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("id", {"a": 1}, "struct<a:bigint>"),
        ("id", ["a"], "array<string>"),
        ("parents", {"a": "b"}, "struct<a:string>"),
        ("parents", [{"a": "b"}], "array<struct<a:string>>"),
    ],
)
def test_a_column_that_is_no_text_is_refused(
    spark: SparkSession, tmp_path: Path, name: str, value: Any, kind: str
) -> None:
    file = _table(tmp_path / "a.parquet", **{"id": ["1"], name: [value]})
    sentence = f"the dump's column {name} is of type {kind}; write it as text"
    assert sentence in refusal(spark, tmp_path, "--format", "parquet", file)


def test_a_time_beyond_the_years_1_to_9999_is_invalid(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = _table(
        tmp_path / "a.parquet",
        id=["1"],
        timestamp=pa.array([-62135596800000001], pa.timestamp("us", "UTC")),
    )
    assert "1 rows of the dump are invalid" in refusal(spark, tmp_path, "--format", "parquet", file)
    assert "row 1: timestamp: out of range: the years are 1 to 9999" in capfd.readouterr().err


def test_a_dump_without_parents_leaves_objects_theirs(
    spark: SparkSession, tmp_path: Path, place: StorePlace
) -> None:
    store = place.store
    append(store, [operation("insert", "video", str(number), T, "kept") for number in range(3)])
    newer = "2020-01-02T00:00:00.000Z"
    rows = [row("video", "0"), row("video", "1", newer), row("video", "new", newer)]
    dump = write_parquet(
        tmp_path / "dump.parquet", [*rows, row("video", "2", T)], without="parents"
    )
    for found in ([1, 1, 2], [0, 0, 4]):
        counts = sync(spark, *place.argv, "--format", "parquet", dump)
        assert [counts.total(name) for name in ("insert", "update", "untouched")] == found
    expected = [
        row("video", "0", T, "kept"),
        row("video", "1", newer, "kept"),
        row("video", "2", T, "kept"),
        rows[2],
    ]
    assert live(store) == dump_state(expected)


def test_a_change_of_parents_alone_is_corrected_once(
    spark: SparkSession, tmp_path: Path, place: StorePlace
) -> None:
    store = place.store
    append(store, [operation("insert", "video", str(number), T, "a", "b") for number in range(3)])
    rows = [row("video", "0", T, "b", "a"), row("video", "1", T, "a", "c"), row("video", "2", T)]
    dump = write_parquet(tmp_path / "dump.parquet", rows)
    for updates in (2, 0):
        assert sync(spark, *place.argv, "--format", "parquet", dump).total("update") == updates
    assert live(store) == dump_state([row("video", "0", T, "a", "b"), *rows[1:]])
    assert len(log(store)) == 5


def test_a_table_of_a_database_with_upper_case_columns_and_local_times(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = "org.apache.derby.iapi.jdbc.AutoloadedDriver"
    assert spark._jvm is not None
    zones = spark._jvm.java.util.TimeZone
    before = zones.getDefault()
    url = f"jdbc:derby:{tmp_path}/derby;create=true"
    connection = spark._jvm.org.apache.derby.iapi.jdbc.AutoloadedDriver().connect(
        url, spark._jvm.java.util.Properties()
    )
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
        assert state_after(spark, tmp_path, "--types", "VIDEO", *argv) == wanted
        assert zones.getDefault().getID() == "America/New_York"
        # On a cluster the job cannot set Java's zone: raw_rows alone does not either.
        (flaw, *_) = (
            row.flaw for row in raw_rows(spark, parse(argv, {}), []).select("flaw").collect()
        )
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


def test_no_setting_of_the_platform_changes_what_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [
        row("video", "1", "0001-01-01T00:00:00.000Z", "a"),
        row("video", "2", "2021-07-01T01:30:00.000Z"),
    ]
    settings = {
        "spark.sql.timestampType": "TIMESTAMP_NTZ", "spark.sql.caseSensitive": "true", "spark.sql.ansi.enabled": "false",
        "spark.sql.jsonGenerator.ignoreNullFields": "false", "spark.sql.columnNameOfCorruptRecord": "id",
        "spark.sql.parquet.inferTimestampNTZ.enabled": "false", "spark.sql.parquet.mergeSchema": "false",
        "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY", "spark.sql.csv.parser.columnPruning.enabled": "true",
        "spark.sql.session.timeZone": "America/New_York", "spark.sql.legacy.timeParserPolicy": "LEGACY",
    }  # fmt: skip
    before = {name: spark.conf.get(name, None) for name in settings}
    quotes = ["--option", 'escape="', "--option", "inferSchema=true"]
    dumps: list[list[str | Path]] = [
        ["--format", "parquet", write_parquet(tmp_path / "zone.parquet", rows)],
        ["--format", "parquet", write_parquet(tmp_path / "ntz.parquet", rows, WITHOUT_ZONE)],
        [*CSV, *quotes, write_csv(tmp_path / "text.csv", rows)],
        [*CSV, *quotes, write_csv(tmp_path / "naive.csv", rows, time=without_zone)],
    ]
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        for argv in dumps:
            assert state_after(spark, tmp_path, *argv) == dump_state(rows), argv
        assert spark.conf.get("spark.sql.session.timeZone") == "America/New_York"
    finally:
        for name, saved in before.items():
            if saved is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, saved)


def _plan(spark: SparkSession, *argv: str | Path) -> str:
    settings = parse([str(argument) for argument in argv], {})
    rows = raw_rows(spark, settings, list(settings.dumps)).where("may_be_wanted").select("value")
    length = "spark.sql.maxMetadataStringLength"
    spark.conf.set(length, "9999")
    try:
        return str(rows._jdf.queryExecution().executedPlan().toString())
    finally:
        spark.conf.unset(length)


def test_types_are_filtered_before_rows_go_to_python(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        row(type_, str(number), T)
        for number, type_ in enumerate(["VIDEO", "Video", "video", "user", "videos"])
    ]
    rows += [row("K\u00e9", "k", T), row("mar\u212a", "kelvin", T)]
    dump = write_parquet(tmp_path / "dump.parquet", rows)
    argv: list[str | Path] = ["--format", "parquet", dump]
    found = state_after(spark, tmp_path, "--types", "video,mark", *argv)
    assert sorted(found) == ["mark/kelvin", "video/0", "video/1", "video/2"]
    assert sorted(state_after(spark, tmp_path, "--types", "video", *argv)) == [
        "video/0",
        "video/1",
        "video/2",
    ]
    plan = _plan(spark, "--types", "video", *argv)
    pushed = "Or(IsNull(type),Or(And(GreaterThanOrEqual(type,VIDEO),LessThanOrEqual(type,Video)),And(GreaterThanOrEqual(type,v"
    assert f"PushedFilters: [{pushed}" in plan
    write_parquet(tmp_path / "by/type=Video/a.parquet", rows[:1], without="type")
    write_parquet(tmp_path / "by/type=user/b.parquet", rows[3:4], without="type")
    settings = parse(["--types", "video", "--format", "parquet", str(tmp_path / "by")], {})
    read = raw_rows(spark, settings, list(settings.dumps)).where("may_be_wanted")
    assert [Path(each.file).name for each in read.select("file").collect()] == ["a.parquet"]
    plan = _plan(spark, "--types", "video", *argv[:2], tmp_path / "by")
    assert re.search(r"PartitionFilters: \[.*lower\(type", plan), plan


def test_types_let_only_plain_lines_of_other_types_out(spark: SparkSession, tmp_path: Path) -> None:
    kept = [
        b'{"id":"1","type":"VIDEO"}', b'{"type":"user","id":"1","type":"video"}', b'{"\\u0074ype":"video","id":"1"}',
        b'{"type":"vid\\u0065o"}', b'{"type":"\xe2\x84\xaa"}', b'{"type":"user","id":"1"', b'{"id":"1"}', b'{"type":7}',
        b'{"a":{"type":"user"},"id":"1"}', b'{"type":"user"}{"type":"video"}', b"\xff",
    ]  # fmt: skip
    dropped = [
        b'{"type":"user","id":"1"}',
        b' { "id" : "type:", "type" : "videos" } ',
        b'{"type":"User","more":[1,2]}',
    ]
    dump = put(tmp_path / "dump.jsonl", b"\n".join([*kept, *dropped]))
    raw = raw_rows(spark, parse(["--types", "video", str(dump)], {}), [str(dump)])
    assert [bytes(each.value) for each in raw.where("may_be_wanted").collect()] == kept

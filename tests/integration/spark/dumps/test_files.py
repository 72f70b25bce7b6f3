"""Every file of a dump is read once, or an error names it."""

import gzip
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from oplog_sync.errors import SafetyRuleError
from tests.integration.spark.dumps.dumps import lines, write_csv, write_parquet
from tests.kits.spark.helpers import (
    Json,
    append,
    dump_state,
    live,
    objects_of,
    operation,
    put,
    refusal,
    row,
    sync,
)

T = "2020-01-01T00:00:00.000Z"
ROWS = [row("video", str(number), T, "a") for number in range(4)]
MANY = [row("video", str(number * 7919 % 10_007), T) for number in range(2000)]


def test_nested_folders_are_read_in_every_format(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "json/a.jsonl", lines(ROWS[:1]))
    put(tmp_path / "json/date=1/b/c.jsonl", lines(ROWS[1:]))
    write_csv(tmp_path / "csv/a.csv", ROWS[:1])
    write_csv(tmp_path / "csv/x/date=1/b.csv", ROWS[1:])
    write_parquet(tmp_path / "parquet/x/a.parquet", ROWS[:1])
    write_parquet(tmp_path / "parquet/x/date=1/b.parquet", ROWS[1:])
    wanted = dump_state(ROWS)
    assert objects_of(spark, tmp_path / "json") == wanted
    assert objects_of(spark, "--format", "csv", "--option", 'escape="', tmp_path / "csv") == wanted
    assert objects_of(spark, "--format", "parquet", tmp_path / "parquet") == wanted


def test_a_file_that_is_named_twice_is_read_once(spark: SparkSession, tmp_path: Path) -> None:
    file = put(tmp_path / "dump/a.jsonl", lines(ROWS))
    given: list[str | Path] = [
        file,
        tmp_path / "dump",
        tmp_path / "dump/*",
        f"file://{file}",
        tmp_path / "dump/../dump/a.jsonl",
    ]
    assert objects_of(spark, *given) == dump_state(ROWS)


@pytest.mark.parametrize("name", ["dump-12:30.jsonl", "dump[1].jsonl", "du mp%20{a,b}é?.jsonl.gz"])
def test_special_characters_in_a_file_name_have_no_meaning(
    spark: SparkSession,
    tmp_path: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    text = lines(ROWS)
    put(tmp_path / "dump" / name, gzip.compress(text) if name.endswith("gz") else text)
    put(
        tmp_path / "dump1.jsonl", lines([row("video", "other")])
    )  # a file that the name as a pattern would find
    assert objects_of(spark, tmp_path / "dump") == dump_state(ROWS)
    monkeypatch.chdir(tmp_path / "dump")
    assert objects_of(spark, name) == dump_state(ROWS)
    text += b"bad\n"
    put(tmp_path / "dump" / name, gzip.compress(text) if name.endswith("gz") else text)
    with pytest.raises(SafetyRuleError, match="the dump has 1 invalid row"):
        sync(spark, "--store", tmp_path / "none.db", name)
    assert f"invalid: {tmp_path}/dump/{name}, line 5: " in capfd.readouterr().err


def test_a_pattern_beside_a_name_with_a_colon_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path / "dump-12:30.jsonl", lines(ROWS))
    assert "contains ':'; name the files or their folder" in refusal(
        spark, tmp_path / "dump*.jsonl"
    )


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("_dump.jsonl", "/_dump.jsonl is hidden by its name"),
        (".dump.jsonl.Xa2s", "/.dump.jsonl.Xa2s is hidden by its name"),
        ("_old/dump.jsonl", "/_old/dump.jsonl is hidden by its name"),
        ("dump.jsonl._COPYING_", "/dump.jsonl._COPYING_ is still being written"),
        ("_temporary/0/part-0.jsonl", "/_temporary/0/part-0.jsonl is still being written"),
        ("_delta_log/0.json", "dump is a Delta table"),
    ],
)
def test_a_file_that_spark_would_ignore_is_named(
    spark: SparkSession, tmp_path: Path, name: str, sentence: str
) -> None:
    put(tmp_path / "dump/a.jsonl", lines(ROWS))
    hidden = put(tmp_path / "dump" / name, lines(ROWS))
    assert sentence in refusal(spark, tmp_path / "dump")
    if "/" not in name:
        assert sentence in refusal(spark, tmp_path / "dump/a.jsonl", hidden)


def test_marker_files_of_tools_are_no_part_of_a_dump(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "dump/a.jsonl", lines(ROWS))
    for name in ("_SUCCESS", ".a.jsonl.crc", "_committed_1", ".DS_Store", "x/._a.jsonl"):
        put(tmp_path / "dump" / name, b"x" if not name.endswith("crc") else b"")
    os.remove(tmp_path / "dump/.a.jsonl.crc")  # an empty one would not fit
    assert objects_of(spark, tmp_path / "dump") == dump_state(ROWS)


def test_a_dump_that_holds_no_file_is_named(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "dump/a.jsonl", lines(ROWS))
    (tmp_path / "empty/nested").mkdir(parents=True)
    assert f"the folder {tmp_path}/empty holds no file" in refusal(
        spark, tmp_path / "dump", tmp_path / "empty"
    )
    missing = tmp_path / "missing/*.gz"
    assert f"there is no {missing}" in refusal(spark, tmp_path / "dump", missing)


def test_a_pattern_skips_marker_files_of_tools(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "dump/a.jsonl", lines(ROWS))
    for name in ("_SUCCESS", "._SUCCESS.crc"):
        put(tmp_path / "dump" / name, b"")
    assert objects_of(spark, tmp_path / "dump/*") == dump_state(ROWS)
    # As a shell expands it.
    assert objects_of(spark, tmp_path / "dump/_SUCCESS", tmp_path / "dump/a.jsonl") == dump_state(
        ROWS
    )
    assert "no file with rows in " in refusal(spark, tmp_path / "dump/_SUCCESS")


def test_a_pattern_reads_a_hidden_folder_only_if_it_names_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path / "dump/a/1.jsonl", lines(ROWS))
    for name, sentence in (("_temporary", "still being written"), ("_old", "hidden by its name")):
        hidden = put(tmp_path / "dump" / name / "2.jsonl", lines(MANY))
        for pattern in ("dump/*", "dump/*/*.jsonl"):
            assert sentence in refusal(spark, tmp_path / pattern)
        hidden.unlink()
    put(hidden, lines(ROWS))
    assert objects_of(spark, tmp_path / "dump/_old/*.jsonl") == dump_state(ROWS)


def test_lines_may_have_a_mark_at_the_start_and_any_ends(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path / "dump/a.jsonl", b"\xef\xbb\xbf" + lines(ROWS[:2], "\r\n\r\n \r\n"))
    put(
        tmp_path / "dump/b.jsonl.gz",
        gzip.compress(b"\xef\xbb\xbf" + lines(ROWS[2:3])) + gzip.compress(lines(ROWS[3:])),
    )
    assert objects_of(spark, tmp_path / "dump") == dump_state(ROWS)


def test_the_last_of_two_equal_json_keys_counts(spark: SparkSession, tmp_path: Path) -> None:
    text = (
        b'{"type":"user","id":"9","type":"video","id":"0",'
        b'"timestamp":"2020-01-01T00:00:00Z","parents":["a"]}\n'
    )
    dump = put(tmp_path / "a.jsonl", text)
    assert objects_of(spark, dump) == dump_state(ROWS[:1])
    assert objects_of(spark, "--types", "video", dump) == dump_state(ROWS[:1])


def test_folder_names_give_the_columns_that_files_lack(spark: SparkSession, tmp_path: Path) -> None:
    rows = [row("007", "0", T, "a"), row("video/x".replace("/", "+ é"), "1", T), *ROWS]
    by_type: dict[str, list[Json]] = {}
    for each in rows:
        by_type.setdefault(each["type"], []).append(each)
    for type_, of_type in by_type.items():
        write_parquet(tmp_path / f"dump/d=1/Type={type_}/a.parquet", of_type, without="type")
    argv: list[str | Path] = ["--format", "parquet", tmp_path / "dump"]
    assert objects_of(spark, *argv) == dump_state(rows)
    assert objects_of(spark, "--types", "VIDEO", *argv) == dump_state(ROWS)
    write_parquet(tmp_path / "dump/d=1/b.parquet", ROWS, without="type")
    assert "dump/d=1/b.parquet is in no folder such as type=" in refusal(spark, *argv)


def test_parquet_files_with_other_columns_are_read_by_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = tmp_path / "oplog.db"
    append(
        store,
        [
            operation("insert", "video", str(number), "2019-01-01T00:00:00Z", "old")
            for number in range(4)
        ],
    )
    write_parquet(tmp_path / "dump/a.parquet", ROWS[:1], without="parents")
    for name, views in (("b", pa.array([1])), ("c", pa.array(["many"]))):
        file = write_parquet(
            tmp_path / f"dump/{name}.parquet", ROWS[1:2] if name == "b" else ROWS[2:3]
        )
        table = (
            pq.read_table(file)
            .append_column("views", views)
            .select(["views", "id", "type", "parents", "timestamp"])
        )
        pq.write_table(table.rename_columns(["views", "ID", "Type", "parents", "timestamp"]), file)
    write_parquet(tmp_path / "dump/d.parquet", ROWS[3:], pa.timestamp("ms", "UTC"))
    counts = sync(spark, "--store", store, "--format", "parquet", tmp_path / "dump")
    assert (counts.total("update"), counts.total("delete")) == (4, 0)
    # The first file does not name the parents: its object keeps what it has.
    assert live(store) == dump_state([row("video", "0", T, "old"), *ROWS[1:]])

"""Which files are the dump: all of them, each once, or a sentence that says why not."""

import bz2
import gzip
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from oplog_sync.dump.endings import BZ2_TAIL_BYTES, bz2_is_whole, zst_is_whole
from oplog_sync.errors import OptionError, RefusedError, SyncError
from tests.sync.dumps import lines, write_csv, write_parquet
from tests.sync.helpers import Json, append, dump_state, live, operation, row, sync

T = "2020-01-01T00:00:00.000Z"
ROWS = [row("video", str(number), T, "a") for number in range(4)]

SKIPPED_FRAME = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"


def zst(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


MANY = [row("video", str(number * 7919 % 10_007), T) for number in range(2000)]


def put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def state_after(spark: SparkSession, folder: Path, *argv: str | Path) -> dict[str, str]:
    """The objects of a new store, filled from a dump."""
    store = folder / "new.db"
    for path in folder.glob("new.db*"):
        path.unlink()
    counts = sync(spark, "--store", store, *argv)
    assert counts.total("duplicate") == 0
    return live(store)


def refusal(spark: SparkSession, folder: Path, *argv: str | Path) -> str:
    """The sentence of a run that emits nothing."""
    with pytest.raises(SyncError) as refused:
        sync(spark, "--store", folder / "none.db", *argv)
    assert not (folder / "none.db").exists()
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_nested_folders_are_read_in_every_format(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "json/a.jsonl", lines(ROWS[:1]))
    put(tmp_path / "json/date=1/b/c.jsonl", lines(ROWS[1:]))
    write_csv(tmp_path / "csv/a.csv", ROWS[:1])
    write_csv(tmp_path / "csv/x/date=1/b.csv", ROWS[1:])
    write_parquet(tmp_path / "parquet/x/a.parquet", ROWS[:1])
    write_parquet(tmp_path / "parquet/x/date=1/b.parquet", ROWS[1:])
    wanted = dump_state(ROWS)
    assert state_after(spark, tmp_path, tmp_path / "json") == wanted
    assert (
        state_after(spark, tmp_path, "--format", "csv", "--option", 'escape="', tmp_path / "csv")
        == wanted
    )
    assert state_after(spark, tmp_path, "--format", "parquet", tmp_path / "parquet") == wanted


def test_a_file_that_is_named_twice_is_read_once(spark: SparkSession, tmp_path: Path) -> None:
    file = put(tmp_path / "dump/a.jsonl", lines(ROWS))
    given: list[str | Path] = [
        file,
        tmp_path / "dump",
        tmp_path / "dump/*",
        f"file://{file}",
        tmp_path / "dump/../dump/a.jsonl",
    ]
    assert state_after(spark, tmp_path, *given) == dump_state(ROWS)


@pytest.mark.parametrize("name", ["dump-12:30.jsonl", "dump[1].jsonl", "du mp%20{a,b}é?.jsonl.gz"])
def test_a_name_is_taken_as_it_is(
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
    assert state_after(spark, tmp_path, tmp_path / "dump") == dump_state(ROWS)
    monkeypatch.chdir(tmp_path / "dump")
    assert state_after(spark, tmp_path, name) == dump_state(ROWS)
    text += b"bad\n"
    put(tmp_path / "dump" / name, gzip.compress(text) if name.endswith("gz") else text)
    refusal(spark, tmp_path, name)
    assert f"invalid: {tmp_path}/dump/{name}, line 5: " in capfd.readouterr().err


def test_a_pattern_beside_a_name_with_a_colon_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path / "dump-12:30.jsonl", lines(ROWS))
    assert "holds ':'; name the files or their folder" in refusal(
        spark, tmp_path, tmp_path / "dump*.jsonl"
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
    assert sentence in refusal(spark, tmp_path, tmp_path / "dump")
    if "/" not in name:
        assert sentence in refusal(spark, tmp_path, tmp_path / "dump/a.jsonl", hidden)


def test_what_tools_leave_beside_a_dump_is_no_part_of_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path / "dump/a.jsonl", lines(ROWS))
    for name in ("_SUCCESS", ".a.jsonl.crc", "_committed_1", ".DS_Store", "x/._a.jsonl"):
        put(tmp_path / "dump" / name, b"x" if not name.endswith("crc") else b"")
    os.remove(tmp_path / "dump/.a.jsonl.crc")  # an empty one would not fit
    assert state_after(spark, tmp_path, tmp_path / "dump") == dump_state(ROWS)


def test_a_dump_that_holds_no_file_is_named(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "dump/a.jsonl", lines(ROWS))
    (tmp_path / "empty/nested").mkdir(parents=True)
    assert f"the folder {tmp_path}/empty holds no file" in refusal(
        spark, tmp_path, tmp_path / "dump", tmp_path / "empty"
    )
    missing = tmp_path / "missing/*.gz"
    assert f"there is no {missing}" in refusal(spark, tmp_path, tmp_path / "dump", missing)


@pytest.mark.parametrize(
    ("format_", "name", "data", "sentence"),
    [
        ("json", "a.jsonl", b' \n[{"type":"a"},\n', "a.jsonl holds a JSON array"),
        ("json", "a.jsonl.gz", gzip.compress(b"[\n"), "a.jsonl.gz holds a JSON array"),
        ("json", "a.jsonl", gzip.compress(b"{}"), "a.jsonl is compressed; give it a name that ends in .gz"),
        ("json", "a.jsonl", bz2.compress(b"{}"), "a.jsonl is compressed; give it a name that ends in .bz2"),
        ("json", "a.jsonl.lz4", b"\x04\x22\x4d\x18" + b"x" * 99, "a.jsonl.lz4 is compressed by lz4, which Spark does not read"),
        ("csv", "a.csv", pa.compress(b"id,type", codec="zstd", asbytes=True), "a name that ends in .zst"),
        ("json", "a.jsonl", b"PAR1....PAR1", "a.jsonl is a Parquet file; give --format parquet"),
        ("parquet", "a.parquet", b'{"type":"a"}\n', "a.parquet is no Parquet file"),
        ("parquet", "a.parquet", b"PAR1 cut off", "a.parquet is no whole Parquet file"),
        ("parquet", "a.parquet", b"", "a.parquet is empty"),
        ("csv", "a.csv", b"", "a.csv is empty"),
        ("json", "a.jsonl.gz", b"", "a.jsonl.gz is empty"),
        ("json", "a.jsonl.gz", lines(ROWS), "a.jsonl.gz is not compressed as its name says"),
        ("json", "a.jsonl.gz", gzip.compress(lines(MANY))[:-300], "a.jsonl.gz ends too early"),
        ("json", "a.jsonl.gz", gzip.compress(lines(ROWS))[:-8] + b"12345678", "a.jsonl.gz is damaged"),
        ("json", "a.jsonl.zst", pa.compress(lines(ROWS), codec="zstd", asbytes=True)[:-9], "a.jsonl.zst ends too early"),
        ("json", "a.jsonl.bz2", lines(ROWS), "a.jsonl.bz2 is not compressed as its name says"),
        ("json", "a.jsonl.zst", zst(lines(ROWS)) + zst(lines(MANY[:9]))[:40], "a.jsonl.zst ends too early"),
        ("json", "a.jsonl.bz2", bz2.compress(lines(ROWS))[:-20], "a.jsonl.bz2 ends too early"),
        ("json", "a.jsonl.bz2", bz2.compress(lines(ROWS)) + bz2.compress(lines(MANY))[:4], "a.jsonl.bz2 ends too early"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else None,
)  # fmt: skip
def test_a_file_of_another_format_or_cut_off_is_named(
    spark: SparkSession, tmp_path: Path, format_: str, name: str, data: bytes, sentence: str
) -> None:
    if format_ == "parquet":
        write_parquet(tmp_path / "dump/sound.parquet", ROWS)
    elif format_ == "csv":
        write_csv(tmp_path / "dump/sound.csv", ROWS)
    else:
        put(tmp_path / "dump/sound.jsonl", lines(ROWS))
    put(tmp_path / "dump" / name, data)
    # A platform may tell Spark to pass over such files: half a dump would count as a whole one.
    settings = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")
    for setting in settings:
        spark.conf.set(setting, "true")
    try:
        assert sentence in refusal(spark, tmp_path, "--format", format_, tmp_path / "dump")
    finally:
        for setting in settings:
            spark.conf.unset(setting)


@pytest.mark.parametrize("count", [1, 300, 20_000])
def test_a_file_of_several_frames_is_whole_only_with_all_of_the_last(
    tmp_path: Path, count: int
) -> None:
    text = b"".join(b"%d," % (number * number) for number in range(count))
    frames = [SKIPPED_FRAME, zst(text), zst(b""), SKIPPED_FRAME, zst(b"a" * 200_000)]
    file = put(tmp_path / "a.zst", b"".join(frames))
    assert zst_is_whole(file)
    start = file.stat().st_size - len(frames[-1])
    for length in range(1, len(frames[-1])):
        put(file, b"".join(frames)[: start + length])
        assert not zst_is_whole(file)
    put(file, b"".join(frames)[:start])
    assert zst_is_whole(file)  # as whole as anyone can tell
    packed = bz2.compress(text)
    assert bz2_is_whole(packed[-BZ2_TAIL_BYTES:])
    for length in range(1, min(len(packed), 200)):
        assert not bz2_is_whole(packed[:-length][-BZ2_TAIL_BYTES:])


def test_a_pattern_passes_over_what_tools_leave_beside_a_dump(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path / "dump/a.jsonl", lines(ROWS))
    for name in ("_SUCCESS", "._SUCCESS.crc"):
        put(tmp_path / "dump" / name, b"")
    assert state_after(spark, tmp_path, tmp_path / "dump/*") == dump_state(ROWS)
    # As a shell expands it.
    assert state_after(
        spark, tmp_path, tmp_path / "dump/_SUCCESS", tmp_path / "dump/a.jsonl"
    ) == dump_state(ROWS)
    assert "_SUCCESS names no file with rows" in refusal(
        spark, tmp_path, tmp_path / "dump/_SUCCESS"
    )


def test_a_pattern_reads_no_hidden_folder_unless_it_names_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path / "dump/a/1.jsonl", lines(ROWS))
    for name, sentence in (("_temporary", "still being written"), ("_old", "hidden by its name")):
        hidden = put(tmp_path / "dump" / name / "2.jsonl", lines(MANY))
        for pattern in ("dump/*", "dump/*/*.jsonl"):
            assert sentence in refusal(spark, tmp_path, tmp_path / pattern)
        hidden.unlink()
    put(hidden, lines(ROWS))
    assert state_after(spark, tmp_path, tmp_path / "dump/_old/*.jsonl") == dump_state(ROWS)


def test_a_path_that_spark_cannot_read_is_said_in_a_sentence(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert "spark-submit --packages org.apache.hadoop:hadoop-aws:" in refusal(
        spark, tmp_path, "s3a://dumps/today"
    )
    assert "Spark knows no foo:// paths" in refusal(spark, tmp_path, "foo://dumps/today")


def test_lines_may_have_a_mark_at_the_start_and_any_ends(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path / "dump/a.jsonl", b"\xef\xbb\xbf" + lines(ROWS[:2], "\r\n\r\n \r\n"))
    put(
        tmp_path / "dump/b.jsonl.gz",
        gzip.compress(b"\xef\xbb\xbf" + lines(ROWS[2:3])) + gzip.compress(lines(ROWS[3:])),
    )
    assert state_after(spark, tmp_path, tmp_path / "dump") == dump_state(ROWS)


def test_of_a_key_that_a_json_object_names_twice_the_last_counts(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = b'{"type":"user","id":"9","type":"video","id":"0","timestamp":"2020-01-01T00:00:00Z","parents":["a"]}\n'
    dump = put(tmp_path / "a.jsonl", text)
    assert state_after(spark, tmp_path, dump) == dump_state(ROWS[:1])
    assert state_after(spark, tmp_path, "--types", "video", dump) == dump_state(ROWS[:1])


@pytest.mark.parametrize(
    ("format_", "option"),
    [
        ("json", "wholetext=true"), ("json", "encoding=UTF-16"), ("json", "modifiedAfter=2020-01-01T00:00:00"),
        ("json", "pathGlobFilter=*.json"), ("parquet", "ignoreCorruptFiles=true"), ("parquet", "mergeSchema=false"),
        ("csv", "mode=DROPMALFORMED"), ("csv", "columnNameOfCorruptRecord=x"), ("csv", "enforceSchema=true"),
        ("csv", "IGNOREMISSINGFILES=true"),
    ],
)  # fmt: skip
def test_an_option_that_would_drop_rows_is_refused(
    spark: SparkSession, tmp_path: Path, format_: str, option: str
) -> None:
    with pytest.raises(OptionError, match=f"--option {option.partition('=')[0]}: "):
        sync(
            spark,
            "--store",
            tmp_path / "oplog.db",
            "--format",
            format_,
            "--option",
            option,
            tmp_path,
        )


def test_the_columns_of_folders_count_where_files_lack_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [row("007", "0", T, "a"), row("video/x".replace("/", "+ é"), "1", T), *ROWS]
    by_type: dict[str, list[Json]] = {}
    for each in rows:
        by_type.setdefault(each["type"], []).append(each)
    for type_, of_type in by_type.items():
        write_parquet(tmp_path / f"dump/d=1/Type={type_}/a.parquet", of_type, without="type")
    argv: list[str | Path] = ["--format", "parquet", tmp_path / "dump"]
    assert state_after(spark, tmp_path, *argv) == dump_state(rows)
    assert state_after(spark, tmp_path, "--types", "VIDEO", *argv) == dump_state(ROWS)
    write_parquet(tmp_path / "dump/d=1/b.parquet", ROWS, without="type")
    assert "dump/d=1/b.parquet lies in no folder such as type=" in refusal(spark, tmp_path, *argv)


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


def test_parquet_files_that_disagree_on_a_type_are_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    argv: list[str | Path] = ["--format", "parquet", tmp_path / "dump"]
    write_parquet(tmp_path / "dump/a.parquet", ROWS[:2])
    write_parquet(tmp_path / "dump/b.parquet", ROWS[2:], pa.timestamp("us"))
    assert (
        f"the column timestamp is of type timestamp in {tmp_path}/dump/a.parquet and timestamp_ntz in "
        f"{tmp_path}/dump/b.parquet" in refusal(spark, tmp_path, *argv)
    )
    write_parquet(tmp_path / "dump/b.parquet", ROWS[2:], pa.timestamp("ns", "UTC"))
    assert "times in nanoseconds" in refusal(spark, tmp_path, *argv)


def test_invalid_rows_that_types_leaves_out_do_not_count(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bad = [
        b'{"type":"user","id":"1","timestamp":"no"}\n',
        b'{"type":"Video","id":"1","timestamp":"no"}\n',
    ]
    dump = put(
        tmp_path / "a.jsonl", lines(ROWS) + bad[0] + bad[1] + bad[0][:-9] + b"\n" + lines(ROWS)
    )
    with pytest.raises(RefusedError, match="2 rows of the dump are invalid"):
        sync(spark, "--store", tmp_path / "oplog.db", "--types", "video", dump)
    told = capfd.readouterr().err
    assert "a.jsonl, line 6: timestamp: not an RFC 3339" in told
    assert "a.jsonl, line 7: operation: is not valid JSON" in told
    assert "line 5" not in told

"""Damaged files, files of other formats and options that drop rows stop the job."""

import bz2
import gzip
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from oplog_sync.dump.endings import BZ2_TAIL_BYTES, bz2_is_whole, zst_is_whole
from oplog_sync.errors import OptionError, SafetyRuleError, SyncError
from tests.integration.spark.dumps.dumps import lines, write_csv, write_parquet
from tests.kits.spark.helpers import (
    put,
    refusal,
    row,
    sync,
)

T = "2020-01-01T00:00:00.000Z"
ROWS = [row("video", str(number), T, "a") for number in range(4)]
MANY = [row("video", str(number * 7919 % 10_007), T) for number in range(2000)]
SKIPPED_FRAME = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"


def zst(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


@pytest.mark.parametrize(
    ("format_", "name", "data", "sentence"),
    [
        ("json", "a.jsonl", b' \n[{"type":"a"},\n', "a.jsonl holds a JSON array"),
        ("json", "a.jsonl.gz", gzip.compress(b"[\n"), "a.jsonl.gz holds a JSON array"),
        (
            "json",
            "a.jsonl",
            gzip.compress(b"{}"),
            "a.jsonl is compressed; give it a name that ends in .gz",
        ),
        (
            "json",
            "a.jsonl",
            bz2.compress(b"{}"),
            "a.jsonl is compressed; give it a name that ends in .bz2",
        ),
        (
            "json",
            "a.jsonl.lz4",
            b"\x04\x22\x4d\x18" + b"x" * 99,
            "a.jsonl.lz4 is compressed by lz4, and Spark cannot read it",
        ),
        (
            "csv",
            "a.csv",
            pa.compress(b"id,type", codec="zstd", asbytes=True),
            "a name that ends in .zst",
        ),
        ("json", "a.jsonl", b"PAR1....PAR1", "a.jsonl is a Parquet file; give --format parquet"),
        ("parquet", "a.parquet", b'{"type":"a"}\n', "a.parquet is not a Parquet file"),
        ("parquet", "a.parquet", b"PAR1 cut off", "a.parquet is not a complete Parquet file"),
        ("parquet", "a.parquet", b"", "a.parquet is empty"),
        ("csv", "a.csv", b"", "a.csv is empty"),
        ("json", "a.jsonl.gz", b"", "a.jsonl.gz is empty"),
        ("json", "a.jsonl.gz", lines(ROWS), "a.jsonl.gz is not compressed as its name says"),
        ("json", "a.jsonl.gz", gzip.compress(lines(MANY))[:-300], "a.jsonl.gz ends too early"),
        (
            "json",
            "a.jsonl.gz",
            gzip.compress(lines(ROWS))[:-8] + b"12345678",
            "a.jsonl.gz is damaged",
        ),
        (
            "json",
            "a.jsonl.zst",
            pa.compress(lines(ROWS), codec="zstd", asbytes=True)[:-9],
            "a.jsonl.zst ends too early",
        ),
        ("json", "a.jsonl.bz2", lines(ROWS), "a.jsonl.bz2 is not compressed as its name says"),
        (
            "json",
            "a.jsonl.zst",
            zst(lines(ROWS)) + zst(lines(MANY[:9]))[:40],
            "a.jsonl.zst ends too early",
        ),
        ("json", "a.jsonl.bz2", bz2.compress(lines(ROWS))[:-20], "a.jsonl.bz2 ends too early"),
        (
            "json",
            "a.jsonl.bz2",
            bz2.compress(lines(ROWS)) + bz2.compress(lines(MANY))[:4],
            "a.jsonl.bz2 ends too early",
        ),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else None,
)
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
    # A platform may let Spark skip such files: half a dump would count as a whole one.
    settings = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")
    for setting in settings:
        spark.conf.set(setting, "true")
    try:
        assert sentence in refusal(spark, "--format", format_, tmp_path / "dump")
    finally:
        for setting in settings:
            spark.conf.unset(setting)


def test_a_dump_that_cannot_be_read_to_its_end_emits_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path / "dump/sound.jsonl", lines(ROWS))
    put(tmp_path / "dump/a.jsonl.gz", gzip.compress(lines(MANY))[:-300])
    with pytest.raises(SyncError, match=r"a\.jsonl\.gz ends too early"):
        sync(spark, "--store", tmp_path / "none.db", tmp_path / "dump")
    assert not (tmp_path / "none.db").exists()


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
    assert zst_is_whole(file)  # the cut is at a frame's end, so it cannot be detected
    packed = bz2.compress(text)
    assert bz2_is_whole(packed[-BZ2_TAIL_BYTES:])
    for length in range(1, min(len(packed), 200)):
        assert not bz2_is_whole(packed[:-length][-BZ2_TAIL_BYTES:])


def test_a_path_that_spark_cannot_read_is_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    assert "spark-submit --packages org.apache.hadoop:hadoop-aws:" in refusal(
        spark, "s3a://dumps/today"
    )
    assert "Spark cannot read foo:// paths" in refusal(spark, "foo://dumps/today")


@pytest.mark.parametrize(
    ("format_", "option"),
    [
        ("json", "wholetext=true"),
        ("json", "encoding=UTF-16"),
        ("json", "modifiedAfter=2020-01-01T00:00:00"),
        ("json", "pathGlobFilter=*.json"),
        ("parquet", "ignoreCorruptFiles=true"),
        ("parquet", "mergeSchema=false"),
        ("csv", "mode=DROPMALFORMED"),
        ("csv", "columnNameOfCorruptRecord=x"),
        ("csv", "enforceSchema=true"),
        ("csv", "IGNOREMISSINGFILES=true"),
    ],
)
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


def test_parquet_files_that_disagree_on_a_type_are_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    argv: list[str | Path] = ["--format", "parquet", tmp_path / "dump"]
    write_parquet(tmp_path / "dump/a.parquet", ROWS[:2])
    write_parquet(tmp_path / "dump/b.parquet", ROWS[2:], pa.timestamp("us"))
    assert (
        f"the column timestamp is of type timestamp in {tmp_path}/dump/a.parquet and "
        "timestamp_ntz in "
        f"{tmp_path}/dump/b.parquet" in refusal(spark, *argv)
    )
    write_parquet(tmp_path / "dump/b.parquet", ROWS[2:], pa.timestamp("ns", "UTC"))
    assert "times in nanoseconds" in refusal(spark, *argv)


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
    with pytest.raises(SafetyRuleError, match="the dump has 2 invalid rows"):
        sync(spark, "--store", tmp_path / "oplog.db", "--types", "video", dump)
    told = capfd.readouterr().err
    assert "a.jsonl, line 6: timestamp: not an RFC 3339" in told
    assert "a.jsonl, line 7: operation: is not valid JSON" in told
    assert "line 5" not in told

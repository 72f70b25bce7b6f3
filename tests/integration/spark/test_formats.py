"""The formats of a dump."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from oplog_sync.errors import SafetyRuleError
from tests.kits.spark.helpers import (
    Json,
    dump_state,
    live,
    objects_of,
    refusal,
    row,
    sync,
    write_dump,
)

ROWS = [
    row("video", "a", "2020-01-01T00:00:00.001Z", "user/1", "x,y"),
    row("video", "b c", "2020-01-01T00:00:00.000Z"),
    row("user", "é/\u2603", "1969-12-31T23:59:59.999Z", "\U0001f600"),
]
WANTED = dump_state(ROWS)


def _lines(rows: list[Json]) -> bytes:
    return "".join(json.dumps(given) + "\n" for given in rows).encode()


def test_json_lines_plain_gzip_and_zstd_in_folders_and_patterns(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "dump"
    folder.mkdir()
    (folder / "1.jsonl").write_bytes(_lines(ROWS[:1]).rstrip())
    (folder / "2.jsonl.gz").write_bytes(gzip.compress(_lines(ROWS[1:2])))
    with pa.output_stream(folder / "3.jsonl.zst", compression="zstd") as file:
        file.write(_lines(ROWS[2:]))
    assert sync(spark, "--store", tmp_path / "a.db", folder).total("insert") == 3
    assert live(tmp_path / "a.db") == WANTED
    given = (folder / "*.gz", f"file://{folder}/3.jsonl.zst", folder / "1.jsonl")
    assert objects_of(spark, *given) == WANTED


@pytest.mark.parametrize("times", ["timestamp", "timestamp_ntz", "string"])
def test_parquet_with_times_of_any_kind(spark: SparkSession, tmp_path: Path, times: str) -> None:
    spark.conf.set(
        "spark.sql.session.timeZone", "UTC"
    )  # for the casts of this test, not of the job
    frame = spark.createDataFrame(
        ROWS, "timestamp string, parents array<string>, type string, id string"
    )
    frame = frame.withColumn(
        "timestamp",
        frame.timestamp.cast("timestamp").cast(times) if times != "string" else frame.timestamp,
    )
    frame.write.parquet(str(tmp_path / "dump"))
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    assert objects_of(spark, "--format", "parquet", tmp_path / "dump") == WANTED


def test_csv_with_parents_as_json_or_between_commas(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "dump.csv").write_text(
        "id;type;timestamp;parents;more\n"
        '1;Video;2020-01-01T01:00:00.0009+01:00;"[\\"a,b\\", \\"c\\"]";x\n'
        "2;video;2020-01-01T00:00:00Z;a,b;x\n"
        "3;video;2020-01-01T00:00:00Z;;x\n"
    )
    at = "2020-01-01T00:00:00.000Z"
    argv = ("--format", "csv", "--option", "sep=;", tmp_path / "dump.csv")
    assert objects_of(spark, *argv) == dump_state(
        [row("video", "1", at, "a,b", "c"), row("video", "2", at, "a", "b"), row("video", "3", at)]
    )


def test_a_table_by_jdbc_with_a_number_as_id(spark: SparkSession, tmp_path: Path) -> None:
    url = f"jdbc:derby:{tmp_path}/derby;create=true"
    frame = spark.sql(
        "SELECT 'video' AS type, 7 AS id, TIMESTAMP'2020-01-01T00:00:00.123Z' AS timestamp"
    )
    frame.write.jdbc(
        url, "dump", properties={"driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver"}
    )
    options = ["--format", "jdbc", "--option", f"url={url}", "--option", "dbtable=dump"]
    sync(
        spark,
        "--store",
        tmp_path / "oplog.db",
        *options,
        "--option",
        "driver=org.apache.derby.iapi.jdbc.AutoloadedDriver",
    )
    (data,) = live(tmp_path / "oplog.db").values()
    assert json.loads(data)["id"] == "7"


def test_rows_of_any_format_obey_the_same_rules(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dump.csv").write_text(
        "id,type,timestamp,parents\n,video,2020-01-01T00:00:00Z,[\n,,,\n"
    )
    with pytest.raises(SafetyRuleError, match="the dump has 2 invalid rows"):
        sync(spark, "--store", tmp_path / "oplog.db", "--format", "csv", tmp_path / "dump.csv")
    told = capfd.readouterr().err
    assert "dump.csv, row 1: operation: is not valid JSON" in told
    assert "dump.csv, row 2: " in told
    (tmp_path / "other.csv").write_text("id,type\n1,video\n")
    sentence = refusal(spark, "--format", "csv", tmp_path / "other.csv")
    assert "the dump has no column timestamp" in sentence
    dump = write_dump(tmp_path / "x", ROWS)
    assert "one object per line" in refusal(spark, "--option", "multiLine=true", dump)

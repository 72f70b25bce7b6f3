"""A table of Spark's catalog is a dump."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from oplog_sync.errors import DumpError, SafetyRuleError
from oplog_sync.settings import command
from tests.kits.spark.helpers import dump_state, live, row, sync

ROWS = [row("video", str(n), "2020-01-01T00:00:00.000Z", "a") for n in range(3)]


@pytest.fixture
def table(spark: SparkSession) -> str:
    values = ", ".join(
        f"('{each['type']}', '{each['id']}', TIMESTAMP '2020-01-01 00:00:00Z', array('a'))"
        for each in ROWS
    )
    spark.sql("DROP TABLE IF EXISTS dumped")
    columns = "type string, id string, timestamp timestamp, parents array<string>"
    spark.sql(f"CREATE TABLE dumped ({columns}) USING parquet")
    spark.sql(f"INSERT INTO dumped VALUES {values}")
    return "dumped"


def test_a_table_is_compared_like_its_files(
    spark: SparkSession, tmp_path: Path, table: str, capfd: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "oplog.db"
    assert sync(spark, "--store", store, "--table", table).total("insert") == 3
    assert live(store) == dump_state(ROWS)
    only = sync(spark, "--store", store, "--table", f"default.{table}", "--types", "Video")
    assert (only.total("untouched"), only.corrections()) == (3, 0)
    spark.sql(f"INSERT INTO {table} VALUES ('video', '', TIMESTAMP '2020-01-01 00:00:00Z', NULL)")
    with pytest.raises(SafetyRuleError, match="the dump has 1 invalid row"):
        sync(spark, "--store", store, "--table", table)
    assert "invalid: id: must not be empty" in capfd.readouterr().err


@pytest.mark.parametrize("as_of", ["3", "2020-01-01T00:00:00+05:30"])
def test_a_table_without_history_is_refused_with_as_of(
    spark: SparkSession, tmp_path: Path, table: str, as_of: str
) -> None:
    told = "the dump cannot be read: the format of the table keeps no earlier states"
    with pytest.raises(DumpError, match=told):
        sync(spark, "--store", tmp_path / "x.db", "--table", table, "--as-of", as_of)


def test_a_missing_table_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(DumpError, match="there is no table `nowhere`"):
        sync(spark, "--store", tmp_path / "x.db", "--table", "nowhere")


@pytest.mark.parametrize(
    "argv",
    [
        ["--table", "x", "dump.jsonl"],
        ["--table", "x", "--format", "csv"],
        ["--table", "x", "--option", "a=b"],
        ["--as-of", "3", "dump.jsonl"],
        ["--table", "x", "--as-of", "yesterday"],
    ],
)
def test_flags_that_do_not_fit_a_table_are_refused(argv: list[str]) -> None:
    with pytest.raises(SystemExit):
        command().parse(argv, {})

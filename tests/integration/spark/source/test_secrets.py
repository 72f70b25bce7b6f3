"""Passwords in options are shown by no plan, no error and no progress."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from oplog_sync.errors import OptionError
from oplog_sync.session import hide_secrets
from oplog_sync.source import OplogDataSource
from tests.integration.spark.source.streams import stream_of

_URL = "mongodb://user:hidden@localhost:1/oplog?serverSelectionTimeoutMS=1"
_OPTIONS = {
    "store": {"store": _URL, "retryFor": "1ms"},
    "agent": {"agent": "http://localhost:1", "password": "hidden", "retryFor": "1ms"},
}


def _in_sql(options: dict[str, str], equals: str) -> str:
    return ", ".join(f"{name}{equals}'{value}'" for name, value in options.items())


@pytest.mark.parametrize("through", ["store", "agent"])
def test_spark_shows_no_password(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str], through: str
) -> None:
    options = _OPTIONS[through]
    batch = spark.read.format("oplog").options(**options).load()
    stream = stream_of(spark, options)
    view = f"CREATE OR REPLACE TEMPORARY VIEW secret USING oplog OPTIONS ({_in_sql(options, ' ')})"
    spark.sql(view)
    table = f"CREATE TABLE kept USING oplog OPTIONS ({_in_sql(options, ' ')})"
    spark.sql(table)
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with suppress(PySparkException):
        query.awaitTermination()

    def explained(statement: str) -> Callable[[], object]:
        return lambda: spark.sql(f"EXPLAIN EXTENDED {statement}").collect()

    insert = "INSERT INTO secret (event, type, id) VALUES ('insert', 'a', '1')"
    places: list[Callable[[], object]] = [
        lambda: batch.explain(True),
        lambda: batch.explain("formatted"),
        lambda: batch.select("nosuch"),
        lambda: batch.collect(),
        lambda: stream.explain(True),
        lambda: stream.select("nosuch"),
        query.exception,
        lambda: query.lastProgress,
        lambda: query.explain(True),
        explained(view),
        explained(table.replace("kept", "other")),
        explained("SELECT * FROM secret"),
        explained(f"SELECT * FROM secret WITH ({_in_sql(options, ' = ')})"),
        lambda: spark.sql(f"SELECT nosuch FROM secret WITH ({_in_sql(options, ' = ')})"),
        explained(insert),
        lambda: spark.sql("SHOW CREATE TABLE kept").collect(),
        lambda: spark.sql("DESCRIBE EXTENDED kept").collect(),
        lambda: spark.sql("SELECT * FROM kept").collect(),
    ]
    try:
        for number, place in enumerate(places):
            try:
                shown = str(place())
            except PySparkException as error:
                shown = str(error)
            assert "hidden" not in shown, (number, shown)
    finally:
        spark.sql("DROP TABLE kept")
        spark.catalog.dropTempView("secret")
    out, err = capfd.readouterr()
    assert "hidden" not in out + err
    assert "oplog" in out  # the plans were shown


def test_expressions_of_the_user_stay_in_effect(spark: SparkSession) -> None:
    names = "spark.sql.redaction.options.regex", "spark.sql.redaction.string.regex"
    before = [spark.conf.get(name, None) for name in names]
    try:
        for name in names:
            spark.conf.set(name, "mine")
        hide_secrets(spark)
        hide_secrets(spark)
        found = [spark.conf.get(name) or "" for name in names]
        assert [each.partition("|")[0] for each in found] == ["mine", "mine"]
        assert [each.count("mongodb") for each in found] == [1, 1]
    finally:
        for name, value in zip(names, before, strict=True):
            spark.conf.set(name, value or "")


@pytest.mark.parametrize(
    "options",
    [
        {"store": _URL},
        {"PATH": _URL},
        {"store": "mongodb://db/oplog?tlsCertificateKeyFilePassword=hidden"},
    ],
)
def test_without_register_a_store_with_a_password_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(
        OptionError, match=r"give storeFile, or call oplog_sync\.register"
    ) as refused:
        OplogDataSource(options)
    assert "hidden" not in str(refused.value)
    OplogDataSource({"store": "mongodb://db1,db2/oplog?replicaSet=rs0"})

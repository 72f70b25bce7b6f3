"""Spark finds the data source by the package ``pyspark_oplog``, in a session without register()."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from oplog_sync.source import OplogDataSource
from pyspark_oplog import DefaultSource
from tests.kits.spark.helpers import append, log, operation


@pytest.fixture
def plain(spark: SparkSession) -> Iterator[SparkSession]:
    """Return a session of the same Java in which no data source was registered."""
    yield spark.newSession()
    spark.createDataFrame([(1,)], "n int")  # makes the other session the active one again


def test_a_session_that_registers_nothing_writes_reads_and_streams(
    plain: SparkSession, tmp_path: Path
) -> None:
    store = tmp_path / "oplog.db"
    append(store, [operation("insert", "video", "1")])
    row = plain.createDataFrame([("insert", "user", "1")], "event string, type string, id string")
    row.write.format("oplog").option("store", str(store)).mode("append").save()
    assert len(log(store)) == 2
    states = plain.read.format("oplog").option("store", str(store)).load()
    assert {row.key for row in states.select("key").collect()} == {"video/1", "user/1"}
    operations = plain.readStream.format("oplog").options(store=str(store), start="oldest").load()
    writer = operations.writeStream.format("memory").queryName("found")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert {row.key for row in plain.table("found").collect()} == {"video/1", "user/1"}


def test_the_class_that_spark_finds_makes_the_source_with_its_options_and_no_master() -> None:
    source = DefaultSource({"store": "oplog.db"})
    assert isinstance(source, OplogDataSource)
    assert source.options == {"store": "oplog.db"}
    assert source.master is None
    assert DefaultSource.name() == OplogDataSource.name()

"""Streams with `onGap` `copy` as Spark runs them, and their options."""

import random
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from oplog_sync.source.copies import versioned_schema
from tests.integration.spark.source.mirrors import MANY, SMALL_LOG, Target, World, place_of
from tests.integration.spark.source.streams import stream_of
from tests.kits.agents.agent import Agent


def test_spark_has_the_versions_and_the_end_of_a_copy(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(3)
    with Agent(tmp_path, *SMALL_LOG) as agent:
        world = World(agent, tmp_path / "oplog.db", chance)
        world.change(50)
        target, seen = Target(), []

        def write(rows: DataFrame, batch: int) -> None:
            found = rows.toArrow().to_pylist()
            seen.append([row["event"] for row in found])
            for row in sorted(found, key=lambda row: row["event"] == "live"):
                target.apply(row)

        for through in ("store", "agent", "store"):
            options = {"onGap": "copy", "start": "0", **place_of(tmp_path, agent, through)}
            stream = stream_of(spark, options)
            assert stream.schema == versioned_schema()
            query = stream.writeStream.foreachBatch(write).trigger(availableNow=True)
            query.option(
                "checkpointLocation", str(tmp_path / "checkpoint")
            ).start().awaitTermination()
            assert target.objects == world.objects
            world.change(MANY)
            world.purge()
        assert [events.count("live") for events in seen] == [1, 1, 1]
        chosen = stream_of(spark, options | {"types": "none"}).select("version", "event", "key")
        query = chosen.writeStream.foreachBatch(write).trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / "other")).start().awaitTermination()
        assert seen[-1] == ["live"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topic": "a/b", "agent": "http://a"}, "option onGap: for a topic it is fail or oldest"),
        ({"store": "a", "events": "insert"}, "option events: it does not apply with onGap copy"),
        ({"store": "a", "end": "0"}, "option end: it does not apply with onGap copy"),
        ({"store": "missing.db", "start": "0"}, "missing.db"),
    ],
)
def test_an_option_that_does_not_fit_copies_is_named(
    spark: SparkSession, options: dict[str, str], text: str
) -> None:
    stream = stream_of(spark, {"onGap": "copy", **options})
    with pytest.raises(PySparkException) as caught:
        stream.writeStream.format("noop").start().awaitTermination()
    assert text in str(caught.value)


def test_a_batch_read_has_no_copies(spark: SparkSession) -> None:
    options = {"onGap": "copy", "store": "a", "table": "operations"}
    with pytest.raises(PySparkException, match="for the oplog it is fail or states"):
        spark.read.format("oplog").options(**options).load().collect()

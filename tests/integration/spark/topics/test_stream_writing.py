"""Streaming queries that write to a topic, each batch once."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tests.integration.spark.topics.world import TOPIC, polled
from tests.kits.agents.agent import Agent
from tests.kits.agents.topics import Topic
from tests.kits.spark.helpers import log

ROWS = 40


class Lines:
    """A folder with files of lines, one batch each, and the query that publishes the lines."""

    def __init__(self, spark: SparkSession, folder: Path, agent: Agent) -> None:
        self._spark = spark
        self._folder = folder / "lines"
        self._folder.mkdir()
        self._checkpoint = folder / "checkpoint"
        self._agent = agent
        self._numbers = itertools.count()
        self.lines: list[str] = []

    def add(self, count: int = ROWS) -> None:
        lines = [f"line {next(self._numbers)}" for _ in range(count)]
        self.lines += lines
        number = len(list(self._folder.iterdir()))
        (self._folder / f"{number:03d}.txt").write_text("\n".join(lines) + "\n")

    def stream(self, partitions: int = 2) -> DataFrame:
        lines = self._spark.readStream.option("maxFilesPerTrigger", "1").text(str(self._folder))
        return lines.withColumnRenamed("value", "payload").repartition(partitions)

    def start(self, stream: DataFrame, **options: str) -> StreamingQuery:
        given = {"agent": self._agent.url, "topic": TOPIC, **options}
        writer = stream.writeStream.format("oplog").options(**given)
        return (
            writer.option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start()
        )

    def run(self, partitions: int = 2, **options: str) -> None:
        self.start(self.stream(partitions), **options).awaitTermination()

    def forget_commit(self) -> None:
        """Let Spark repeat the last batch, as if the driver had died before it noted the commit."""
        self._forget("commits")

    def forget_offsets(self) -> None:
        """Let Spark plan the last batch anew, as with an older copy of the checkpoint."""
        self._forget("offsets")

    def _forget(self, folder: str) -> None:
        files = (self._checkpoint / folder).iterdir()
        last = max((path for path in files if path.name.isdigit()), key=lambda path: int(path.name))
        last.unlink()
        (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


def payloads(topic: Topic) -> list[Any]:
    return [each["payload"] for each in polled(topic)]


def test_a_batch_that_is_repeated_with_other_partitions_is_published_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Agent(tmp_path) as agent:
        topic = Topic(agent, TOPIC).create()
        lines = Lines(spark, tmp_path, agent)
        lines.add()
        lines.run()
        assert sorted(payloads(topic)) == sorted(lines.lines)
        lines.forget_commit()
        lines.add()
        lines.run(partitions=3)
        assert sorted(payloads(topic)) == sorted(lines.lines)


def test_a_batch_beyond_the_limits_goes_through_once_the_agent_takes_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Agent(tmp_path, "--txn-max-records", "30") as agent:
        topic = Topic(agent, TOPIC).create()
        lines = Lines(spark, tmp_path, agent)
        lines.add(ROWS)
        with pytest.raises(StreamingQueryException) as caught:
            lines.run()
        flags = re.search(
            r"start the agents with (--txn-max-records 100000), then", str(caught.value)
        )
        assert flags is not None
        assert payloads(topic) == []
    listen = agent.url.removeprefix("http://")
    with Agent(tmp_path, *flags[1].split(), "--listen", listen) as agent:
        lines.add(ROWS // 2)  # of the next batch
        lines.run(partitions=1)
        assert sorted(payloads(Topic(agent, TOPIC))) == sorted(lines.lines)


def test_a_failing_task_publishes_nothing_and_the_next_run_each_row_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Agent(tmp_path) as agent:
        topic = Topic(agent, TOPIC).create()
        lines = Lines(spark, tmp_path, agent)
        lines.add()
        failing = lines.stream().withColumn(
            "payload", F.expr("if(payload = 'line 30', raise_error('a bad row'), payload)")
        )
        with pytest.raises(StreamingQueryException, match="a bad row"):
            lines.start(failing).awaitTermination()
        assert topic.poll_all() == []
        lines.run()
        assert sorted(payloads(topic)) == sorted(lines.lines)


def test_a_query_with_the_checkpoint_of_an_older_day_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Agent(tmp_path) as agent:
        topic = Topic(agent, TOPIC).create()
        lines = Lines(spark, tmp_path, agent)
        for _ in range(3):
            lines.add(1)
            lines.run()
        for _ in range(2):
            lines.forget_commit()
            lines.forget_offsets()
        lines.forget_commit()
        with pytest.raises(StreamingQueryException) as caught:
            lines.run()
        assert "batch 0 of the query has been followed by a later one" in str(caught.value)
        assert payloads(topic) == lines.lines


def test_a_stream_of_operations_is_appended_to_the_oplog(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Agent(tmp_path) as agent:
        lines = Lines(spark, tmp_path, agent)
        lines.add(3)
        stream = lines.stream(1).selectExpr("'insert' event", "'line' type", "payload id")
        places = {"agent": agent.url}, {"store": str(tmp_path / "oplog.db")}
        for number, where in enumerate(places, 1):
            writer = stream.writeStream.format("oplog").options(**where)
            writer = writer.option("checkpointLocation", str(tmp_path / f"checkpoint {number}"))
            writer.queryName(f"q{number}").trigger(availableNow=True).start().awaitTermination()
            keys = [json.loads(each.data)["id"] for each in log(tmp_path / "oplog.db")]
            assert keys == number * lines.lines


@pytest.mark.parametrize(
    ("options", "mode", "text"),
    [
        ({"topic": TOPIC, "store": "oplog.db"}, "append", "published through agents"),
        ({"topic": "orders", "agent": "http://a"}, "append", "option topic: "),
        ({"agent": "http://a", "start": "now"}, "append", "option start: "),
        ({"agent": "http://a"}, "append", "column event is missing"),
        ({"topic": TOPIC, "agent": "http://a"}, "complete", "outputMode complete: "),
    ],
)
def test_a_wrong_option_of_a_stream_is_named_at_its_start(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], mode: str, text: str
) -> None:
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines/1.txt").write_text("a\n")
    stream = spark.readStream.text(str(tmp_path / "lines")).withColumnRenamed("value", "payload")
    if mode == "complete":
        stream = stream.groupBy("payload").count()
    writer = stream.writeStream.format("oplog").options(**options).outputMode(mode)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(PySparkException) as caught:
        writer.trigger(availableNow=True).start().awaitTermination()
    assert text in str(caught.value)

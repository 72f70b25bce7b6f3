"""Measure a streaming query that publishes to a topic exactly once, beside at least once.

A query publishes files of lines, a file per batch. Then another one publishes the same files with
foreachBatch and a batch write: its tasks publish by themselves, so a repeated batch is doubled.
Both run on two standalone workers, or on --master. Prints the rows per second of both, from the
first batch after the warm-up to the last, and their ratio.

    python -m tests.bench.bench_spark_sink [--rows 500000] [--batch 50000] [--master local[2]]
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import oplog_sync
from tests.bench import kit
from tests.kits.agents.agent import Agent
from tests.kits.agents.topics import Topic
from tests.kits.spark.cluster import cluster

# Batches that do not count: Python's workers start.
WARM_UP = 2


def once(rows: DataFrame, options: dict[str, str]) -> Any:
    return rows.writeStream.format("oplog").options(**options)


def at_least_once(rows: DataFrame, options: dict[str, str]) -> Any:
    def write(batch: DataFrame, _: int) -> None:
        batch.write.format("oplog").options(**options).mode("append").save()

    return rows.writeStream.foreachBatch(write)


def rate(
    spark: SparkSession, folder: Path, agent: Agent, name: str, sink: Callable[..., Any]
) -> float:
    """Return the rows per second of a query into a topic of this name."""
    Topic(agent, f"bench/{name}").create()
    lines = spark.readStream.option("maxFilesPerTrigger", "1").text(str(folder / "lines"))
    rows = lines.withColumnRenamed("value", "payload").repartition(2)
    writer = sink(rows, {"agent": agent.url, "topic": f"bench/{name}"})
    writer = writer.option("checkpointLocation", str(folder / name))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    batches = [each for each in query.recentProgress if each["numInputRows"]][WARM_UP:]
    seconds = sum(each["durationMs"]["triggerExecution"] for each in batches) / 1000
    return float(sum(each["numInputRows"] for each in batches) / seconds)


def main() -> None:
    parser = kit.parser(__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--batch", type=int, default=50_000)
    parser.add_argument("--master", help="default: a cluster of two workers")
    given = parser.parse_args()
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "lines").mkdir()
        for file in range(WARM_UP + given.rows // given.batch):
            lines = (f"line {file} {row}: some text of a message\n" for row in range(given.batch))
            path = folder / f"lines/{file:05}.txt"
            path.write_text("".join(lines))
            os.utime(path, (time.time(), 1_000_000_000 + file))
        agent = stack.enter_context(Agent(folder, "--txn-max-records", str(given.batch)))
        master = given.master or stack.enter_context(cluster(folder, workers=2))
        builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
        builder = builder.config("spark.executor.memory", "512m")
        spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        oplog_sync.register(spark)
        exactly = rate(spark, folder, agent, "once", once)
        beside = rate(spark, folder, agent, "beside", at_least_once)
        spark.stop()
    other = {"foreachBatch, at least once": [beside]}
    figure = kit.Figure("a query that publishes exactly once", "rows/s", [exactly], other)
    kit.finish(f"{given.rows:,} rows, {given.batch:,} in a batch", [figure], given)


if __name__ == "__main__":
    main()

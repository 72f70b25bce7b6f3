"""A driver that publishes files of lines as a stream, with tasks that fail at their first attempt.

python -m tests.soak.publishing MASTER AGENT FOLDER PARTITIONS FAILING
"""

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

import oplog_sync

TOPIC = "soak/lines"


def failing(share: float) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a step in which a share of the tasks fails at its first attempt, after its rows."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        task = TaskContext.get()
        assert task is not None
        if not task.attemptNumber() and random.random() < share:
            raise RuntimeError("this task fails once")

    return step


def session(master: str) -> SparkSession:
    found = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.executor.memory", "512m")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    found.sparkContext.setLogLevel("OFF")
    oplog_sync.register(found)
    return found


def main() -> None:
    master, agent, folder, partitions, share = sys.argv[1:]
    spark = session(master)
    lines = spark.readStream.option("maxFilesPerTrigger", "1").text(f"{folder}/lines")
    rows = lines.withColumnRenamed("value", "payload").repartition(int(partitions))
    query = (
        rows.mapInArrow(failing(float(share)), rows.schema)
        .writeStream.format("oplog")
        .options(agent=agent, topic=TOPIC)
        .option("checkpointLocation", str(Path(folder) / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    for each in query.recentProgress:
        print(each["batchId"], each["numInputRows"], each["durationMs"], flush=True)
    spark.stop()


if __name__ == "__main__":
    main()

"""A streaming pipeline: keeps a table of current objects and hourly counts of operations.

    spark-submit pipeline.py (--store PATH | --agent URL) --out FOLDER [--once]

``FOLDER/objects`` is a Parquet table with the last operation of each live object.
``FOLDER/hourly`` counts the operations by hour, type and parent. ``FOLDER/checkpoint`` holds the
position: the pipeline continues there after any stop. Ctrl-C ends it with exit code 0; an error
prints one line and ends it with exit code 1. A repeated batch changes nothing: each batch writes a
version of its own, and the pointer to the current version is replaced last.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import oplog_sync

OBJECTS = "type string, id string, timestamp timestamp, parents array<string>, offset bigint"
HOURLY = "hour timestamp, type string, parent string, operations bigint"


class Tables:
    """Two Parquet tables that change together. ``folder`` is a local path."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._pointer = folder / "current.json"

    @property
    def batch(self) -> int:
        """The last batch in the tables, -1 before the first."""
        return int(json.loads(self._pointer.read_text())["batch"]) if self._pointer.exists() else -1

    def read(self, name: str, schema: str) -> DataFrame:
        if self.batch < 0:
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).parquet(str(self._path(name, self.batch)))

    def write(self, batch: int, **tables: DataFrame) -> None:
        for name, rows in tables.items():
            rows.write.mode("overwrite").parquet(str(self._path(name, batch)))
        written = self._pointer.with_suffix(".new")
        written.write_text(json.dumps({"batch": batch}))
        written.replace(self._pointer)
        for name in tables:  # keep the previous version: a reader may still use it
            for path in (self._folder / name).glob("version=*"):
                if int(path.name.partition("=")[2]) < batch - 1:
                    shutil.rmtree(path, ignore_errors=True)

    def _path(self, name: str, batch: int) -> Path:
        return self._folder / name / f"version={batch}"


def update(tables: Tables, operations: DataFrame, batch: int) -> None:
    """Fold a micro-batch into both tables."""
    if batch <= tables.batch:
        return  # Spark repeats a batch if it stopped before it recorded the end
    operations = operations.persist()
    known = tables.read("objects", OBJECTS).withColumn("event", F.lit("insert"))
    everything = known.unionByName(operations.select(*known.columns))
    newest = Window.partitionBy("type", "id").orderBy(F.desc("offset"))
    objects = (
        everything.withColumn("place", F.row_number().over(newest))
        .where("place = 1 AND event != 'delete'")
        .drop("place", "event")
    )
    counted = operations.select(
        F.date_trunc("hour", "logged").alias("hour"),
        "type",
        F.explode_outer("parents").alias("parent"),
    )
    counts = counted.groupBy("hour", "type", "parent").agg(F.count("*").alias("operations"))
    hourly = tables.read("hourly", HOURLY).unionByName(counts)
    hourly = hourly.groupBy("hour", "type", "parent").agg(F.sum("operations").alias("operations"))
    tables.write(batch, objects=objects, hourly=hourly)
    operations.unpersist()


def run(
    spark: SparkSession,
    source: dict[str, str],
    out: Path,
    once: bool,
    stopped: threading.Event | None = None,
) -> None:
    """Run the pipeline. ``source``: options of the data source.

    ``once``: read the present operations, then end. ``stopped`` ends the pipeline within a second.
    """
    oplog_sync.register(spark)
    out.mkdir(parents=True, exist_ok=True)
    tables = Tables(spark, out)
    operations = spark.readStream.format("oplog").options(**source).load()
    writer = operations.writeStream.foreachBatch(lambda rows, batch: update(tables, rows, batch))
    writer = writer.option("checkpointLocation", str(out / "checkpoint"))
    query = (
        writer.trigger(availableNow=True).start()
        if once
        else writer.trigger(processingTime="10 seconds").start()
    )
    while not query.awaitTermination(1):
        if stopped is not None and stopped.is_set():
            query.stop()


def reason(error: PySparkException) -> str:
    """Return the data source's error message, which Spark puts into a long trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own = [line for line in lines if line.startswith(("oplog_sync.errors.", "oplogd.errors."))]
    return own[-1].partition(": ")[2] if own else lines[0]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Operations as a table of objects and as hourly counts."
    )
    origin = parser.add_mutually_exclusive_group(required=True)
    origin.add_argument("--store")
    origin.add_argument("--agent")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--retry-for", default="10m", help="option retryFor; default: 10m")
    given = parser.parse_args(argv)
    source = (
        {"store": given.store, "start": "oldest"}
        if given.store
        else {"agent": given.agent, "start": "0"}
    )
    source["retryFor"] = given.retry_for
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers need this package as well
    spark = SparkSession.builder.appName("oplog-pipeline").getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")  # errors are printed below, in one line
    stopped = threading.Event()
    # PySpark's own handler would call Java in the middle of another call.
    signal.signal(signal.SIGINT, lambda *_: stopped.set())
    try:
        run(spark, source, given.out, given.once, stopped)
    except PySparkException as error:
        print(f"pipeline: {reason(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

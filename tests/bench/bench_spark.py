"""Measure a Spark stream of an oplog, from the store and from an agent, beside plain loops.

Spark reads all operations of a log in one batch, makes all columns and drops the rows. The plain
loops read the same from the same place in one Python process: the rows of SQLite, or the lines of
the event stream, and decode the JSON of each. Prints rows per second of both and their ratio. The
first query of a session starts Python's workers, so the second one counts.

    python -m tests.bench.bench_spark [--operations 500000] [--master local[2]]
"""

import http.client
import json
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import urlsplit

from pyspark.sql import DataFrame, SparkSession

import oplog_sync
from tests.bench import kit
from tests.kits.agents.agent import Agent
from tests.kits.spark.helpers import append, operation

_TIME = "2020-01-01T00:00:00.000Z"


def make_log(store: Path, operations: int) -> None:
    append(
        store,
        (
            operation("insert", "video", f"x{n:09d}", _TIME, f"user/{n % 9973}")
            for n in range(operations)
        ),
    )


def spark_rate(spark: SparkSession, options: dict[str, str], operations: int) -> float:
    """Return the rows per second of the batch that reads the log, as Spark reports its duration."""

    def drop(rows: DataFrame, batch: int) -> None:
        rows.write.format("noop").mode("overwrite").save()

    rate = 0.0
    for _ in range(2):
        stream = spark.readStream.format("oplog").options(**options).option("start", "oldest")
        with tempfile.TemporaryDirectory() as checkpoint:
            query = stream.load().writeStream.foreachBatch(drop).trigger(availableNow=True)
            running = query.option("checkpointLocation", checkpoint).start()
            running.awaitTermination()
        (batch,) = (each for each in running.recentProgress if each["numInputRows"])
        if batch["numInputRows"] != operations:
            raise SystemExit(f"Spark read {batch['numInputRows']} of {operations} rows")
        rate = operations / batch["durationMs"]["triggerExecution"] * 1000
    return rate


def loop_rate(rows: Iterable[str | bytes], operations: int) -> float:
    started = time.monotonic()
    for number, row in enumerate(rows, start=1):
        json.loads(row)
        if number == operations:
            return operations / (time.monotonic() - started)
    raise SystemExit("the plain loop read too few rows")


def rows_of_store(store: Path) -> Iterable[str]:
    for _, _, _, data in sqlite3.connect(store).execute("SELECT seq, ts, event, data FROM ops"):
        yield data


def lines_of_agent(url: str, first: str) -> Iterable[bytes]:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port)
    headers = {"Accept": "text/event-stream", "Last-Event-ID": first}
    connection.request("GET", "/ops", headers=headers)
    response = connection.getresponse()
    while line := response.readline():
        if line.startswith(b"data: "):
            yield line[6:]


def main() -> None:
    parser = kit.parser(__doc__)
    parser.add_argument("--operations", type=int, default=500_000)
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(given.master).config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    oplog_sync.register(spark)
    count = given.operations
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = folder / "oplog.db"
        make_log(store, count + 1)
        figures: list[kit.Figure] = []
        measures: list[tuple[str, dict[str, str], Callable[[], Iterable[str | bytes]]]]
        with Agent(folder) as agent:
            log = spark.read.format("oplog").option("store", str(store))
            oldest = log.option("table", "operations").load().select("event_id").first()
            assert oldest is not None
            measures = [
                ("store", {"store": str(store)}, lambda: rows_of_store(store)),
                ("agent", {"agent": agent.url}, lambda: lines_of_agent(agent.url, oldest[0])),
            ]
            for title, options, rows in measures:
                found = {
                    "Spark": [spark_rate(spark, options, count + 1)],
                    "a plain loop": [loop_rate(rows(), count)],
                }
                name = f"{count:,} operations from the {title}"
                figures.append(kit.compared(name, "rows/s", "Spark", found, float))
                print(f"  {figures[-1]}", flush=True)
    spark.stop()
    kit.finish("A Spark stream of an oplog, one batch", figures, given)


if __name__ == "__main__":
    main()

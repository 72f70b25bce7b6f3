"""Streaming queries for the tests of the data source."""

import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.kits.agents.agent import DEADLINE


def stream_of(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.readStream.format("oplog").options(**options).load()


class WrittenRow(NamedTuple):
    event_id: str
    offset: int
    event: str
    key: str


class StreamSink:
    """An idempotent sink: a batch that is repeated replaces itself."""

    def __init__(self) -> None:
        self._batches: dict[int, pa.Table] = {}
        self._changed = threading.Event()

    def start(self, stream: DataFrame, checkpoint: Path, **trigger: Any) -> StreamingQuery:
        changed = self._changed = threading.Event()

        def write(rows: DataFrame, batch: int) -> None:
            written = rows.select("event_id", "offset", "event", "key").toArrow()
            # Spark stops a query without waiting for this function: it may return, interrupted,
            # beside the next query.
            if self._changed is changed:
                self._batches[batch] = written
                changed.set()

        writer = stream.writeStream.foreachBatch(write).option(
            "checkpointLocation", str(checkpoint)
        )
        return writer.trigger(**trigger).start() if trigger else writer.start()

    def wait(self, query: StreamingQuery) -> None:
        """Wait until the query has written a batch. Spark may not yet have recorded it as done."""
        deadline = time.monotonic() + 4 * DEADLINE
        while not self._changed.wait(1):
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline, query.status

    def rows(self) -> list[WrittenRow]:
        columns = pa.concat_tables(self._batches.values()).sort_by("offset").columns
        return [
            WrittenRow(*row)
            for row in zip(*(column.to_pylist() for column in columns), strict=True)
        ]

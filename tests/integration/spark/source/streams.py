"""Streaming queries for the tests of the data source."""

import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from oplog_sync.source import make_origin
from oplog_sync.source.columns import arrow_batch, full_schema
from oplog_sync.source.options import read_options
from oplog_sync.source.stream import StreamReader
from tests.kits.agents.agent import DEADLINE


def stream_of(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.readStream.format("oplog").options(**options).load()


def reader_of(options: dict[str, str]) -> StreamReader:
    """Return the reader that Spark would get, for all columns."""
    checked = read_options(options, "stream")
    return StreamReader(checked, make_origin(checked), partial(arrow_batch, schema=full_schema()))


def _is_busy(error: StreamingQueryException | None) -> bool:
    """Return whether the machine was too busy: Spark gives a Python worker 10 s to start."""
    return "Python worker failed to connect back" in str(error)


class WrittenRow(NamedTuple):
    event_id: str
    offset: int
    event: str
    key: str


class StreamSink:
    """An idempotent sink of some columns: a batch that is repeated replaces itself."""

    def __init__(self, *columns: str) -> None:
        self._columns = columns or WrittenRow._fields
        self._batches: dict[int, pa.Table] = {}
        self._changed = threading.Event()

    def start(self, stream: DataFrame, checkpoint: Path, **trigger: Any) -> StreamingQuery:
        changed = self._changed = threading.Event()

        def write(rows: DataFrame, batch: int) -> None:
            written = rows.select(*self._columns).toArrow()
            # Spark stops a query without waiting for this function: it may return, interrupted,
            # beside the next query.
            if self._changed is changed:
                self._batches[batch] = written
                changed.set()

        writer = stream.writeStream.foreachBatch(write).option(
            "checkpointLocation", str(checkpoint)
        )
        return writer.trigger(**trigger).start() if trigger else writer.start()

    def complete(self, stream: DataFrame, checkpoint: Path) -> None:
        """Write all that there is now."""
        deadline = time.monotonic() + 4 * DEADLINE
        while True:
            try:
                self.start(stream, checkpoint, availableNow=True).awaitTermination()
            except StreamingQueryException as error:
                if not _is_busy(error) or time.monotonic() > deadline:
                    raise
            else:
                return

    def begin(self, stream: DataFrame, checkpoint: Path) -> StreamingQuery:
        """Start a query, and wait until it has written a batch.

        Spark may not yet have recorded the batch as done.
        """
        query = self.start(stream, checkpoint)
        while not self._has_written(query):
            query = self.start(stream, checkpoint)
        return query

    def wait(self, query: StreamingQuery) -> None:
        """Wait until the query has written a batch."""
        assert self._has_written(query), query.exception()

    def _has_written(self, query: StreamingQuery) -> bool:
        """Wait for a batch. Return False if the machine was too busy for the query."""
        deadline = time.monotonic() + 4 * DEADLINE
        while not self._changed.wait(1):
            if not query.isActive:
                assert _is_busy(query.exception()), query.exception()
                return False
            assert time.monotonic() < deadline, query.status
        return True

    @property
    def has_batches(self) -> bool:
        return bool(self._batches)

    def rows(self) -> list[WrittenRow]:
        columns = self.table("offset").columns
        return [
            WrittenRow(*row)
            for row in zip(*(column.to_pylist() for column in columns), strict=True)
        ]

    def table(self, order: str) -> pa.Table:
        """Return all rows, sorted by a column."""
        return pa.concat_tables(self._batches.values()).sort_by(order)

"""Let Spark load its classes and start its Python workers while the job is planned."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa
from pyspark.sql import SparkSession

# The job's functions need them, and workers keep what they have imported.
import oplog_sync.comparison.states
import oplog_sync.dump.rows  # noqa: F401


@contextmanager
def warming_up(spark: SparkSession) -> Iterator[None]:
    """Run a small query of the job's kind beside the block. Executors of a cluster gain nothing."""
    if not (spark.sparkContext.master or "").startswith("local"):
        yield
        return
    thread = threading.Thread(target=_query, args=(spark,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()  # a worker that loses its Java prints a traceback


def _query(spark: SparkSession) -> None:
    with suppress(Exception):
        spark.range(0, 2, 1, 2).mapInArrow(_same, "id bigint").collect()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches

"""Let Spark load its classes and start its Python workers while the job is planned."""

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
from pyspark.sql import SparkSession


def warm_up(spark: SparkSession) -> None:
    """Run a small query of the job's kind. Does not fail."""
    with suppress(Exception):
        spark.range(0, 2, 1, 2).mapInArrow(_imported, "id bigint").collect()


def _imported(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    # Forked workers keep what they have imported.
    import oplog_sync.comparison.states
    import oplog_sync.dump.rows  # noqa: F401

    yield from batches

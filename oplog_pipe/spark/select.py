"""The query of a sink: SQL over the messages of a batch and over tables."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from oplog_pipe.config.build import INPUT
from oplog_pipe.errors import BrokenBatchError, ConfigError, SinkError
from oplog_pipe.model.settings import SinkSettings
from oplog_pipe.spark.place import located
from oplog_pipe.spark.tasks.rows import COLUMNS, LIVE, OPS, WRONG, Row, ends_of
from oplog_pipe.spark.tasks.work import SinkWork, keep
from oplog_sync.failure import SPARK_ERRORS, reason

# What a sink needs of the result of a query.
_NEEDED = ("op", "type", "id", "timestamp", "version", "source", "data")


@contextmanager
def kept(rows: DataFrame, work: SinkWork) -> Iterator[DataFrame]:
    """Yield the rows whose namespaces match. They are read once, also for several queries.

    Raises BrokenBatchError at the end if some were read again: operations before, a copy now.
    """
    found = rows.mapInArrow(partial(keep, work), COLUMNS).persist(StorageLevel.DISK_ONLY)
    try:
        before = _ends(found)
        yield found
        if _ends(found) != before:
            raise BrokenBatchError("a part of the batch was read twice, so it is repeated")
    finally:
        found.unpersist()


def _ends(rows: DataFrame) -> dict[str, int]:
    return ends_of(Row(*each) for each in rows.where(F.col("op") == LIVE).collect())


def messages(rows: DataFrame) -> DataFrame:
    """Return ``input``: the messages among rows, with the columns that users see."""
    return rows.where(F.col("op").isin(*OPS)).select(
        "op",
        F.col("namespace").alias("type"),
        "id",
        F.timestamp_millis("timestamp").alias("timestamp"),
        "version",
        "source",
        "data",
        F.timestamp_millis("at").alias("logged"),
        "place",
    )


def selected(rows: DataFrame, sink: SinkSettings, root: Path, place: str) -> DataFrame:
    """Return the result of the query over messages; without a query the messages.

    ``place``: of the sink in the file, such as ``sinks[0]``. Raises ConfigError.
    """
    if sink.select is None:
        return rows
    session = rows.sparkSession
    rows.createOrReplaceTempView(INPUT)
    for table in sink.tables:
        try:
            reader = session.read.format(table.format).options(**table.options)
            found = reader.load() if table.path is None else reader.load(located(table.path, root))
        except SPARK_ERRORS as error:
            raise SinkError(f"{place}.tables.{table.name}: {reason(error)}") from error
        found.createOrReplaceTempView(table.name)
    try:
        result = session.sql(sink.select)
    except PySparkException as error:
        raise ConfigError(f"{place}.select: {reason(error)}") from error
    names = [each.lower() for each in result.columns]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{place}.select: the result has two columns {name}")
    return result


def for_sink(rows: DataFrame, work: SinkWork) -> DataFrame:
    """Return rows for the tasks of a sink, behind its query. ``rows``: see ``kept``."""
    found = selected(messages(rows), work.sink, work.root, work.place)
    if missing := [name for name in _NEEDED if name not in found.columns]:
        raise ConfigError(f"{work.place}.select: the result has no column {missing[0]}")
    logged = F.unix_millis("logged") if "logged" in found.columns else F.lit(0)
    place = F.col("place") if "place" in found.columns else F.lit(0)
    op = F.col("op")
    columns = found.select(
        F.when(op.isin(*OPS), op).otherwise(F.lit(WRONG)).alias("op"),
        "source",
        F.col("version").cast("bigint"),
        logged.cast("bigint").alias("at"),
        place.cast("bigint").alias("place"),
        F.col("type").cast("string").alias("namespace"),
        F.col("id").cast("string"),
        F.unix_millis(F.col("timestamp").cast("timestamp")).alias("timestamp"),
        F.col("data").cast("string"),
        F.lit(None).cast("string").alias("letter"),
    )
    return rows.where(~F.col("op").isin(*OPS)).unionByName(columns)

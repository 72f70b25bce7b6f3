"""The query of a sink: SQL over the messages of a batch and over tables."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from oplog_pipe.config.build import INPUT
from oplog_pipe.errors import BrokenBatchError, ConfigError
from oplog_pipe.model.settings import SinkSettings
from oplog_pipe.spark.place import located
from oplog_pipe.spark.tasks.rows import (
    COLUMNS,
    OPS,
    REPORT,
    WRONG,
    WRONG_OP,
    Report,
    Row,
    told_of,
)
from oplog_pipe.spark.tasks.work import SinkWork, keep
from oplog_sync.failure import SPARK_ERRORS, reason

# What a sink needs of the result of a query.
_NEEDED = ("op", "type", "id", "timestamp", "version", "source", "data")


class Kept(NamedTuple):
    """Rows of a batch, kept by Spark.

    ``others``: those that are no messages. ``first``, ``last``: the smallest and the largest
    version of the messages; None: there are none.
    """

    rows: DataFrame
    others: list[Row]
    first: int | None = None
    last: int | None = None


@contextmanager
def kept(rows: DataFrame, work: SinkWork) -> Iterator[Kept]:
    """Yield the rows whose namespaces match. They are read once, also for several queries.

    Raises BrokenBatchError at the end if some were read again: operations before, a copy now.
    """
    found = rows.mapInArrow(partial(keep, work), COLUMNS).persist(StorageLevel.DISK_ONLY)
    try:
        others = _others(found)
        versions = [
            version
            for each in told_of(others, REPORT, Report)
            for version in (each.first, each.last)
            if version is not None
        ]
        yield Kept(found, others, min(versions, default=None), max(versions, default=None))
        if sorted(_others(found)) != sorted(others):
            raise BrokenBatchError("a part of the batch was read twice, so it is repeated")
    finally:
        found.unpersist()


def _others(rows: DataFrame) -> list[Row]:
    return [Row(*each) for each in rows.where(~F.col("op").isin(*OPS)).collect()]


@contextmanager
def analysing(place: str) -> Iterator[None]:
    """Raise ConfigError for a result of the query that does not fit."""
    try:
        yield
    except AnalysisException as error:
        raise ConfigError(f"{place}.select: {reason(error)}") from error


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

    ``place``: of the sink in the file, such as ``sinks[0]``. Raises ConfigError, BrokenBatchError.
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
            # Others may be writing it anew.
            raise BrokenBatchError(f"{place}.tables.{table.name}: {reason(error)}") from error
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


def problem(kept: Kept, work: SinkWork) -> Column:
    """Return a sentence for each row of a result that has no place in the batch, and else null.

    The ends of copies compare sources and versions. Nulls have no sentence, except as an ``op``.
    """
    version = F.col("version").cast("bigint")
    is_outside = F.lit(True)
    if kept.first is not None and kept.last is not None:
        is_outside = ~version.between(kept.first, kept.last)
    is_foreign = ~F.col("source").isin(*work.sources)
    return (
        F.when(~F.coalesce(F.col("op").isin(*OPS), F.lit(False)), F.lit(WRONG_OP))
        .when(is_foreign, F.lit("source of a row is none of the sources"))
        .when(is_outside, F.lit("version of a row is not one of the batch's"))
    )


def for_sink(kept: Kept, work: SinkWork) -> DataFrame:
    """Return rows for the tasks of a sink, behind its query."""
    found = selected(messages(kept.rows), work.sink, work.root, work.place)
    if missing := [name for name in _NEEDED if name not in found.columns]:
        raise ConfigError(f"{work.place}.select: the result has no column {missing[0]}")
    logged = F.unix_millis("logged") if "logged" in found.columns else F.lit(0)
    place = F.col("place") if "place" in found.columns else F.lit(0)
    sentence = problem(kept, work)
    with analysing(work.place):
        columns = found.select(
            F.when(sentence.isNull(), F.col("op")).otherwise(F.lit(WRONG)).alias("op"),
            F.col("source").cast("string"),
            F.col("version").cast("bigint"),
            logged.cast("bigint").alias("at"),
            place.cast("bigint").alias("place"),
            F.col("type").cast("string").alias("namespace"),
            F.col("id").cast("string"),
            F.unix_millis(F.col("timestamp").cast("timestamp")).alias("timestamp"),
            F.col("data").cast("string"),
            sentence.alias("letter"),
        )
        return kept.rows.where(~F.col("op").isin(*OPS)).unionByName(columns)

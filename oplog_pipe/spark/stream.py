"""The rows of a sink: its sources as streams of Spark, and the order in which tasks get them."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from oplog_pipe.model.settings import SinkSettings, SourceSettings
from oplog_pipe.sinks.base import Owned, Sink
from oplog_pipe.spark.place import located
from oplog_pipe.spark.tasks.rows import COLUMNS
from oplog_pipe.spark.tasks.work import SinkWork, change, write

# The columns that the source makes. Others cost more.
_READ = (
    "version bigint, logged timestamp, offset bigint, event string, type string, id string,"
    " timestamp timestamp, data string"
)
# A pattern that the agent can filter by itself: types are in lower case.
_TYPE = re.compile(r"\^([a-z0-9_-]+)\$", re.ASCII)


def stream(
    spark: SparkSession,
    sources: Sequence[SourceSettings],
    sink: SinkSettings,
    root: Path,
    limit: int,
) -> DataFrame:
    """Return the rows of all sources.

    ``root``: folder of the settings file. ``limit``: operations of a batch from each source.
    """
    found: DataFrame | None = None
    # Spark notes positions by the place of a source, not by its name.
    for source in sorted(sources, key=lambda each: each.name):
        rows = _source(spark, source, sink, root, limit)
        found = rows if found is None else found.unionByName(rows)
    assert found is not None
    return found


def _source(
    spark: SparkSession, source: SourceSettings, sink: SinkSettings, root: Path, limit: int
) -> DataFrame:
    origin: dict[str, str | None]
    if source.store is not None:
        origin = {"store": located(source.store, root)}
    else:
        origin = {
            "agent": ",".join(source.agents),
            "password": source.password,
            "caFile": source.tls.ca_file,
            "certFile": source.tls.cert_file,
            "keyFile": source.tls.key_file,
        }
    options = {
        **origin,
        "start": "now" if sink.start == "end" else "0",
        "onGap": "copy",
        "maxOperationsPerTrigger": str(limit),
        "types": _only_type(source.namespace, sink.namespace),
    }
    given = {name: value for name, value in options.items() if value is not None}
    rows = spark.readStream.format("oplog").schema(_READ).options(**given).load()
    return rows.select(
        F.col("event").alias("op"),
        F.lit(source.name).alias("source"),
        "version",
        F.unix_millis("logged").alias("at"),
        F.col("offset").alias("place"),
        F.col("type").alias("namespace"),
        "id",
        F.unix_millis("timestamp").alias("timestamp"),
        "data",
        F.lit(None).cast("string").alias("letter"),
    )


def _only_type(*patterns: str) -> str | None:
    """Return the only type that all patterns match. None: there may be several, or none."""
    return next((found[1] for each in patterns if (found := _TYPE.fullmatch(each))), None)


def numbered(rows: DataFrame) -> DataFrame:
    """Return the rows of a batch with their places in the log, or among the rows that were read.

    Agents do not tell the offset of a copied object: then it is 0. Spark refuses numbers of rows in
    a stream.
    """
    place = F.col("place")
    number = F.when(place > 0, place).otherwise(F.monotonically_increasing_id())
    return rows.withColumn("place", number)


def told(rows: DataFrame, work: SinkWork, sink: Sink, tasks: int) -> DataFrame:
    """Return what the tasks of a batch tell: rows that are no messages. They write the others.

    The messages of an object go to one task, the newest last. Messages that steps bring to one
    object do so, too. ``tasks``: their number.
    """
    if work.sink.transforms:
        rows = rows.repartition(tasks, "id").mapInArrow(partial(change, work), COLUMNS)
    order = ("version", "at", "place")
    by = ("id", *order) if isinstance(sink, Owned) else order
    ordered = rows.repartition(tasks, "id").sortWithinPartitions(*by)
    return ordered.mapInArrow(partial(write, work), COLUMNS)

"""The rows of a sink: its sources as streams of Spark, and the order in which tasks get them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from oplog_pipe.message import namespace_filter
from oplog_pipe.model.settings import OPLOG, SinkSettings, SourceSettings
from oplog_pipe.sinks.base import Owned, Sink
from oplog_pipe.spark.place import store_of
from oplog_pipe.spark.tasks.rows import COLUMNS
from oplog_pipe.spark.tasks.work import SinkWork, change, write

# The columns that the source makes. Others cost more.
_READ = (
    "version bigint, logged timestamp, offset bigint, event string, type string, id string,"
    " timestamp timestamp, data string"
)
_READ_OF_TOPIC = "time timestamp, event string, topic string, key string, id string, data string"
_ON_GAP = {"stop": "fail", "continue": "oldest"}
# A pattern that the agent can filter by itself: types are in lower case.
_TYPE = re.compile(r"\^([a-z0-9_-]+)\$", re.ASCII)


@dataclass(frozen=True)
class Reading:
    """What the rows of a sink depend on, besides its sources.

    ``root``: folder of the settings file. ``limit``: operations of a batch from each source.
    """

    spark: SparkSession
    sink: SinkSettings
    root: Path
    limit: int

    def stream(self, sources: Sequence[SourceSettings]) -> DataFrame:
        """Return the rows of these sources, with their versions in the log of each.

        Spark notes positions by the place of a source, not by its name.
        """
        found: DataFrame | None = None
        for source in sources:
            rows = self._oplog(source) if source.log == OPLOG else self._topic(source)
            found = rows if found is None else found.unionByName(rows)
        assert found is not None
        return found

    def _oplog(self, source: SourceSettings) -> DataFrame:
        options = {
            "start": "now" if self.sink.start == "end" else "0",
            "onGap": "copy",
            "types": _only_type(source.namespace, self.sink.namespace),
        }
        return _shaped(self._load(source, _READ, options), source)

    def _topic(self, source: SourceSettings) -> DataFrame:
        options = {
            "topic": source.log,
            "isolation": source.isolation,
            "start": "now" if self.sink.start == "end" else "oldest",
            "onGap": _ON_GAP[source.on_gap],
        }
        rows = self._load(source, _READ_OF_TOPIC, options).select(
            "event",
            F.unix_millis("time").alias("version"),
            F.col("time").alias("logged"),
            F.lit(0).cast("bigint").alias("offset"),
            F.col("topic").alias("type"),
            F.coalesce("key", "id").alias("id"),
            F.col("time").alias("timestamp"),
            "data",
        )
        return _shaped(rows, source)

    def _load(
        self, source: SourceSettings, columns: str, options: Mapping[str, str | None]
    ) -> DataFrame:
        origin: dict[str, str | None]
        if source.store is not None:
            origin = {"store": store_of(source.store, self.root)}
        else:
            origin = {
                "agent": ",".join(source.agents),
                "password": source.password,
                "caFile": source.tls.ca_file,
                "certFile": source.tls.cert_file,
                "keyFile": source.tls.key_file,
            }
        all_ = {**origin, "maxOperationsPerTrigger": str(self.limit), **options}
        given = {name: value for name, value in all_.items() if value is not None}
        return self.spark.readStream.format("oplog").schema(columns).options(**given).load()


def _shaped(rows: DataFrame, source: SourceSettings) -> DataFrame:
    """Return rows with the columns of tasks. ``rows``: with those of ``_READ``."""
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


def read_by(sink: SinkSettings, sources: Sequence[SourceSettings]) -> list[SourceSettings]:
    """Return the sources that can have messages for a sink, or all if there is none, by name."""

    def has_some(source: SourceSettings) -> bool:
        patterns = (source.namespace, sink.namespace)
        return source.log == OPLOG or all(namespace_filter(each)(source.log) for each in patterns)

    found = [each for each in sources if has_some(each)] or sources
    return sorted(found, key=lambda each: each.name)


def _only_type(*patterns: str) -> str | None:
    """Return the only type that all patterns match. None: there may be several, or none."""
    return next((found[1] for each in patterns if (found := _TYPE.fullmatch(each))), None)


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

"""The Spark data source ``oplog``."""

import re
from collections.abc import MutableMapping
from functools import partial
from typing import ClassVar

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from oplog_sync.errors import OptionError
from oplog_sync.session import hide_secrets
from oplog_sync.source.agent.origin import AgentOrigin
from oplog_sync.source.batch import BatchReader, StatesReader
from oplog_sync.source.columns import arrow_batch, check_schema, full_schema
from oplog_sync.source.copies import Copying, CopyingOrigin, versioned_batch, versioned_schema
from oplog_sync.source.http import addresses
from oplog_sync.source.options import SourceOptions, Use, checked, read_options
from oplog_sync.source.origin import Origin, ToArrow
from oplog_sync.source.place import check_local
from oplog_sync.source.store import StoreOrigin
from oplog_sync.source.stream import StreamReader
from oplog_sync.source.topic import topic_origin, topic_stream_writer, topic_writer
from oplog_sync.source.write import OplogWriter, StreamWriter
from oplog_sync.topics.columns import topic_schema

__all__ = ["OplogDataSource", "register"]

# Options of a streaming query, which Spark hands to its sink, too.
_OF_QUERIES = ("checkpointlocation", "queryname")
# A user, or a parameter with a secret, in the URL of a database.
_CREDENTIALS = re.compile(r"^[^?]*@|[?&][^=&]*(?:pass|secret|token|mechanismprop)", re.IGNORECASE)


def register(spark: SparkSession) -> None:
    """Register ``format("oplog")`` with a session, and hide passwords in what Spark shows.

    Without this call a session finds the source by its package ``pyspark_oplog``. Then a store with
    a password in its URL is refused.
    """
    master = spark.conf.get("spark.master", None)
    hide_secrets(spark)
    spark.dataSource.register(
        type("RegisteredOplogDataSource", (OplogDataSource,), {"master": master, "hides": True})
    )


def make_origin(options: SourceOptions) -> Copying:
    return AgentOrigin(options) if options.agent else StoreOrigin(options)


def check_master(options: SourceOptions, master: str | None) -> None:
    """Raise OptionError if tasks on other machines would read a file of this machine."""
    if options.store is not None and options.backend().needs_local_master:
        check_local(master)


class OplogDataSource(DataSource):
    """The data source ``oplog``. docs/reference/spark.md describes its options."""

    # The session's master, None if it is not known.
    master: ClassVar[str | None] = None
    # Whether the session hides passwords in the options.
    hides: ClassVar[bool] = False

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        # Before a plan shows them. Statements of SQL have been noted by Spark even now.
        shown = (value for name, value in options.items() if name.lower() in ("store", "path"))
        if not self.hides and any(map(_CREDENTIALS.search, shown)):
            raise OptionError(
                "option store: the URL holds a password, which Spark would show; put the URL into "
                "a file and give storeFile, or call oplog_sync.register(spark), which hides it"
            )
        for name, value in options.items():
            if name.lower() == "agent":
                checked(name, addresses, value)

    @classmethod
    def name(cls) -> str:
        return "oplog"

    def schema(self) -> StructType:
        given = {name.lower(): value for name, value in self.options.items()}
        if "topic" not in given:
            return versioned_schema() if given.get("ongap") == "copy" else full_schema()
        return topic_schema(is_binary=given.get("binary") == "true")

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._options("batch")
        if options.topic is None and options.table == "states":
            check_schema(schema)
            return StatesReader(options, schema)
        return BatchReader(options, *self._origin(options, schema))

    def streamReader(self, schema: StructType) -> StreamReader:
        options = self._options("stream")
        return StreamReader(options, *self._origin(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise OptionError("mode overwrite: a log can only be appended to; use mode append")
        options = self._options("write")
        return (OplogWriter if options.topic is None else topic_writer)(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        if overwrite:
            raise OptionError("outputMode complete: a log can only be appended to; use append")
        for name in [name for name in self.options if name.lower() in _OF_QUERIES]:
            del self.options[name]
        options = self._options("write")
        return (StreamWriter if options.topic is None else topic_stream_writer)(options, schema)

    def _origin(self, options: SourceOptions, schema: StructType) -> tuple[Origin, ToArrow]:
        if options.topic is not None:
            origin, columns = topic_origin(options, schema)
            return origin, columns.batch
        if options.is_mirror:
            check_schema(schema, versioned_schema())
            return CopyingOrigin(make_origin(options)), partial(versioned_batch, schema=schema)
        check_schema(schema)
        return make_origin(options), partial(arrow_batch, schema=schema)

    def _options(self, use: Use) -> SourceOptions:
        options = read_options(self.options, use)
        check_master(options, self.master)
        return options

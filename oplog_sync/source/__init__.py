"""The Spark data source ``oplog``."""

from typing import ClassVar

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from oplog_sync.errors import OptionError
from oplog_sync.source.batch import BatchReader, PushingReader
from oplog_sync.source.columns import check_schema, full_schema
from oplog_sync.source.options import SourceOptions, read_options
from oplog_sync.source.place import check_local
from oplog_sync.source.stream import StreamReader
from oplog_sync.source.write import OplogWriter

__all__ = ["OplogDataSource", "register"]


def register(spark: SparkSession) -> None:
    """Register ``spark.read.format("oplog")`` with a session, and enable its filter pushdown."""
    master = spark.conf.get("spark.master", None)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(
        type("RegisteredOplogDataSource", (OplogDataSource,), {"master": master})
    )


def check_master(options: SourceOptions, master: str | None) -> None:
    """Raise OptionError if tasks on other machines would read a file of this machine."""
    if options.store is not None and options.backend().needs_local_master:
        check_local(master)


class OplogDataSource(DataSource):
    """The data source ``oplog``. docs/reference/sync.md describes its options."""

    master: ClassVar[str | None] = None

    @classmethod
    def name(cls) -> str:
        return "oplog"

    def schema(self) -> StructType:
        return full_schema()

    def reader(self, schema: StructType) -> BatchReader:
        options = self._options()
        if options.store is None:
            raise OptionError("option agent: an agent serves streams only; give store instead")
        check_schema(schema)
        return (PushingReader if options.push_filters else BatchReader)(options, schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        options = self._options()
        check_schema(schema)
        return StreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> OplogWriter:
        if overwrite:
            raise OptionError("mode overwrite: a log can only be appended to; use mode append")
        return OplogWriter(self._options(), schema)

    def _options(self) -> SourceOptions:
        options = read_options(self.options)
        check_master(options, self.master)
        return options

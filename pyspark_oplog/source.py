"""The class that Spark registers. It loads the data source only when a query uses it."""

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """Makes an OplogDataSource of a session that has not called ``oplog_sync.register``."""

    @classmethod
    def name(cls) -> str:
        return "oplog"

    def __new__(cls, options: MutableMapping[str, str]) -> DataSource:  # type: ignore[misc]
        from oplog_sync.source import OplogDataSource

        return OplogDataSource(options)

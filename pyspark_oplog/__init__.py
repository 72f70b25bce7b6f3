"""The name by which Spark finds the data source ``oplog`` without ``oplog_sync.register``.

Spark (4.1 or later) imports each top-level package whose name starts with ``pyspark_``, once per
session, and registers its class ``DefaultSource``.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_oplog.source import DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    # Load Spark only when it is needed: programs without PySpark may import this package.
    if name == "DefaultSource":
        from pyspark_oplog.source import DefaultSource

        return DefaultSource
    raise AttributeError(name)

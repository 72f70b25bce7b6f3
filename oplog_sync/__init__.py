"""Correct an oplog from a dump of the source, and read or write it from Spark."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oplog_sync.source import register

__all__ = ["register"]


def __getattr__(name: str) -> Any:
    # Load Spark only when it is needed: the command's --help does not need it.
    if name == "register":
        from oplog_sync.source import register

        return register
    raise AttributeError(name)

"""Correct an oplog from a dump of the source, and read or write it from Spark."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oplog_sync.source import register

__all__ = ["register"]


def __getattr__(name: str) -> Any:
    # Spark is loaded only by what uses it: the command's --help does not.
    if name == "register":
        from oplog_sync.source import register

        return register
    raise AttributeError(name)

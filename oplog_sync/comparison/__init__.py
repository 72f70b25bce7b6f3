"""The comparison of a dump with the states of a store."""

from oplog_sync.comparison.steps import Comparison, Look

__all__ = ["Comparison", "Look"]

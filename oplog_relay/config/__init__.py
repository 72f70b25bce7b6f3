"""The settings file: read, checked, with the names of its fields."""

from oplog_relay.config.checks import check
from oplog_relay.config.file import load

__all__ = ["check", "load"]

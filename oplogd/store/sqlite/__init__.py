"""The embedded store: one SQLite file in WAL mode."""

from oplogd.store.sqlite.file.schema import APPLICATION_ID, MIGRATIONS
from oplogd.store.sqlite.log.log import find_identity, read_bounds, seek
from oplogd.store.sqlite.store import DEFAULT_CAP_BYTES, SqliteStore

__all__ = [
    "APPLICATION_ID",
    "DEFAULT_CAP_BYTES",
    "MIGRATIONS",
    "SqliteStore",
    "find_identity",
    "read_bounds",
    "seek",
]

"""The databases of stores, a module for each."""

from pathlib import Path

from oplog_kit.extras import how_to_install, is_installed
from oplog_sync.backend.base import (
    CHUNK_BYTES,
    CHUNK_ROWS,
    NEW_LOG,
    Backend,
    NewLog,
    OpenTopic,
    Range,
    StoreRow,
    Wanted,
    split,
)
from oplog_sync.backend.sqlite import SqliteBackend
from oplog_sync.errors import OptionError

__all__ = [
    "CHUNK_BYTES",
    "CHUNK_ROWS",
    "NEW_LOG",
    "Backend",
    "NewLog",
    "OpenTopic",
    "Range",
    "StoreRow",
    "Wanted",
    "split",
]

NO_STORE = "option store: name the SQLite file or the MongoDB URL that holds the log"


def make_backend(store: str) -> Backend:
    """Return the backend of a store: the path of a SQLite file, or a MongoDB URL.

    Raises OptionError if it cannot be parsed, or if PyMongo is missing.
    """
    scheme, mark, rest = store.partition("://")
    if mark and scheme.lower() in ("mongodb", "mongodb+srv"):
        if not is_installed("pymongo"):
            raise OptionError(f"MongoDB needs PyMongo; {how_to_install('sync')}")
        from oplog_sync.backend.mongo import MongoBackend  # a job on SQLite loads no PyMongo

        return MongoBackend(f"{scheme.lower()}://{rest}")
    if not store:
        raise OptionError(NO_STORE)
    return SqliteBackend(Path(store))

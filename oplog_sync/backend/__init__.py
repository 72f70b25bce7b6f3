"""The databases a store can live in, a module for each."""

from pathlib import Path

from oplog_sync.backend.base import NEW_LOG, Backend, NewLog, Range, Row, Wanted, split
from oplog_sync.backend.sqlite import SqliteBackend
from oplog_sync.errors import OptionError

__all__ = ["NEW_LOG", "Backend", "NewLog", "Range", "Row", "Wanted", "make_backend", "split"]


def make_backend(store: str) -> Backend:
    """``store``: the path of a SQLite file or a MongoDB URL. Raises OptionError for what cannot be read."""
    if store.startswith(("mongodb://", "mongodb+srv://")):
        from oplog_sync.backend.mongo import MongoBackend  # a job on SQLite loads no PyMongo

        return MongoBackend(store)
    if not store:
        raise OptionError(
            "option store: name the SQLite file or the MongoDB URL that holds the log"
        )
    return SqliteBackend(Path(store))

"""The use of a file, found without changing it."""

import contextlib
import sqlite3
from enum import Enum, auto
from pathlib import Path
from urllib.parse import quote

_PATIENCE_SECONDS = 1.0


class FileUse(Enum):
    """How a file is used now."""

    FREE = auto()
    OPEN = auto()  # by another process
    EMPTY = auto()  # nothing was ever stored
    UNKNOWN = auto()  # SQLite fails


def file_use(path: Path) -> FileUse:
    """Return how an existing file is used. For UNKNOWN, opening it as a store gives the reason."""
    try:
        address = f"file:{quote(str(path))}?mode=rw"
        with contextlib.closing(
            sqlite3.connect(address, _PATIENCE_SECONDS, isolation_level=None, uri=True)
        ) as db:
            # In WAL mode every connection holds a shared lock, which excludes this one.
            db.execute("PRAGMA locking_mode = EXCLUSIVE")
            (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            db.execute("BEGIN EXCLUSIVE")
            db.execute("ROLLBACK")
    except sqlite3.Error as error:
        is_busy = getattr(error, "sqlite_errorname", "").startswith(
            ("SQLITE_BUSY", "SQLITE_LOCKED")
        )
        return FileUse.OPEN if is_busy else FileUse.UNKNOWN
    return FileUse.FREE if tables else FileUse.EMPTY

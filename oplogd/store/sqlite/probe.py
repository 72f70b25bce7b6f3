"""A look at a file before anything is changed in it."""

import contextlib
import sqlite3
from enum import Enum, auto
from pathlib import Path
from urllib.parse import quote

_PATIENCE_SECONDS = 1.0


class Use(Enum):
    """FREE: nobody has it open. OPEN: another process has. EMPTY: nothing was ever stored in it. UNKNOWN: SQLite fails."""

    FREE = auto()
    OPEN = auto()
    EMPTY = auto()
    UNKNOWN = auto()


def look_at(path: Path) -> Use:
    """How an existing file is used now. What is UNKNOWN is told by opening it as a store."""
    try:
        address = f"file:{quote(str(path))}?mode=rw"
        with contextlib.closing(
            sqlite3.connect(address, _PATIENCE_SECONDS, isolation_level=None, uri=True)
        ) as db:
            # In WAL mode every connection keeps a shared lock on the file, which this lock excludes.
            db.execute("PRAGMA locking_mode = EXCLUSIVE")
            (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            db.execute("BEGIN EXCLUSIVE")
            db.execute("ROLLBACK")
    except sqlite3.Error as error:
        is_busy = getattr(error, "sqlite_errorname", "").startswith(
            ("SQLITE_BUSY", "SQLITE_LOCKED")
        )
        return Use.OPEN if is_busy else Use.UNKNOWN
    return Use.FREE if tables else Use.EMPTY

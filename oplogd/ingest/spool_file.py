"""The SQLite file of the spool: its rows, its lock, and its replacement by another file."""

import contextlib
import logging
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from oplogd.errors import StoreError
from oplogd.model.operation import Operation
from oplogd.store import BatchId

PRAGMAS = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"

_SCHEMA = """
    CREATE TABLE IF NOT EXISTS spool (
        id INTEGER PRIMARY KEY, writer TEXT NOT NULL, sequence INTEGER NOT NULL,
        event TEXT NOT NULL, key TEXT NOT NULL, data BLOB NOT NULL
    );
"""
_LAST = "SELECT coalesce(max(id), 0) FROM spool"
_FILL = """
    SELECT count(*), coalesce(sum(length(CAST(key AS BLOB)) + length(data)), 0)
    FROM spool WHERE id > ?
"""
_PUT = "INSERT INTO spool (writer, sequence, event, key, data) VALUES (?, ?, ?, ?, ?)"
_FIRST = "SELECT id, writer, sequence, event, key, data FROM spool WHERE id > ? ORDER BY id"
_DROP = "DELETE FROM spool WHERE id <= ?"
# Writes a page even if no row is deleted, so that a file that cannot be written shows it.
_TOUCH = "PRAGMA user_version = 1"

_T = TypeVar("_T")
logger = logging.getLogger("oplogd.spool")


class SpooledBatch(NamedTuple):
    """The oldest operations of one writer. ``last``: the row of the last one."""

    last: int
    batch_id: BatchId
    operations: list[Operation]


class SpoolFile:
    """Operations in a file, oldest first. Methods raise sqlite3.Error and StoreError.

    Call it from one thread at a time; other threads may read the public numbers.

    After a failure the next call opens the file again. A moved or removed file is read to its end,
    then a new one is created at the path. A lock keeps the file for one agent: a second one would
    send the same operations, and delete new ones of the first.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.operations = 0
        # Keys and data.
        self.bytes = 0
        # Operations that appeared in the file, or disappeared from it, without this process.
        self.found = self.lost = 0
        self._db: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._lock: int | None = None
        # The store has the rows up to this id. They are still here if deleting them failed.
        self._sent = 0

    def open(self) -> None:
        self._use(lambda db: None)

    def close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(sqlite3.Error):  # each batch is durable already
                db.close()
        if self._lock is not None:
            # After the connection: closing the file also releases SQLite's locks on it.
            os.close(self._lock)
            self._lock = None

    def remove(self) -> None:
        """Remove the empty file, under its lock. If that fails, a warning says so."""
        lock, self._lock = self._lock, None
        self.close()
        try:
            if _identity(self.path) == self._identity:
                self.path.unlink()
        except OSError as error:
            logger.warning("spool %s: cannot remove the empty file: %s", self.path, error)
        finally:
            if lock is not None:
                os.close(lock)

    def put(self, operations: Sequence[Operation], batch_id: BatchId) -> None:
        """Add operations at the end, all or none."""
        rows = [
            (batch_id.writer, sequence, *operation)
            for sequence, operation in enumerate(operations, batch_id.sequence)
        ]

        def work(db: sqlite3.Connection) -> None:
            if _identity(self.path) != self._identity:
                raise StoreError(
                    f"spool {self.path}: the file was moved or removed;"
                    " its operations are sent first (--spool)"
                )
            with _transaction(db):
                db.executemany(_PUT, rows)
            self.operations += len(operations)
            self.bytes += sum(map(size_of, operations))

        self._use(work)

    def first(self, max_operations: int, max_bytes: int) -> SpooledBatch | None:
        """Return the oldest operations of one writer that fit, at least one; None if empty."""

        def work(db: sqlite3.Connection) -> SpooledBatch | None:
            rows: list[tuple[int, str, int, str, str, bytes]] = []
            size = 0
            with contextlib.closing(db.execute(_FIRST, (self._sent,))) as cursor:
                for row in cursor:
                    size += size_of(Operation(*row[3:]))
                    if rows and (
                        size > max_bytes or row[1:3] != (rows[0][1], rows[0][2] + len(rows))
                    ):
                        break
                    rows.append(row)
                    if len(rows) == max_operations:
                        break
            if not rows:
                self._recount(0, 0)
                return None
            operations = [Operation(*row[3:]) for row in rows]
            return SpooledBatch(rows[-1][0], BatchId(*rows[0][1:3]), operations)

        return self._use(work)

    def drop(self, batch: SpooledBatch) -> None:
        """Remove the first batch. If that fails the rows stay, but ``first`` skips them."""
        self._sent = batch.last
        self.operations -= len(batch.operations)
        self.bytes -= sum(map(size_of, batch.operations))
        self.delete_sent()

    def delete_sent(self) -> None:
        """Delete the rows already in the store. It writes to the file even if there are none."""

        def work(db: sqlite3.Connection) -> None:
            with _transaction(db):
                db.execute(_DROP, (self._sent,))
                db.execute(_TOUCH)
            self._sent = 0  # SQLite may use the ids again

        self._use(work)

    def connection(self) -> sqlite3.Connection:
        """Return the open connection; open the file if needed."""
        if self._db is None or (not self.operations and _identity(self.path) != self._identity):
            self.close()
            self._lock = _lock(self.path)
            self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            self._db.executescript(PRAGMAS + _SCHEMA)
            before, self._identity = self._identity, _identity(self.path)
            if before not in (None, self._identity):
                if self.operations:
                    logger.error(
                        "spool %s: the file that is gone held %d operations",
                        self.path,
                        self.operations,
                    )
                self._sent = 0
            self._sent = min(self._sent, self._db.execute(_LAST).fetchone()[0])
            self._recount(*self._db.execute(_FILL, (self._sent,)).fetchone())
        return self._db

    def _use(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            return work(self.connection())
        except sqlite3.Error:
            self.close()
            raise

    def _recount(self, operations: int, size: int) -> None:
        more = operations - self.operations
        self.found += max(0, more)
        self.lost += max(0, -more)
        self.operations, self.bytes = operations, size


def size_of(operation: Operation) -> int:
    """Return the bytes of an operation that count in the spool."""
    return len(operation.key.encode()) + len(operation.data)


def reason(error: sqlite3.Error) -> str:
    """Describe an error of the file, and say what to do."""
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return (
            f"it is damaged or no SQLite file ({error}); move it away to continue without it,"
            " and get back its operations with .recover of SQLite's shell"
        )
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return "another process holds a lock on it"
    if name.startswith("SQLITE_FULL"):
        return "the disk is full; free some space"
    return f"{error}; check the file, its folder and the disk"


def _lock(path: Path) -> int | None:
    """Lock the file, create it if needed, and return its descriptor, to be closed at last.

    None if the system has no such locks or cannot open the file. Raises StoreError if another agent
    has the lock.
    """
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError:  # SQLite reports it
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise StoreError(
            f"spool {path}: another agent uses it; give each agent a spool of its own (--spool)"
        ) from None
    except OSError:  # a file system without locks
        pass
    return file


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of the file at a path, None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino

"""A bounded file of operations that came by UDP while the store was away. They survive a restart.

Each operation keeps the stamp under which it was to be written, or may have been, so it is in the log once.
"""

import asyncio
import contextlib
import logging
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from oplogd.errors import StoreError
from oplogd.health import Health, Part
from oplogd.ingest.counters import Counters
from oplogd.operation import Operation
from oplogd.store import Stamp

_SCHEMA = """
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    CREATE TABLE IF NOT EXISTS spool (
        id INTEGER PRIMARY KEY, writer TEXT NOT NULL, sequence INTEGER NOT NULL,
        event TEXT NOT NULL, key TEXT NOT NULL, data BLOB NOT NULL
    );
"""
_LAST = "SELECT coalesce(max(id), 0) FROM spool"
_FILL = "SELECT count(*), coalesce(sum(length(CAST(key AS BLOB)) + length(data)), 0) FROM spool WHERE id > ?"
_PUT = "INSERT INTO spool (writer, sequence, event, key, data) VALUES (?, ?, ?, ?, ?)"
_FIRST = "SELECT id, writer, sequence, event, key, data FROM spool WHERE id > ? ORDER BY id"
_DROP = "DELETE FROM spool WHERE id <= ?"
_TOUCH = "PRAGMA user_version = 1"
"""Writes a page of the file."""

_MEND_SECONDS = 1.0
_T = TypeVar("_T")
logger = logging.getLogger("oplogd.spool")


class Batch(NamedTuple):
    """The oldest operations of one writer. ``last`` is the number of the last one in the file."""

    last: int
    stamp: Stamp
    operations: list[Operation]


class Spool:
    """``max_bytes`` counts keys and data. ``counters`` are told of operations that are found in the file and of those that
    somebody took away with it; the caller counts those that it adds and sends.

    Methods raise StoreError when the file fails, and report it as a trouble.

    A connection that failed is closed, and the next call opens the file anew. A file that was moved or removed is read
    to its end first; then a new one is created in its place. Only one agent can have a file open: two would send the
    same operations, and one would delete operations that the other has just added.
    """

    def __init__(
        self, path: Path, max_bytes: int, health: Health, counters: Counters | None = None
    ) -> None:
        self._path = path
        self._counters = counters or Counters()
        self.max_bytes = max_bytes
        self.operations = 0
        self.bytes = 0
        self._reading = health.part("spool (reading)", "the file can be read again")
        self._writing = health.part("spool", "the file can be written again")
        self._tried = 0.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spool")
        self._told_found = self._told_lost = 0
        # All below and the two counts above change in the spool's thread only.
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._lock: int | None = None
        self._sent = 0  # rows up to this id are in the store; they are still in the file if deleting them failed
        self._found = self._lost = (
            0  # operations that this process did not add, and that it has not taken out
        )

    async def open(self) -> None:
        await self._run(lambda: self._on_file(lambda db: None), None)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._forget)
        self._thread.shutdown(wait=False)

    async def mend(self) -> None:
        """Run for ever: while the file cannot be written, try it until it can."""
        while True:
            await asyncio.sleep(_MEND_SECONDS)
            if self._writing.trouble and time.monotonic() - self._tried > _MEND_SECONDS:
                with contextlib.suppress(StoreError):
                    await self._run(lambda: self._on_file(self._delete_sent), self._writing)

    async def put(self, operations: Sequence[Operation], stamp: Stamp) -> int:
        """Add as many as fit, from the first on, and return their number."""
        count = size = 0
        for operation in operations:
            more = _size(operation)
            if self.bytes + size + more > self.max_bytes:
                break
            count += 1
            size += more
        if not count:
            return 0
        numbers = range(stamp.sequence, stamp.sequence + count)
        rows = [
            (stamp.writer, number, *operation)
            for number, operation in zip(numbers, operations, strict=False)
        ]

        def work(db: sqlite3.Connection) -> None:
            if _identity(self._path) != self._file:
                raise StoreError(
                    f"spool {self._path}: the file was moved or removed; its operations are sent first (--spool)"
                )
            with _transaction(db):
                db.executemany(_PUT, rows)
            self.operations += count
            self.bytes += size

        await self._run(lambda: self._on_file(work), self._writing)
        return count

    async def first(self, max_operations: int, max_bytes: int) -> Batch | None:
        """Return the oldest operations of one writer that fit, at least one; None if the spool is empty."""

        def work(db: sqlite3.Connection) -> Batch | None:
            rows: list[tuple[int, str, int, str, str, bytes]] = []
            size = 0
            with contextlib.closing(db.execute(_FIRST, (self._sent,))) as cursor:
                for row in cursor:
                    size += _size(Operation(*row[3:]))
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
            return Batch(
                rows[-1][0], Stamp(rows[0][1], rows[0][2]), [Operation(*row[3:]) for row in rows]
            )

        return await self._run(lambda: self._on_file(work), self._reading)

    async def drop(self, batch: Batch) -> None:
        """Forget the first batch: it is in the store. A file that cannot be written keeps it, but does not return it again."""

        def work() -> None:
            self._sent = batch.last  # also if the file cannot be opened
            self.operations -= len(batch.operations)
            self.bytes -= sum(map(_size, batch.operations))
            self._on_file(self._delete_sent)

        with contextlib.suppress(StoreError):
            await self._run(work, self._writing)

    def _delete_sent(self, db: sqlite3.Connection) -> None:
        with _transaction(db):
            db.execute(_DROP, (self._sent,))
            db.execute(_TOUCH)
        self._sent = 0  # SQLite may use the numbers again

    async def _run(self, work: Callable[[], _T], part: Part | None) -> _T:
        try:
            result = await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except (sqlite3.Error, StoreError) as error:
            message = str(error)
            if isinstance(error, sqlite3.Error):
                message = f"spool {self._path}: {_reason(error)} (--spool)"
            if part is not None:
                part.bad(message)
            raise StoreError(message) from error
        finally:
            self._tried = time.monotonic()
            self._account()
        if part is not None:
            part.good()
        return result

    def _on_file(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            return work(self._opened())
        except sqlite3.Error:
            self._forget()
            raise

    def _opened(self) -> sqlite3.Connection:
        if self._db is None or (not self.operations and _identity(self._path) != self._file):
            self._forget()
            self._lock = _locked(self._path)
            self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            self._db.executescript(_SCHEMA)
            before, self._file = self._file, _identity(self._path)
            if before not in (None, self._file):
                if self.operations:
                    logger.error(
                        "spool %s: %d operations were in the file that is gone",
                        self._path,
                        self.operations,
                    )
                self._sent = 0
            self._sent = min(self._sent, self._db.execute(_LAST).fetchone()[0])
            self._recount(*self._db.execute(_FILL, (self._sent,)).fetchone())
        return self._db

    def _recount(self, operations: int, octets: int) -> None:
        """Note what the file really holds."""
        more = operations - self.operations
        self._found += max(0, more)
        self._lost += max(0, -more)
        self.operations, self.bytes = operations, octets

    def _account(self) -> None:
        """Tell the counters what was found and lost since the last call. The sums only grow, so the thread may go on."""
        found, lost = self._found - self._told_found, self._lost - self._told_lost
        self._told_found += found
        self._told_lost += lost
        self._counters.add_recovered(found)
        self._counters.add_lost_from_spool(lost)

    def _forget(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(sqlite3.Error):
                db.close()
        if self._lock is not None:
            os.close(
                self._lock
            )  # not before the connection: SQLite's locks on the file would go with it
            self._lock = None


def _locked(path: Path) -> int | None:
    """Lock the file and return its descriptor; the file is created if need be. Close it after the connection.

    Raises StoreError if another agent has the lock. None if the system has no such locks or cannot open the file.
    """
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError:  # told by SQLite
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
    """Which file is at a path now, None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _reason(error: sqlite3.Error) -> str:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return (
            f"it is damaged or no SQLite file ({error}); move it away to go on without it, and get back its operations"
            " with .recover of SQLite's shell"
        )
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return "another process holds a lock on it"
    if name.startswith("SQLITE_FULL"):
        return "the disk is full; free some space"
    return f"{error}; check the file, its folder and the disk"


def _size(operation: Operation) -> int:
    return len(operation.key.encode()) + len(operation.data)

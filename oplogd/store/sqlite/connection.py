"""Connections to the file, each used by one thread at a time, and what can go wrong with them."""

import asyncio
import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from oplogd.errors import StoreError, StoreUnavailableError
from oplogd.store.sqlite import statements as sql

BUSY_SECONDS = 5.0
"""How long a statement waits for another process's lock before the store counts as unavailable."""

_MINIMUM_SQLITE = (3, 35)
_NOT_WRITABLE = "it cannot be written; check the permissions of the file, of its -wal and -shm, and of its folder"

_T = TypeVar("_T")
_log = logging.getLogger("oplogd.store")


class Lane:
    """Threads with a connection each. A connection that failed is closed and opened anew at the next call.

    ``creates``: the first connection may create the file.
    """

    def __init__(self, path: Path, name: str, threads: int, *, creates: bool = False) -> None:
        self._path = path
        self._creates = creates
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._local = threading.local()
        self._open: set[sqlite3.Connection] = set()
        self._turn = 0

    async def run(self, call: Callable[[sqlite3.Connection], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._run, call)

    def renew(self) -> None:
        """Open each connection anew at its next call: another one has failed on the file."""
        self._turn += 1

    def interrupt(self) -> None:
        """Make the statements that run now fail."""
        for db in list(self._open):
            db.interrupt()

    async def close(self) -> None:
        await asyncio.to_thread(self._pool.shutdown)
        while self._open:
            self._open.pop().close()

    def _run(self, call: Callable[[sqlite3.Connection], _T]) -> _T:
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        try:
            if db is not None and (_identity(self._path), self._turn) != (self._local.file, self._local.turn):
                self._forget(db)  # what is written to a file that was moved away is lost
                db = None
            if db is None:
                db = self._local.db = connect(self._path, create=self._creates)
                self._local.file, self._local.turn = _identity(self._path), self._turn
                self._open.add(db)
                self._creates = False
            return call(db)
        except sqlite3.Error as error:
            if db is not None:
                self._forget(db)
            raise _translate(error, self._path) from error

    def _forget(self, db: sqlite3.Connection) -> None:
        self._open.discard(db)
        self._local.db = None
        db.close()


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file is at a path now, None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def connect(path: Path, create: bool) -> sqlite3.Connection:
    if sqlite3.sqlite_version_info < _MINIMUM_SQLITE:
        needed = ".".join(map(str, _MINIMUM_SQLITE))
        raise StoreError(f"Python's SQLite is {sqlite3.sqlite_version}, oplog needs {needed} or later")
    if not create and _identity(path) is None:
        raise StoreUnavailableError(
            f"store {path}: the file is gone; put it back, or restart the agent to begin a new one"
        )
    if os.path.exists(path) and not os.access(path, os.W_OK):
        # SQLite would open it all the same and leave a -wal and -shm beside it that cannot be written either.
        raise StoreUnavailableError(f"store {path}: {_NOT_WRITABLE}")
    db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        _version(db, path)  # before the journal mode of another program's file is changed
        db.executescript(sql.PRAGMAS + sql.APPENDER)
    except BaseException:
        db.close()
        raise
    return db


def _translate(error: sqlite3.Error, path: Path) -> StoreUnavailableError:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        reason = f"another process holds a lock on it for more than {BUSY_SECONDS:g} s"
    elif name.startswith("SQLITE_FULL"):
        reason = "the disk is full; free some space"
    elif name.startswith("SQLITE_READONLY"):
        reason = _NOT_WRITABLE
    elif name.startswith("SQLITE_CANTOPEN"):
        reason = "it cannot be opened; check that its folder exists and can be written"
    elif name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        reason = (
            f"it is damaged or no SQLite file ({error}); stop the agent, remove the file's -wal and -shm "
            "and put a sound copy in its place"
        )
    elif name.startswith("SQLITE_IOERR"):
        reason = f"reading or writing it failed ({error}, {name}); check the disk and the file-size limit"
    else:
        reason = f"{error} ({name})"
    return StoreUnavailableError(f"store {path}: {reason}")


@contextlib.contextmanager
def transaction(db: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Any:
    db.execute(begin)
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
        raise


def snapshot(db: sqlite3.Connection) -> Any:
    return transaction(db, "BEGIN")


def _version(db: sqlite3.Connection, path: Path) -> int:
    """The schema's version, 0 for a new file. Raises StoreUnavailableError for what this oplog must not touch."""
    # The tables first: another process that creates the file now commits them together with the other two.
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    if tables and application != sql.APPLICATION_ID:
        raise StoreUnavailableError(f"store {path}: this SQLite file is not an oplog store; give --store another path")
    if version > len(sql.MIGRATIONS):
        raise StoreUnavailableError(
            f"store {path}: its schema is version {version}, this oplog knows up to {len(sql.MIGRATIONS)}; "
            "use the newer oplog that wrote it, or give --store another path"
        )
    return version


def migrate(db: sqlite3.Connection, path: Path) -> None:
    version = _version(db, path)
    for number, script in enumerate(sql.MIGRATIONS[version:], version + 1):
        for statement in script.split(";"):  # executescript would commit
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {number}")
        if version:
            _log.info("store %s: schema brought to version %d", path, number)
    db.execute(f"PRAGMA application_id = {sql.APPLICATION_ID}")

"""Connections to the file, each used by one thread at a time, and what can go wrong with them."""

import asyncio
import contextlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from oplogd.errors import ForeignStoreError, StoreError, StoreUnavailableError
from oplogd.store.sqlite import statements as sql

BUSY_SECONDS = 5.0
"""How long a statement waits for another process's lock before the store counts as unavailable."""

_MINIMUM_SQLITE = (3, 35)
_PROGRESS_SECONDS = 5.0
_PROGRESS_STEPS = 1_000_000
"""Instructions of SQLite's virtual machine, some hundredths of a second of them."""

_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_IOERR")
_NOT_WRITABLE = "it cannot be written; check the permissions of the file, of its -wal and -shm, and of its folder"

Identity = tuple[int, int]
_GONE: Identity = (-1, -1)
_T = TypeVar("_T")
logger = logging.getLogger("oplogd.store")


class StoreFile:
    """The file that all lanes of a store use. ``replaced`` is called on the first connection to another file at its path."""

    def __init__(self, path: Path, replaced: Callable[[sqlite3.Connection, Path], None]) -> None:
        self.path = path
        self._replaced = replaced
        self.failures = 0
        """Damage seen by any lane. The others then open their connections anew: pages in a cache may look sound still."""

        self._seen: Identity | None = None

    def connect(self, pragmas: str) -> tuple[sqlite3.Connection, Identity | None]:
        """A connection and the identity of its file. Only the first one of all may create it."""
        before = _identity(self.path)
        if before is None and self._seen is not None:
            self._seen = _GONE  # the system may give the next file the number of this one
        db = connect(self.path, create=self._seen is None)
        try:
            db.executescript(pragmas)
            identity = _identity(self.path)
            if before not in (None, identity):  # which of the two was opened?
                raise StoreUnavailableError(
                    f"store {self.path}: another file took its place while it was opened"
                )
            if self._seen not in (None, identity):
                self._replaced(db, self.path)
            self._seen = identity
        except BaseException:
            db.close()
            raise
        return db, identity


def _caller_is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Lane:
    """Threads with a connection each. A connection that failed is closed and opened anew at the next call.

    ``writes``: a call fails if the file is no longer at its path when it returns, since its work would be lost.
    """

    def __init__(
        self, file: StoreFile, name: str, threads: int, pragmas: str = "", *, writes: bool = False
    ) -> None:
        self._file = file
        self._pragmas = pragmas
        self._writes = writes
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._local = threading.local()
        self._open: set[sqlite3.Connection] = set()
        self._closing = False

    async def run(self, call: Callable[[sqlite3.Connection], _T]) -> _T:
        if self._closing:
            raise StoreUnavailableError(f"store {self._file.path}: it is closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, self._run, call)
        except asyncio.CancelledError:
            if (
                self._closing and not _caller_is_cancelled()
            ):  # the call, not its caller, was cancelled
                raise StoreUnavailableError(f"store {self._file.path}: it is closed") from None
            raise

    async def close(self, interrupt: bool = False) -> None:
        """Drop the calls that wait. Finish the running ones, or ``interrupt`` them: they raise StoreUnavailableError."""
        self._closing = True
        if interrupt:
            for db in tuple(self._open):
                with contextlib.suppress(
                    sqlite3.ProgrammingError
                ):  # it failed and was closed just now
                    db.interrupt()
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)
        while self._open:
            self._open.pop().close()

    def _run(self, call: Callable[[sqlite3.Connection], _T]) -> _T:
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        try:
            if db is not None and (
                self._local.failures != self._file.failures
                or _identity(self._file.path) != self._local.identity
            ):
                self._forget(db)  # what is written to a file that was moved away is lost
                db = None
            if db is None:
                self._local.failures = self._file.failures
                db, self._local.identity = self._file.connect(self._pragmas)
                self._local.db = db
                self._open.add(db)
            result = call(db)
            if self._writes and _identity(self._file.path) != self._local.identity:
                self._forget(db)
                raise StoreUnavailableError(
                    f"store {self._file.path}: the file was moved away while it was written to"
                )
            return result
        except sqlite3.Error as error:
            if db is not None:
                self._forget(db)
            if getattr(error, "sqlite_errorname", "").startswith(_DAMAGE):
                self._file.failures += 1
            raise _translate(error, self._file.path) from error

    def _forget(self, db: sqlite3.Connection) -> None:
        self._open.discard(db)
        self._local.db = None
        db.close()


def _identity(path: Path) -> Identity | None:
    """Which file is at a path now, None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def connect(path: Path, create: bool) -> sqlite3.Connection:
    if sqlite3.sqlite_version_info < _MINIMUM_SQLITE:
        needed = ".".join(map(str, _MINIMUM_SQLITE))
        raise StoreError(
            f"Python's SQLite is {sqlite3.sqlite_version}, oplog needs {needed} or later"
        )
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
    """The schema's version, 0 for a new file. Raises ForeignStoreError for a file that this oplog must not touch."""
    # The tables first: another process that creates the file now commits them together with the other two.
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    if tables and application != sql.APPLICATION_ID:
        raise ForeignStoreError(
            f"store {path}: this SQLite file is not an oplog store; give --store another path"
        )
    if version > len(sql.MIGRATIONS):
        raise ForeignStoreError(
            f"store {path}: its schema is version {version}, this oplog knows up to {len(sql.MIGRATIONS)}; "
            "use the newer oplog that wrote it, or give --store another path"
        )
    return version


def migrate(db: sqlite3.Connection, path: Path) -> None:
    version = _version(db, path)
    with _progress(db, path) if 0 < version < len(sql.MIGRATIONS) else contextlib.nullcontext():
        for number, script in enumerate(sql.MIGRATIONS[version:], version + 1):
            for statement in script.split(";"):  # executescript would commit
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {number}")
            if version:
                logger.info("store %s: schema brought to version %d", path, number)
    db.execute(f"PRAGMA application_id = {sql.APPLICATION_ID}")


@contextlib.contextmanager
def _progress(db: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Log that the file is brought to a newer schema, and again every few seconds while that lasts."""
    began = said = time.monotonic()
    logger.info(
        "store %s: bringing the file to schema version %d; a large one takes a while",
        path,
        len(sql.MIGRATIONS),
    )

    def say() -> None:
        nonlocal said
        if (now := time.monotonic()) - said >= _PROGRESS_SECONDS:
            said = now
            logger.info("store %s: still at it after %.0f s", path, now - began)

    db.set_progress_handler(say, _PROGRESS_STEPS)
    try:
        yield
    finally:
        db.set_progress_handler(None, 0)

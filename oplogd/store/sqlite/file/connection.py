"""Connections to the SQLite file, each used by one thread at a time, and their errors."""

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from oplogd.clock import now_ms
from oplogd.errors import StoreError, StoreUnavailableError
from oplogd.host.descriptors import are_used_up
from oplogd.store.sqlite.file import statements as sql
from oplogd.store.sqlite.file.disk import Disk
from oplogd.store.sqlite.file.migration import read_version
from oplogd.store.sqlite.file.wal import WriteAheadLog

# How long a statement waits for another process's lock. After it the store counts as unavailable.
BUSY_SECONDS = 5.0

_MINIMUM_SQLITE = (3, 35)
_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_IOERR")
_NOT_WRITABLE = (
    "it cannot be written; check the permissions of the file, of its -wal and -shm, and of its"
    " folder"
)

# Device and inode of a file.
Identity = tuple[int, int]
_GONE: Identity = (-1, -1)
_T = TypeVar("_T")
_P = ParamSpec("_P")


class StoreFile:
    """The file of all connections of a store.

    ``on_replaced`` is called on the first connection after another file took its place. ``disk``:
    None for one without a reserve. ``present_ms``: see ``connect``.
    """

    def __init__(
        self,
        path: Path,
        on_replaced: Callable[[sqlite3.Connection, Path], None],
        disk: Disk | None = None,
        present_ms: Callable[[], int] = now_ms,
    ) -> None:
        self.path = path
        self.wal = WriteAheadLog(path)
        self.disk = disk or Disk(path)
        self._on_replaced = on_replaced
        self._present_ms = present_ms
        # Grows with damage that a connection finds. The others then reconnect: their cached pages
        # may still look sound.
        self.damage_count = 0
        self._seen: Identity | None = None

    def connect(self, pragmas: str) -> tuple[sqlite3.Connection, Identity | None]:
        """Return a connection and the identity of its file. Only the first call may create it."""
        before = _identity(self.path)
        if before is None and self._seen is not None:
            self._seen = _GONE  # the next file may get the same inode
        db = connect(self.path, create=self._seen is None, present_ms=self._present_ms)
        try:
            db.executescript(pragmas)
            identity = _identity(self.path)
            if before not in (None, identity):  # it is unknown which of the two was opened
                raise StoreUnavailableError(
                    f"store {self.path}: another file took its place while it was opened"
                )
            if self._seen not in (None, identity):
                self._on_replaced(db, self.path)
            self._seen = identity
        except BaseException:
            db.close()
            raise
        return db, identity


class ConnectionPool:
    """Threads with a connection each. A connection that failed is replaced at the next call.

    ``writes``: a call fails if the file has left its path when the call returns, because its work
    would be lost. ``prepare`` is called before the first call, until it succeeds.
    """

    def __init__(
        self,
        file: StoreFile,
        name: str,
        threads: int,
        pragmas: str = "",
        *,
        writes: bool = False,
        prepare: Callable[[sqlite3.Connection], None] | None = None,
    ) -> None:
        self._file = file
        self._pragmas = pragmas
        self._writes = writes
        self._prepare = prepare
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._local = threading.local()
        self._open: set[sqlite3.Connection] = set()
        self._closing = False

    async def run(
        self, call: Callable[[sqlite3.Connection], _T], *, frees_space: bool = False
    ) -> _T:
        """Call in one of the threads. Raises StoreUnavailableError for every SQLite error.

        A call that ``frees_space`` is made again if the disk was full and the reserve was freed.
        """
        if self._closing:
            raise self._closed()
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._pool, self._run, call, frees_space
            )
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closing and not (task and task.cancelling()):  # `close` cancelled the call
                raise self._closed() from None
            raise

    def _closed(self) -> StoreUnavailableError:
        return StoreUnavailableError(f"store {self._file.path}: it is closed")

    def method(
        self, call: Callable[Concatenate[sqlite3.Connection, _P], _T]
    ) -> Callable[_P, Coroutine[Any, Any, _T]]:
        """Return a method that does ``run`` with a call and its other arguments."""

        async def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            return await self.run(lambda db: call(db, *args, **kwargs))

        return run

    @property
    def is_prepared(self) -> bool:
        return self._prepare is None

    async def close(self, *, interrupt: bool = False) -> None:
        """Drop waiting calls and wait for running ones. ``interrupt``: those raise."""
        self._closing = True
        if interrupt:
            for db in tuple(self._open):
                with contextlib.suppress(sqlite3.ProgrammingError):  # just closed after a failure
                    db.interrupt()
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)
        while self._open:
            self._open.pop().close()

    def _run(self, call: Callable[[sqlite3.Connection], _T], frees_space: bool) -> _T:
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        try:
            if db is not None and (
                self._local.damage_count != self._file.damage_count
                or _identity(self._file.path) != self._local.identity
            ):
                self._forget(db)  # writes to a file that was moved away are lost
                db = None
            if db is None:
                self._local.damage_count = self._file.damage_count
                db, self._local.identity = self._file.connect(self._pragmas)
                self._local.db = db
                self._open.add(db)
            if self._prepare is not None:
                self._prepare(db)
                self._prepare = None
            result = call(db)
            if self._writes:
                if _identity(self._file.path) != self._local.identity:
                    self._forget(db)
                    raise StoreUnavailableError(
                        f"store {self._file.path}: the file was moved away while it was written to"
                    )
                self._file.wal.look()
            return result
        except sqlite3.Error as error:
            if db is not None:
                self._forget(db)
            if getattr(error, "sqlite_errorname", "").startswith(_DAMAGE):
                self._file.damage_count += 1
            is_full = self._file.disk.is_refusal(error)
            if is_full and frees_space and self._file.disk.free_reserve():
                return self._run(call, frees_space=False)
            raise _translate(error, self._file.path, is_full=is_full) from error

    def _forget(self, db: sqlite3.Connection) -> None:
        self._open.discard(db)
        self._local.db = None
        db.close()


class Pools(NamedTuple):
    """The threads shared by the parts of a store. No look-up waits for a page of entries."""

    writer: ConnectionPool
    readers: ConnectionPool
    lookups: ConnectionPool


def _identity(path: Path) -> Identity | None:
    """Return the identity of the file at a path, None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def connect(
    path: Path, *, create: bool, present_ms: Callable[[], int] = now_ms
) -> sqlite3.Connection:
    """Open the file and prepare the connection. Raises StoreError and sqlite3.Error."""
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
        # SQLite would open it and leave a -wal and -shm that cannot be written either.
        raise StoreUnavailableError(f"store {path}: {_NOT_WRITABLE}")
    db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    db.create_function("present_ms", 0, present_ms)
    try:
        read_version(db, path)  # before PRAGMAS change the journal mode of a foreign file
        db.executescript(sql.PRAGMAS + sql.APPENDER)
    except BaseException:
        db.close()
        raise
    return db


def _translate(error: sqlite3.Error, path: Path, *, is_full: bool) -> StoreUnavailableError:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        reason = f"another process holds a lock on it for more than {BUSY_SECONDS:g} s"
    elif is_full:
        reason = "the disk is full; free some space"
    elif name.startswith("SQLITE_READONLY"):
        reason = _NOT_WRITABLE
    elif name.startswith("SQLITE_CANTOPEN") and are_used_up():
        reason = "no file descriptor is free; raise the limit of open files"
    elif name.startswith("SQLITE_CANTOPEN"):
        reason = "it cannot be opened; check that its folder exists and can be written"
    elif name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        reason = (
            f"it is damaged or no SQLite file ({error}); stop the agent, remove the file's -wal"
            " and -shm and put a sound copy in its place"
        )
    elif name.startswith("SQLITE_IOERR"):
        reason = (
            f"reading or writing it failed ({error}, {name});"
            " check the disk and the file-size limit"
        )
    else:
        reason = f"{error} ({name})"
    return StoreUnavailableError(f"store {path}: {reason}")


@contextlib.contextmanager
def transaction(
    db: sqlite3.Connection,
    begin: str = "BEGIN IMMEDIATE",
    commit: str = "COMMIT",
    rollback: str = "ROLLBACK",
) -> Iterator[None]:
    """Commit at the end of the block; roll back if it raises."""
    db.execute(begin)
    try:
        yield
        db.execute(commit)
    except BaseException:
        if db.in_transaction:  # some errors have ended it
            with contextlib.suppress(sqlite3.Error):  # the first error is raised
                db.execute(rollback)
        raise


def savepoint(db: sqlite3.Connection) -> contextlib.AbstractContextManager[None]:
    """Undo the block alone if it raises, in the caller's transaction."""
    return transaction(db, "SAVEPOINT step", "RELEASE step", "ROLLBACK TO step")


def snapshot(db: sqlite3.Connection) -> contextlib.AbstractContextManager[None]:
    """Let all reads in the block see one state of the file."""
    return transaction(db, "BEGIN")

"""Connections to the SQLite file, each used by one thread at a time, and their errors."""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

from oplogd.clock import now_ms
from oplogd.errors import StoreError, StoreUnavailableError
from oplogd.host.descriptors import are_used_up
from oplogd.store.sqlite.file import statements as sql
from oplogd.store.sqlite.file.disk import Disk
from oplogd.store.sqlite.file.migration import read_version
from oplogd.store.sqlite.file.wal import WriteAheadLog

# How long a statement waits for another process's lock. After it the store counts as unavailable.
BUSY_SECONDS = 5.0

# 3.35 crashes at RETURNING of a view.
_MINIMUM_SQLITE = (3, 36)
DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_IOERR")
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
        *,
        may_create: bool = True,
    ) -> None:
        self.path = path
        self.wal = WriteAheadLog(path)
        self.disk = disk or Disk(path)
        self._on_replaced = on_replaced
        self._present_ms = present_ms
        self.may_create = may_create
        # Grows with damage that a connection finds. The others then reconnect: their cached pages
        # may still look sound.
        self.damage_count = 0
        self._seen: Identity | None = None

    def connect(self, pragmas: str) -> tuple[sqlite3.Connection, Identity | None]:
        """Return a connection and the identity of its file. Only the first call may create it."""
        before = identity_of(self.path)
        if before is None and self._seen is not None:
            self._seen = _GONE  # the next file may get the same inode
        db = connect(
            self.path, create=self.may_create and self._seen is None, present_ms=self._present_ms
        )
        try:
            db.executescript(pragmas)
            identity = identity_of(self.path)
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


def identity_of(path: Path) -> Identity | None:
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
    if not create and identity_of(path) is None:
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


def locked(path: Path) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"store {path}: another process holds a lock on it for more than {BUSY_SECONDS:g} s"
    )


def translated(error: sqlite3.Error, path: Path, *, is_full: bool) -> StoreUnavailableError:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return locked(path)
    if is_full:
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

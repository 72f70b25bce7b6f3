"""A bounded file of operations that wait for the store: what came by UDP while it was away survives a restart.

Each operation keeps the stamp under which it was to be written, or may have been, so it is in the log once.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from oplogd.errors import StoreError
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
_FILL = "SELECT count(*), coalesce(sum(length(CAST(key AS BLOB)) + length(data)), 0) FROM spool"
_PUT = "INSERT INTO spool (writer, sequence, event, key, data) VALUES (?, ?, ?, ?, ?)"
_FIRST = "SELECT id, writer, sequence, event, key, data FROM spool ORDER BY id LIMIT ?"
_DROP = "DELETE FROM spool WHERE id <= ?"

_T = TypeVar("_T")


class Batch(NamedTuple):
    """The oldest operations of one writer. ``last``: what ``drop`` takes."""

    last: int
    stamp: Stamp
    operations: list[Operation]


class Spool:
    """``max_bytes`` counts keys and data. Methods raise StoreError where the file fails."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self.max_bytes = max_bytes
        self.operations = 0
        self.bytes = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spool")
        self._db: sqlite3.Connection | None = None

    async def open(self) -> None:
        def work() -> None:
            self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            self._db.executescript(_SCHEMA)
            self.operations, self.bytes = self._db.execute(_FILL).fetchone()

        await self._run(work)

    async def close(self) -> None:
        await asyncio.to_thread(self._thread.shutdown)
        if self._db is not None:
            self._db.close()
            self._db = None

    async def put(self, operations: Sequence[Operation], stamp: Stamp) -> bool:
        """Add them all; False, and nothing added, where they do not fit."""
        size = sum(map(_size, operations))
        if self.bytes + size > self.max_bytes:
            return False
        rows = [(stamp.writer, number, *operation) for number, operation in enumerate(operations, stamp.sequence)]
        await self._run(lambda: self._change(lambda db: db.executemany(_PUT, rows)))
        self.operations += len(rows)
        self.bytes += size
        return True

    async def first(self, limit: int) -> Batch | None:
        rows = await self._run(lambda: self._opened().execute(_FIRST, (limit,)).fetchall())
        if not rows:
            return None
        _, writer, first, *_ = rows[0]
        same = [row for number, row in enumerate(rows, first) if row[1:3] == (writer, number)]
        return Batch(same[-1][0], Stamp(writer, first), [Operation(*row[3:]) for row in same])

    async def drop(self, batch: Batch) -> None:
        await self._run(lambda: self._change(lambda db: db.execute(_DROP, (batch.last,))))
        self.operations -= len(batch.operations)
        self.bytes -= sum(map(_size, batch.operations))

    def _change(self, change: Callable[[sqlite3.Connection], object]) -> None:
        db = self._opened()
        db.execute("BEGIN IMMEDIATE")
        try:
            change(db)
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            raise StoreError(f"spool {self._path}: it is not open")
        return self._db

    async def _run(self, work: Callable[[], _T]) -> _T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            raise StoreError(
                f"spool {self._path}: {error}; check the file, its folder and the disk (--spool)"
            ) from error


def _size(operation: Operation) -> int:
    return len(operation.key.encode()) + len(operation.data)

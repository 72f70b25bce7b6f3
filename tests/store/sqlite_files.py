"""SQLite stores in files, opened, read and replaced by tests."""

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from oplogd.operation import Operation
from oplogd.store.sqlite import (
    SqliteStore,
)
from tests.operations import fold
from tests.store.kits import START_MS, contents, expected, known, log_of, states_of, wanted

POINTER_TABLES = ("pointers", "pointer_entries", "stored")


@contextlib.asynccontextmanager
async def opened(path: Path, max_bytes: int | None = None) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, max_bytes)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


@contextlib.contextmanager
def direct(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        yield db


def number(path: Path, query: str) -> int:
    """Return the first number that a query finds."""
    with direct(path) as db:
        found: int = db.execute(query).fetchone()[0]
        return found


def rows(path: Path, query: str) -> list[tuple[int, ...]]:
    with direct(path) as db:
        return db.execute(query).fetchall()


def count(path: Path, table: str) -> int:
    return number(path, f"SELECT count(*) FROM {table}")


def pointer_counts(path: Path) -> list[int]:
    """Return the number of rows in each of POINTER_TABLES."""
    return [count(path, table) for table in POINTER_TABLES]


class SqliteClock:
    """The time by the clock of all stores in SQLite files."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.ms = START_MS
        for module in ("log", "topics", "transactions", "leases", "pointers"):
            patch.setattr(f"oplogd.store.sqlite.{module}.now_ms", lambda: self.ms)


async def whole(store: SqliteStore, made: list[Operation]) -> None:
    """Assert that the store holds exactly these operations and their states."""
    entries = await log_of(store)
    assert contents(entries) == wanted(made)
    assert [entry.offset for entry in entries] == list(range(1, len(made) + 1))
    assert known(await states_of(store)) == expected(fold(entries))


def content(path: Path) -> bytes:
    return path.read_bytes()


def replace(path: Path, by: bytes) -> None:
    path.write_bytes(by)


def put_in_place(path: Path, other: Path) -> None:
    """Rename another store to ``path``, without the -wal and -shm of both."""
    for name in (path, other):
        for end in ("-wal", "-shm"):
            name.with_name(name.name + end).unlink(missing_ok=True)
    other.rename(path)


async def made_at(path: Path, made: list[Operation]) -> None:
    async with opened(path) as store:
        await store.append(made)

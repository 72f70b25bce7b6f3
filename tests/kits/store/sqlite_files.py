"""SQLite stores in files, opened, read and replaced by tests."""

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from oplogd.clock import SYSTEM
from oplogd.clock.ages import Present
from oplogd.model.message_id import stamp
from oplogd.model.names import TopicName
from oplogd.model.operation import Operation
from oplogd.store.sqlite import APPLICATION_ID, MIGRATIONS, SqliteStore
from oplogd.store.sqlite.file import connection, migration
from oplogd.store.sqlite.file.schema import ADDED
from oplogd.store.sqlite.topics import catalogue, news
from oplogd.store.sqlite.topics import entries as topic_entries
from oplogd.store.sqlite.topics import statements as topic_statements
from oplogd.store.sqlite.transactions import statements as txn_statements
from oplogd.store.sqlite.upkeep import leaving, room
from oplogd.store.topics import MessageBatch, Outcome, Topic
from oplogd.workers.workers import Worker
from tests.kits.clock.virtual import VirtualClock
from tests.kits.models.operations import fold
from tests.kits.store.kits import contents, expected, known, log_of, states_of, wanted

POINTER_TABLES = ("pointers", "pointer_places", "stored")
# The schema version that counts the bytes of topics, and its tables.
TRANSACTIONS = 1 + [each.name for each in MIGRATIONS].index("transactions")
SIZES = 1 + [each.name for each in MIGRATIONS].index("sizes of topics")
NUMBERS = 1 + [each.name for each in MIGRATIONS].index("numbers of transactions")
SIZE_TABLES = ("topic_sizes", "uncounted_stored")


@contextlib.asynccontextmanager
async def opened(
    path: Path,
    clock: VirtualClock | None = None,
    *,
    max_bytes: int | None = None,
    topics_max_bytes: int | None = None,
    worker: Worker | None = None,
) -> AsyncIterator[SqliteStore]:
    """Open a store. ``clock`` dates its entries. ``worker``: None for one without others."""
    dates = clock.dates if clock else SYSTEM
    place = worker and worker.writer_place
    store = SqliteStore(
        path, max_bytes, clock=dates, topics_max_bytes=topics_max_bytes, place=place
    )
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


def steps_of(path: Path, call: Callable[[sqlite3.Connection], object]) -> int:
    """Return the number of instructions of SQLite's virtual machine in a call, in tens."""
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    with contextlib.closing(connection.connect(path, create=False)) as db:
        db.set_progress_handler(step, 10)
        call(db)
    return steps


def create_at_version(path: Path, version: int) -> None:
    """Create an empty file as the oplog of that schema version did."""
    with direct(path) as db:
        for migration in MIGRATIONS[:version]:
            for statement in migration.statements:
                db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {version}")


def create_topic(path: Path, name: TopicName) -> Topic:
    """Create the first topic of a file as the oplog of an earlier schema did."""
    now = stamp(SYSTEM.now_ms(), 0)
    with direct(path) as db:
        values = (name.namespace, name.topic, now, now)
        db.execute("INSERT INTO topics VALUES (1, ?, ?, NULL, 0, ?, 0, ?)", values)
        db.execute("UPDATE catalogue SET last_log = 1, version = version + 1")
    return Topic(1, name, None)


def open_at_version(patch: pytest.MonkeyPatch, version: int) -> None:
    """Let a store that is opened now have the tables of that schema version, and use no others.

    From version 2 on, topics that are there work in it.
    """
    patch.setattr(migration, "MIGRATIONS", MIGRATIONS[:version])
    if version < TRANSACTIONS:
        added = [each for each in ADDED if "txn_owners" not in each]
        patch.setattr(migration, "ADDED", added)
    if version < NUMBERS:
        for name in ("_ROWS", "FIND"):
            without = getattr(txn_statements, name).replace("key, number", "NULL, NULL")
            join = "LEFT JOIN txn_numbers ON txn_numbers.txn = id"
            patch.setattr(txn_statements, name, without.replace(join, ""))
    if version < SIZES:
        for name in ("_FIND", "_IN_NAMESPACE", "_CURRENT"):
            without = getattr(catalogue, name).replace("LEFT JOIN topic_sizes USING (log)", "")
            patch.setattr(catalogue, name, without.replace("max_bytes", "NULL"))
        appender = topic_statements.APPENDER.replace(topic_statements.HAS_ROOM, "")
        patch.setattr(topic_statements, "APPENDER", appender)
        patch.setattr(catalogue, "SET_MAX", "SELECT ?, ?")
        patch.setattr(room, "append", _append)
        patch.setattr(room, "require", lambda db, logs, now: None)
        patch.setattr(leaving, "look_again", lambda db, logs: None)
        patch.setattr(news, "GONE_SINCE", "SELECT 1, 1, 1 WHERE ? < 0")


def _append(
    db: sqlite3.Connection, batches: Sequence[MessageBatch], present: Present
) -> list[Outcome]:
    return topic_entries.append(db, batches, present.ms)


def schema_of(path: Path) -> set[tuple[str, str, str]]:
    """Return type, name and SQL of everything in the file except tables that were set aside."""
    with direct(path) as db:
        rows = db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
    return {
        (kind, name, " ".join((sql or "").split()))
        for kind, name, table, sql in rows
        if not table.startswith("ops_set_aside_at_")
    }


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

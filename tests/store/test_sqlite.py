"""What only the embedded store has: a file with a schema, and the troubles of files."""

import asyncio
import contextlib
import os
import resource
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from oplogd.errors import StoreError, StoreUnavailableError
from oplogd.operation import Operation
from oplogd.store import StateCursor, StatesPage
from oplogd.store.sqlite import (
    APPLICATION_ID,
    DEFAULT_CAP_BYTES,
    MIGRATIONS,
    SqliteStore,
    connection,
    log,
    statements,
)
from tests.operations import fold, key_of, numbered, operation
from tests.store.kits import contents, expected, known, log_of, states_of, wanted

Patch = pytest.MonkeyPatch


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "oplog.db"


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


async def whole(store: SqliteStore, made: list[Operation]) -> None:
    """The store holds exactly these operations, each once, and their states."""
    entries = await log_of(store)
    assert contents(entries) == wanted(made)
    assert [entry.offset for entry in entries] == list(range(1, len(made) + 1))
    assert known(await states_of(store)) == expected(fold(entries))


async def use(path: Path) -> None:
    async with opened(path) as store:
        await log_of(store)
        await states_of(store)
        await store.append(numbered(2000))


def content(path: Path) -> bytes:
    return path.read_bytes()


def replace(path: Path, by: bytes) -> None:
    path.write_bytes(by)


# --- The file and its schema ---


async def test_a_new_file_is_marked_as_ours_with_the_present_version(path: Path) -> None:
    async with opened(path) as store:
        assert (await store.stats()).max_bytes == DEFAULT_CAP_BYTES
    with direct(path) as db:
        assert db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_every_commit_waits_for_the_disk(path: Path) -> None:
    async with opened(path) as store:
        assert await store._writer.run(lambda db: db.execute("PRAGMA synchronous").fetchone()) == (
            2,
        )


async def test_a_file_of_the_version_before_is_brought_forward_with_what_it_holds(
    path: Path, monkeypatch: Patch
) -> None:
    made = numbered(3)
    async with opened(path) as store:
        await store.append(made)
    step = "CREATE TABLE extra (x); INSERT INTO extra VALUES (1)"
    monkeypatch.setattr(statements, "MIGRATIONS", (*MIGRATIONS, step))
    for _ in range(2):  # the second time there is nothing left to do
        async with opened(path) as store:
            await whole(store, made)
    with direct(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS) + 1,)
        assert db.execute("SELECT * FROM extra").fetchall() == [(1,)]


async def test_a_step_forward_that_fails_leaves_the_file_as_it_was(
    path: Path, monkeypatch: Patch
) -> None:
    made = numbered(3)
    async with opened(path) as store:
        await store.append(made)
    with monkeypatch.context() as patch:
        patch.setattr(
            statements,
            "MIGRATIONS",
            (*MIGRATIONS, "CREATE TABLE extra (x); INSERT INTO nowhere VALUES (1)"),
        )
        with pytest.raises(StoreError):
            async with opened(path):
                pass
    async with opened(path) as store:
        await whole(store, made)
    with direct(path) as db:
        assert db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'extra'").fetchone() == (
            0,
        )


async def test_a_newer_file_is_refused_with_what_to_do(path: Path) -> None:
    async with opened(path):
        pass
    with direct(path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(
        StoreError, match=r"version 99, this oplog knows up to \d+; use the newer oplog"
    ):
        async with opened(path):
            pass


async def test_another_programs_file_is_refused_and_left_as_it_was(path: Path) -> None:
    with direct(path) as db:
        db.execute("CREATE TABLE theirs (x)")
    before = content(path)
    with pytest.raises(StoreError, match="not an oplog store; give --store another path"):
        async with opened(path):
            pass
    assert content(path) == before
    assert os.listdir(os.path.dirname(path)) == ["oplog.db"]


async def test_an_empty_file_becomes_a_store(path: Path) -> None:
    replace(path, b"")
    async with opened(path) as store:
        await whole(store, [])


async def test_a_file_that_is_no_database_is_refused_and_left_as_it_was(path: Path) -> None:
    theirs = b"not a database " * 100
    replace(path, theirs)
    with pytest.raises(StoreUnavailableError, match="damaged or no SQLite file"):
        async with opened(path):
            pass
    assert content(path) == theirs


async def test_a_folder_that_is_not_there_is_named(path: Path) -> None:
    missing = path.parent / "missing" / "oplog.db"
    with pytest.raises(
        StoreUnavailableError,
        match=r"missing/oplog\.db: it cannot be opened; check that its folder",
    ):
        async with opened(missing):
            pass


# --- The cap ---


async def test_only_an_explicit_cap_changes_that_of_the_file(path: Path) -> None:
    for given, expected_cap in [(5000, 5000), (None, 5000), (7000, 7000), (None, 7000)]:
        async with opened(path, given) as store:
            assert (await store.stats()).max_bytes == expected_cap


async def test_the_bytes_counted_for_the_cap_are_those_of_a_recount(path: Path) -> None:
    async with opened(path, 3000) as store:
        for number in range(1, 60):
            await store.append(
                [operation(id_="é" * (number * 7 % 50 + 1), parents=["p"] * (number % 4))]
                * (number % 3 + 1)
            )
            with direct(path) as db:
                ((recount,),) = db.execute(
                    "SELECT sum(length(CAST(key AS BLOB)) + length(CAST(data AS BLOB)) + 32) FROM ops"
                ).fetchall()
            stats = await store.stats()
            assert stats.bytes == recount <= 3000
        assert stats.operations > 5


async def test_a_log_far_over_its_new_cap_is_trimmed_in_steps(path: Path) -> None:
    async with opened(path) as store:
        for first in range(0, 25_000, 5000):
            await store.append(numbered(5000, first))
    async with opened(path, 2000) as store:
        stats = await store.stats()
        entries = await log_of(store)
        assert stats.bytes <= 2000
        assert stats.operations == len(entries) == 25_000 - entries[0].offset + 1
        assert stats.states == 25_000


# --- Troubles, and that nothing is lost or doubled by them ---


async def test_a_lock_of_another_process_is_named_and_passes(
    path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.05)
    made = numbered(4)
    async with opened(path) as store:
        await store.append(made[:2])
        with direct(path) as db:
            db.execute("BEGIN IMMEDIATE")
            for _ in range(2):
                with pytest.raises(
                    StoreUnavailableError, match="another process holds a lock on it"
                ):
                    await store.append(made[2:])
            assert contents(await store.read(0, 10)) == wanted(made[:2])
            db.execute("ROLLBACK")
        await store.append(made[2:])
        await whole(store, made)


async def test_a_full_disk_is_named_and_what_was_not_stored_can_be_stored_later(
    path: Path, monkeypatch: Patch
) -> None:
    made = [operation(id_=str(number), parents=["p" * 3000]) for number in range(60)]
    async with opened(path) as store:
        await store.append(made[:1])
    with monkeypatch.context() as patch:
        patch.setattr(statements, "PRAGMAS", statements.PRAGMAS + "PRAGMA max_page_count = 40;")
        async with opened(path) as store:
            await store.append(made[1:10])
            for _ in range(2):
                with pytest.raises(
                    StoreUnavailableError, match="the disk is full; free some space"
                ):
                    await store.append(made[10:])
            await whole(store, made[:10])
            patch.undo()  # somebody has freed some space; the failed connection was given up
            await store.append(made[10:])
            await whole(store, made)
    async with opened(path) as store:
        await whole(store, made)


async def test_a_write_that_the_system_refuses_is_named_and_passes(path: Path) -> None:
    made = [operation(id_=str(number), parents=["p" * 3000]) for number in range(120)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with opened(path) as store:
        await store.append(made[:20])
        size = len(content(Path(f"{path}-wal")))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 8192, hard))
        try:
            with pytest.raises(
                StoreUnavailableError, match=r"reading or writing it failed|the disk is full"
            ):
                await store.append(made[20:])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        await whole(store, made[:20])
        await store.append(made[20:])
        await whole(store, made)


async def test_a_damaged_file_is_named_and_a_sound_copy_in_its_place_works(path: Path) -> None:
    made = numbered(2000)
    async with opened(path) as store:
        await store.append(made)
    sound = content(path)
    replace(path, sound[:8192] + b"\xff" * 40_000 + sound[48_192:])
    with pytest.raises(StoreUnavailableError, match="it is damaged or no SQLite file"):
        await use(path)
    replace(path, sound)
    async with opened(path) as store:
        await whole(store, made)


async def test_an_empty_file_in_the_place_of_the_store_is_not_made_a_new_one_and_the_old_one_works_again(
    path: Path,
) -> None:
    made = numbered(3)
    async with opened(path) as store:
        await store.append(made[:2])
        for end in ("", "-wal", "-shm"):
            path.with_name(path.name + end).rename(path.with_name("aside" + end))
        replace(path, b"")
        for call in (
            store.locate,
            store.stats,
            lambda: store.append(made[2:]),
            lambda: store.read(0, 10),
        ):
            with pytest.raises(StoreUnavailableError, match="no such table"):
                await call()
        with direct(path) as db:
            assert db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
        for end in ("", "-wal", "-shm"):
            path.with_name("aside" + end).rename(path.with_name(path.name + end))
        await store.append(made[2:])
        await whole(store, made)


def put_in_place(path: Path, other: Path) -> None:
    """Rename another store to ``path``. Neither keeps a -wal or -shm."""
    for name in (path, other):
        for end in ("-wal", "-shm"):
            name.with_name(name.name + end).unlink(missing_ok=True)
    other.rename(path)


async def made_at(path: Path, made: list[Operation]) -> None:
    async with opened(path) as store:
        await store.append(made)


async def test_an_append_whose_file_is_replaced_before_it_returns_is_not_confirmed(
    path: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    made, other = numbered(3), tmp_path / "other.db"
    await made_at(other, made[:1])
    append = log.append

    def append_and_replace(db: sqlite3.Connection, operations: list[Operation]) -> None:
        append(db, operations)
        put_in_place(path, other)

    async with opened(path) as store:
        await store.append(made[1:2])
        with monkeypatch.context() as patch:
            patch.setattr(log, "append", append_and_replace)
            with pytest.raises(StoreUnavailableError, match="moved away while it was written to"):
                await store.append(made[2:])
        await store.append(made[2:])
        await whole(store, [made[0], made[2]])


async def test_a_file_that_is_replaced_while_it_is_opened_is_not_written_to(
    path: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    made, first, second = numbered(3), tmp_path / "first.db", tmp_path / "second.db"
    await made_at(first, made[:1])
    await made_at(second, made[1:2])
    connect = connection.connect

    def connect_and_replace(path: Path, create: bool) -> sqlite3.Connection:
        db = connect(path, create)
        put_in_place(path, second)
        return db

    async with opened(path) as store:
        put_in_place(path, first)
        with monkeypatch.context() as patch:
            patch.setattr(connection, "connect", connect_and_replace)
            with pytest.raises(StoreUnavailableError, match="while it was opened"):
                await store.append(made[2:])
        await store.append(made[2:])
        await whole(store, made[1:])


async def test_a_copy_that_gets_the_number_of_the_file_that_was_deleted_is_another_file(
    path: Path, tmp_path: Path
) -> None:
    made = numbered(3)
    await made_at(path, made[:1])
    older = content(path)
    async with opened(path) as store:
        await store.append(made[1:])
        head = (await store.locate()).head
        lost = head.ms
        put_in_place(tmp_path / "aside.db", path)
        for call in (
            store.locate,
            store.checkpoint,
            lambda: store.append(made),
            lambda: store.follow(0, 1, 0),
        ):
            with pytest.raises(StoreUnavailableError, match="the file is gone"):
                await call()
        replace(tmp_path / "aside.db", older)  # keeps the number
        put_in_place(path, tmp_path / "aside.db")
        located = await store.locate()
        assert located.head.offset == 1
        assert [span for span in located.unwritten if span[0] == located.head.ms and span[1] > lost]


@pytest.mark.parametrize(
    "count", [3, 2 * statements.STATEMENT_OPERATIONS], ids=["one statement", "several"]
)
async def test_an_append_that_was_interrupted_leaves_nothing(path: Path, count: int) -> None:
    made = numbered(2)
    async with opened(path) as store:
        await store.append(made)
        broken = Operation("insert", "video/x", b"{not json")
        with pytest.raises(StoreUnavailableError):
            await store.append([*numbered(count, first=10), broken])
        await whole(store, made)


@pytest.mark.parametrize(
    "made",
    [
        numbered(2 * statements.STATEMENT_OPERATIONS + 1),
        [operation(id_=str(number), parents=["p" * 900_000]) for number in range(5)],
        [operation(parents=["p" * 2 * statements.STATEMENT_BYTES])],
    ],
    ids=["many", "large", "one larger than a statement"],
)
async def test_a_large_batch_is_appended_whole_and_in_its_order(
    path: Path, made: list[Operation]
) -> None:
    async with opened(path) as store:
        await store.append(made)
        await whole(store, made)


async def test_readers_see_whole_batches_only(path: Path) -> None:
    """Ten writers of batches; whoever looks sees a log that ends with a batch, and the states of just that log."""
    async with opened(path) as store, opened(path) as other:

        async def look() -> None:
            for _ in range(20):
                located = await other.locate()
                assert located.head.offset % 7 == 0
                assert (await other.checkpoint()).offset >= located.head.offset
                assert len(await other.read(0, 1000)) % 7 == 0

        await asyncio.gather(look(), *(store.append(numbered(7, first=n * 7)) for n in range(10)))
        assert (await other.locate()).head.offset == 70


ENDLESS = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"


async def test_states_that_take_long_to_count_hold_up_neither_the_figures_nor_the_close(
    path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(statements, "STATES_COUNT", ENDLESS)
    async with asyncio.timeout(30):
        async with opened(path) as store:
            await store.append(numbered(7))
            asked = await asyncio.gather(*(store.stats() for _ in range(10)))
            assert [stats.states for stats in asked] == [7] * 10
            assert (await store.locate()).head.offset == 7


async def test_a_count_that_is_under_way_leaves_the_last_one_until_it_ends(
    path: Path, monkeypatch: Patch
) -> None:
    slow = f"SELECT count(*) FROM states WHERE ({ENDLESS.replace('FROM n)', 'FROM n LIMIT 1000000)')}) > 0"
    async with asyncio.timeout(30):
        async with opened(path) as store:
            await store.append(numbered(7))
            assert (await store.stats()).states == 7
            monkeypatch.setattr(statements, "STATES_COUNT", slow)
            monkeypatch.setattr("oplogd.store.counted.COUNT_SECONDS", 0.001)
            await store.append(numbered(1, first=8))
            assert (await store.stats()).states == 7
            while (await store.stats()).states != 8:
                await asyncio.sleep(0.01)


# --- What one call costs, and who waits for whom ---


def steps_of(path: Path, call: Callable[[sqlite3.Connection], object]) -> int:
    """The instructions of SQLite's virtual machine that a call took, in tens."""
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    with contextlib.closing(connection.connect(path, create=False)) as db:
        db.set_progress_handler(step, 10)
        call(db)
    return steps


async def test_a_page_of_live_states_costs_the_same_however_many_deleted_ones_are_before_it(
    path: Path,
) -> None:
    async with opened(path) as store:
        await store.append([operation(id_="live")])
        start = StateCursor(0, None)
        few = steps_of(path, lambda db: log.states(db, start, 10**9, True, 500))
        for first in range(0, 20_000, 5000):
            await store.append(
                [operation("delete", id_=str(number)) for number in range(first, first + 5000)]
            )
        await store.append([operation("update", id_="live")])
        page = await store.states(start, 10**9, True, 500)
        assert [key_of(state.data) for state in page.states] == ["video/live"]
        assert page.next is None
        assert steps_of(path, lambda db: log.states(db, start, 10**9, True, 500)) < 2 * few + 10


async def test_a_page_of_states_costs_the_same_however_many_were_changed_after_its_mark(
    path: Path,
) -> None:
    async with opened(path) as store:
        await store.append(numbered(10))
        for live_only in (False, True):
            call = partial(
                log.states, start=StateCursor(0, None), upto=10, live_only=live_only, limit=5
            )
            few = steps_of(path, call)
            await store.append(numbered(5000, first=100))
            assert steps_of(path, call) < 2 * few


@pytest.mark.parametrize("live_only", [False, True])
async def test_a_page_costs_the_same_however_many_states_share_its_millisecond(
    path: Path, live_only: bool
) -> None:
    async with opened(path) as store:
        await store.append(numbered(5000))
        await store.new_epoch()
        first = (await store.states(StateCursor(0, None), 10**9, live_only, 1)).states[0].cursor

        def page(after: int) -> Callable[[sqlite3.Connection], object]:
            start = StateCursor(first.ms, after)
            return lambda db: log.states(db, start, 10**9, live_only, 20)

        assert steps_of(path, page(4900)) < 2 * steps_of(path, page(1))


async def test_a_read_touches_no_entries_past_the_megabyte_that_it_brings(path: Path) -> None:
    async with opened(path) as store:
        await store.append(
            [operation(id_=str(number), parents=["p" * 60_000]) for number in range(100)]
        )
        entries = await store.read(0, 2000)
        assert 1_000_000 < sum(len(entry.data) for entry in entries) < 1_100_000
        states = (await store.states(StateCursor(0, None), 10**9, True, 500)).states
        assert len(states) == len(entries)
        for call in (
            lambda db, limit: log.read(db, 0, limit),
            lambda db, limit: log.states(db, StateCursor(0, None), 10**9, True, limit),
        ):
            least = steps_of(path, partial(call, limit=len(entries)))
            assert steps_of(path, partial(call, limit=2000)) < 1.2 * least


async def test_neither_connects_nor_figures_wait_for_pages_of_states(
    path: Path, monkeypatch: Patch
) -> None:
    goes_on = threading.Event()
    began = threading.Semaphore(0)
    states = log.states

    def slow(*given: Any) -> StatesPage:
        began.release()
        assert goes_on.wait(30)
        return states(*given)

    monkeypatch.setattr(log, "states", slow)
    async with opened(path) as store:
        await store.append(numbered(3))
        calls = [
            asyncio.create_task(store.states(StateCursor(0, None), 3, True, 10)) for _ in range(20)
        ]
        try:
            assert await asyncio.to_thread(began.acquire, timeout=30)
            async with asyncio.timeout(30):
                assert (await store.locate()).head.offset == 3
                assert (await store.checkpoint()).offset == 3
                assert (await store.stats()).operations == 3
        finally:
            goes_on.set()
        assert [len((await call).states) for call in calls] == [3] * 20


async def test_closing_does_not_wait_for_the_calls_that_have_no_turn_yet(
    path: Path, monkeypatch: Patch
) -> None:
    goes_on, began = threading.Event(), threading.Semaphore(0)
    turns = []

    def slow(*_: Any) -> StatesPage:
        turns.append(1)
        began.release()
        assert goes_on.wait(30)
        return StatesPage([], None)

    monkeypatch.setattr(log, "states", slow)
    async with opened(path) as store:
        calls = [
            asyncio.create_task(store.states(StateCursor(0, None), 3, True, 10)) for _ in range(50)
        ]
        for _ in range(3):
            assert await asyncio.to_thread(began.acquire, timeout=30)
        closing = asyncio.create_task(store.close())
        await asyncio.wait(calls[3:], timeout=30)
        goes_on.set()
        await closing
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert len(turns) == 3
    assert [type(result) for result in results[3:]] == [StoreUnavailableError] * 47


# --- The first schema ---


async def test_a_file_of_the_first_schema_is_brought_forward_with_its_states_and_says_so(
    path: Path, monkeypatch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    with direct(path) as db:
        for statement in MIGRATIONS[0].split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("PRAGMA user_version = 1")
        db.execute(
            "INSERT INTO logs VALUES ('ops', 1000000, 0, 30000, 1700000000000, 1600000000000, 1, 0)"
        )
        db.execute(
            "INSERT INTO openings VALUES (1650000000000, 1660000000000), (1670000000000, 4000000000000)"
        )
        db.execute("""
            WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 30000)
            INSERT INTO states (key, n, ts, deleted, data)
            SELECT 'video/' || n, n, 1600000000000 + n, n % 2, '{"type":"video","id":"' || n || '"}' FROM number
        """)
    monkeypatch.setattr(connection, "_PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(connection, "_PROGRESS_STEPS", 10_000)
    caplog.set_level("INFO")
    async with opened(path) as store:
        live = await states_of(store, live_only=True, limit=5000)
        assert [state.cursor.tie for state in live] == list(range(2, 30_001, 2))
        everything = await states_of(store, limit=5000)
        assert [state.cursor.tie for state in everything] == list(range(1, 30_001))
        located = await store.locate()
        assert (1650000000000, 1660000000000) in located.unwritten
        assert all(
            before < 4000000000000 for after, before in located.unwritten if after == 1670000000000
        )
    assert "bringing the file to schema version 2; a large one takes a while" in caplog.text
    assert "still at it after" in caplog.text

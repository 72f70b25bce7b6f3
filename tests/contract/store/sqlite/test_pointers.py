"""Pointers in SQLite files: schema, statements, failures."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from oplogd.errors import (
    StoreUnavailableError,
    TopicNotFoundError,
    TransactionConflictError,
)
from oplogd.model.pointer import Decision
from oplogd.store.sqlite import MIGRATIONS, SqliteStore
from oplogd.store.sqlite.topics import news
from oplogd.store.topics import Topic
from oplogd.store.transactions import Decisions, OpenStats
from tests.kits.clock.virtual import VirtualClock
from tests.kits.models.operations import numbered
from tests.kits.processes.logged import DEADLINE
from tests.kits.store.kits import contents, log_of, wanted
from tests.kits.store.messages import NAME, entries_of, named, publish
from tests.kits.store.pointing import (
    TEPHRA,
    committed,
    kinds_in,
    publish_stored,
    publish_under,
    store_under,
    uncommitted,
)
from tests.kits.store.sqlite_files import (
    POINTER_TABLES,
    SIZE_TABLES,
    count,
    create_at_version,
    create_topic,
    direct,
    number,
    open_at_version,
    opened,
    pointer_counts,
    schema_of,
)

Patch = pytest.MonkeyPatch

pytestmark = pytest.mark.usefixtures("no_fsync")

# The schema version before pointers.
BEFORE = 5


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


# --- Schema ---


async def test_a_file_of_the_schema_before_gets_pointers_and_keeps_its_contents(
    path: Path, monkeypatch: Patch
) -> None:
    made = numbered(5)
    create_at_version(path, BEFORE)
    with monkeypatch.context() as patch:
        open_at_version(patch, BEFORE)
        async with opened(path) as older:
            await older.append(made)
            topic = create_topic(path, NAME)
            await publish(older.topics, topic, "a")
    before = schema_of(path)
    assert number(path, "PRAGMA user_version") == BEFORE
    async with opened(path) as store:
        await publish_under(store, topic, TEPHRA, "b")
        await store_under(store, topic, TEPHRA, "c")
    async with opened(path) as store:
        await publish_stored(store, topic, TEPHRA)
        assert (await committed(store, topic)).held_by == TEPHRA
        await store.pointers.decide([topic.log], TEPHRA, Decision.COMMITTED)
        assert (await committed(store, topic)).payloads == ["a", "b", "c"]
        assert contents(await log_of(store)) == wanted(made)
    added = schema_of(path) - before
    assert before < schema_of(path), "the tables of the schema before are as they were"
    tables = {name for kind, name, _ in added if kind == "table"}
    assert tables >= {*POINTER_TABLES, *SIZE_TABLES, "purges"}
    assert number(path, "PRAGMA user_version") == len(MIGRATIONS) >= BEFORE + 2


async def test_an_agent_of_the_schema_before_goes_on_with_a_file_that_it_has_open(
    path: Path, monkeypatch: Patch
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        with monkeypatch.context() as patch:
            open_at_version(patch, BEFORE)
            older = await stack.enter_async_context(opened(path))
            topic = create_topic(path, NAME)
            await publish(older.topics, topic, "a")
        newer = await stack.enter_async_context(opened(path))
        await publish_under(newer, topic, 7, "b")
        await newer.pointers.decide([topic.log], 7, Decision.COMMITTED)
        await publish(older.topics, topic, "c")
        await older.append(numbered(2))
        assert (await committed(newer, topic)).payloads == ["a", "b", "c"]
        events = [entry.event for entry in await entries_of(older.topics.log(topic))]
        assert events == ["message", "direct", "commit", "message"]


async def test_a_store_without_pointers_costs_no_rows(path: Path) -> None:
    async with opened(path) as store:
        await publish(store.topics, await store.topics.create(NAME, None), "a")
        assert await store.pointers.keep() == 0
        assert await store.topics.sweep() == 0
        assert pointer_counts(path) == [0, 0, 0]


# --- One call, one transaction of SQLite ---


def _contents(path: Path) -> dict[str, list[tuple[object, ...]]]:
    tables = ("topics", "entries", *POINTER_TABLES)
    with direct(path) as db:
        return {table: db.execute(f"SELECT * FROM {table}").fetchall() for table in tables}


STATEMENTS = [
    ("entries", "INSERT"),
    ("entries", "UPDATE"),
    ("topics", "UPDATE"),
    ("pointers", "INSERT"),
    ("pointer_places", "INSERT"),
    ("pointer_places", "DELETE"),
    ("stored", "INSERT"),
    ("stored", "DELETE"),
]


@pytest.mark.parametrize("callers", [1, 3])
async def test_a_call_that_fails_at_any_statement_leaves_nothing(
    path: Path, clock: VirtualClock, callers: int
) -> None:
    """Each call below meets each statement. ``callers``: they share a transaction of SQLite."""
    async with opened(path, clock) as store:
        one, two = [await store.topics.create(named(name), None) for name in "ab"]
        for topic in (one, two):
            await publish_under(store, topic, 7, "a")
            await store_under(store, topic, 7, "b")
            await publish_stored(store, topic, 7)
            await store_under(store, topic, 7, "c")
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "publish": lambda: publish_under(store, one, 8, "x"),
            "store": lambda: store_under(store, one, 8, "x"),
            "publish_stored": lambda: publish_stored(store, one, 7),
            "rollback": lambda: store.pointers.rollback(one.log, 7, None),
            "decide": lambda: store.pointers.decide([one.log, two.log], 7, Decision.ABORTED),
            "keep": store.pointers.keep,
        }
        clock.ms += 900_001
        before = _contents(path)
        failed = set()
        for table, verb in STATEMENTS:
            with direct(path) as db:
                db.execute(
                    f"CREATE TRIGGER refuse BEFORE {verb} ON {table}"
                    " BEGIN SELECT RAISE(ABORT, 'refused'); END"
                )
            for name, call in calls.items():
                results = await asyncio.gather(
                    *(call() for _ in range(callers)), return_exceptions=True
                )
                if isinstance(results[0], BaseException):
                    failed.add((name, table))
                    assert all(isinstance(each, StoreUnavailableError) for each in results)
                    assert _contents(path) == before
                else:
                    with direct(path) as db:
                        _restore(db, before)
            with direct(path) as db:
                db.execute("DROP TRIGGER refuse")
        assert failed == {
            ("publish", "entries"), ("publish", "topics"), ("publish", "pointers"),
            ("publish", "pointer_places"),
            ("store", "pointers"), ("store", "stored"),
            ("publish_stored", "entries"), ("publish_stored", "topics"),
            ("publish_stored", "pointers"), ("publish_stored", "pointer_places"),
            ("rollback", "entries"), ("rollback", "topics"), ("rollback", "pointers"),
            ("rollback", "pointer_places"), ("rollback", "stored"),
            ("decide", "entries"), ("decide", "topics"), ("decide", "pointers"),
            ("decide", "stored"),
            ("keep", "entries"), ("keep", "topics"), ("keep", "pointers"), ("keep", "stored"),
        }  # fmt: skip
        for topic in (one, two):
            assert await uncommitted(store, topic) == ["a", "b"]


def _restore(db: sqlite3.Connection, before: dict[str, list[tuple[object, ...]]]) -> None:
    (trigger,) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'refuse'").fetchone()
    db.execute("DROP TRIGGER refuse")
    for table, rows in before.items():
        db.execute(f"DELETE FROM {table}")
        marks = ", ".join("?" * len(rows[0])) if rows else ""
        db.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
    db.execute(trigger)


async def test_calls_that_are_refused_do_not_affect_those_that_share_their_transaction(
    path: Path,
) -> None:
    async with opened(path) as store:
        topic, gone = [await store.topics.create(named(name), None) for name in "ab"]
        await store.topics.delete(gone.name)
        await store.pointers.decide([topic.log], 7, Decision.COMMITTED)
        results = await asyncio.gather(
            *(publish_under(store, topic, n, n) for n in range(100, 110)),
            publish_under(store, topic, 7, "refused"),
            publish_under(store, gone, 8, "refused"),
            publish_stored(store, gone, 9),
            store.pointers.decide([topic.log, gone.log], 100, Decision.COMMITTED),
            *(publish_under(store, topic, n, n) for n in range(110, 120)),
            return_exceptions=True,
        )
        assert [type(each) for each in results[10:14]] == [
            TransactionConflictError, TopicNotFoundError, TopicNotFoundError, TopicNotFoundError
        ]  # fmt: skip
        assert await uncommitted(store, topic) == [str(n) for n in range(100, 120)]
        assert pointer_counts(path) == [21, 20, 0]
        assert store.pointers.decisions == Decisions(committed=1)


async def test_a_decision_over_several_logs_is_in_all_of_them_or_in_none(path: Path) -> None:
    async with opened(path) as store:
        topics = [await store.topics.create(named(name), None) for name in "abc"]
        await store.pointers.decide([topics[2].log], 7, Decision.ABORTED)
        with pytest.raises(TransactionConflictError, match="pointer 7 was aborted"):
            await store.pointers.decide([each.log for each in topics], 7, Decision.COMMITTED)
        assert [await kinds_in(store, each) for each in topics] == [[], [], [("abort", None)]]
        assert store.pointers.decisions == Decisions(aborted=1)


async def test_calls_wake_the_follower_of_topics_without_a_poll(
    path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(news, "POLL_SECONDS", 3600.0)
    async with asyncio.timeout(DEADLINE), opened(path) as store:
        topic = await store.topics.create(NAME, None)
        await store.topics.news({}, 0)
        await store_under(store, topic, 8, "b")
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: publish_under(store, topic, 7, "a"),
            lambda: publish_stored(store, topic, 8),
            lambda: store.pointers.rollback(topic.log, 7, None),
            lambda: store.pointers.decide([topic.log], 7, Decision.COMMITTED),
        ]
        for head, call in enumerate(calls):
            waiting = asyncio.create_task(store.topics.news({topic.log: head}, 3600))
            await store.topics.find(NAME)  # meanwhile the follower begins to wait
            await call()
            assert (await waiting).logs == [topic.log]


# --- Failures ---


async def test_without_the_tables_of_pointers_everything_else_goes_on(
    path: Path, clock: VirtualClock
) -> None:
    async with opened(path, clock) as store:
        topic = await store.topics.create(NAME, 5)
        await publish_under(store, topic, 7, "a")
        with direct(path) as db:
            for table in POINTER_TABLES:
                db.execute(f"DROP TABLE {table}")
        for call in (
            publish_under(store, topic, 8, "b"),
            store_under(store, topic, 8, "b"),
            publish_stored(store, topic, 8),
            store.pointers.rollback(topic.log, 7, None),
            store.pointers.decide([topic.log], 7, Decision.COMMITTED),
            store.pointers.select(topic.log, 10),
            store.pointers.keep(),
            store.pointers.stats(),
            store.topics.log(topic).decisions([7]),
        ):
            with pytest.raises(StoreUnavailableError, match="no such table"):
                await call
        await publish(store.topics, topic, "new")
        assert await uncommitted(store, topic) == ["a", "new"]
        await store.append(numbered(3))
        assert contents(await log_of(store)) == wanted(numbered(3))
        clock.ms += 5001
        with pytest.raises(StoreUnavailableError, match="no such table"):
            await store.topics.sweep()
        assert count(path, "entries") == 0


async def test_a_rollback_writes_less_than_the_messages_that_it_removes(path: Path) -> None:
    large = "x" * 500_000
    async with opened(path) as store:
        topic = await store.topics.create(NAME, None)
        await publish_under(store, topic, 7, large)
        await store_under(store, topic, 7, large)
        await publish_stored(store, topic, 7)
        with direct(path) as db:
            assert db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
        await store.pointers.rollback(topic.log, 7, None)
        assert await uncommitted(store, topic) == []
        assert 0 < path.with_name(f"{path.name}-wal").stat().st_size < len(large)


async def test_a_damaged_row_is_named_and_stops_no_other_pointer(path: Path) -> None:
    async with opened(path) as store:
        topic: Topic = await store.topics.create(NAME, None)
        for pointer in (7, 8):
            await publish_under(store, topic, pointer, "a")
        with direct(path) as db:
            db.execute("UPDATE pointers SET state = 'lost' WHERE pointer = 7")
        calls: list[Awaitable[object]] = [
            publish_under(store, topic, 7, "b"),
            store.pointers.decide([topic.log], 7, Decision.COMMITTED),
            store.topics.log(topic).decisions([7, 8]),
        ]
        for call in calls:
            with pytest.raises(StoreUnavailableError, match="the row of pointer 7 is damaged"):
                await call
        await publish_under(store, topic, 8, "b")
        assert await store.pointers.stats() == OpenStats(1, (await _begun(store, topic)))


async def _begun(store: SqliteStore, topic: Topic) -> int:
    (only,) = await store.pointers.select(topic.log, 10)
    return only.begun_ms

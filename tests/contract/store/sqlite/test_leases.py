"""Leases and fences in SQLite files: schema, statements, transactions, other processes."""

import asyncio
import contextlib
import itertools
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from oplogd.errors import StoreUnavailableError
from oplogd.model.lease import Fence
from oplogd.model.message import Message
from oplogd.model.operation import Operation
from oplogd.store import FencedBatch
from oplogd.store.leases import EXTENSIONS
from oplogd.store.sqlite import MIGRATIONS
from oplogd.store.sqlite import leases as lease_rows
from oplogd.store.sqlite.file import connection
from oplogd.store.sqlite.file import parts as sqlite_parts
from oplogd.store.sqlite.log import log
from oplogd.store.sqlite.topics import entries as topic_entries
from oplogd.store.sqlite.topics import statements as topic_statements
from oplogd.store.topics import MessageBatch, Refused
from tests.kits.clock.virtual import START_MS, VirtualClock
from tests.kits.models.operations import fold, numbered
from tests.kits.processes.logged import DEADLINE
from tests.kits.store.kits import contents, expected, known, log_of, states_of, wanted
from tests.kits.store.leasing import (
    ORDERS,
    TTL_MS,
    fenced,
    fenced_messages,
    held,
    ids_of,
    is_accepted,
    lead,
    request,
)
from tests.kits.store.messages import NAME, message, messages, named, payloads_of, publish
from tests.kits.store.sqlite_files import (
    count,
    create_at_version,
    create_topic,
    direct,
    number,
    open_at_version,
    opened,
    schema_of,
)

Patch = pytest.MonkeyPatch

pytestmark = pytest.mark.usefixtures("no_fsync")

# The schema version before leases.
BEFORE = 4


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


# --- Schema ---


async def test_a_file_of_the_schema_before_gets_leases_and_keeps_its_contents(
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
        fence = await lead(store, "a")
        await store.topics.append([fenced_messages(topic, fence, "b")])
    async with opened(path) as store:
        assert await lead(store, "a") == fence
        assert await payloads_of(store.topics, topic) == ["a", "b"]
        assert contents(await log_of(store)) == wanted(made)
    after = schema_of(path)
    assert before < after, "the tables of the schema before are as they were"
    assert ("table", "leases") in {(kind, name) for kind, name, _ in after - before}
    assert number(path, "PRAGMA user_version") == len(MIGRATIONS)


async def test_an_agent_of_the_schema_before_goes_on_with_a_file_that_it_has_open(
    path: Path, monkeypatch: Patch
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        with monkeypatch.context() as patch:
            open_at_version(patch, BEFORE)
            older = await stack.enter_async_context(opened(path))
            topic = create_topic(path, NAME)
            await publish(older.topics, topic, "a")
            await older.append(numbered(1))
        newer = await stack.enter_async_context(opened(path))
        fence = await lead(newer, "a")
        await newer.topics.append([fenced_messages(topic, fence, "b")])
        await newer.append_fenced([FencedBatch(numbered(1, 2), fence)])
        await publish(older.topics, topic, "c")
        await older.append(numbered(1, 3))
        assert await payloads_of(older.topics, topic) == ["a", "b", "c"]
        assert contents(await log_of(older)) == wanted(numbered(3))


# --- Polls ---


async def test_a_poll_that_changes_nothing_writes_nothing(path: Path, clock: VirtualClock) -> None:
    def version() -> int:
        found: int = db.execute("PRAGMA data_version").fetchone()[0]
        return found

    async with opened(path, clock) as store:
        await store.leases.poll(request("a", note="n"))
        with direct(path) as db:
            unchanged = version()
            for _ in range(TTL_MS // EXTENSIONS):
                assert await store.leases.poll(request("a")) == await store.leases.find(ORDERS)
                await store.leases.poll(request("a", note="n"))
                await store.leases.poll(request("b", refresh=True, note="x"))
                assert version() == unchanged
                clock.ms += 1
            for poll in (
                request("a"),
                request("a", refresh=True),
                request("a", note="x"),
                request("a", ttl_ms=TTL_MS + 1),
            ):
                await store.leases.poll(poll)
                assert version() != unchanged
                unchanged = version()
            assert await store.leases.find(ORDERS) == held("a", 2, TTL_MS + 1, "x")
            await store.leases.release(ORDERS, "a", 2)
            unchanged = version()
            await store.leases.release(ORDERS, "a", 2)
            assert version() == unchanged
        assert count(path, "leases") == 1


async def test_polls_that_change_nothing_go_on_while_another_process_writes(
    path: Path, monkeypatch: Patch, clock: VirtualClock
) -> None:
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.05)
    async with opened(path, clock) as store:
        await lead(store, "a")
        with direct(path) as db:
            db.execute("BEGIN IMMEDIATE")
            clock.ms += 1
            for holder in "ab":
                assert await store.leases.poll(request(holder)) == held("a", 1, TTL_MS - 1)
            for poll in (request("a", refresh=True), request("b", name="others")):
                with pytest.raises(StoreUnavailableError, match="another process holds a lock"):
                    await store.leases.poll(poll)
            db.execute("ROLLBACK")
        assert await store.leases.poll(request("a", refresh=True)) == held("a", 2)


async def test_the_lease_of_a_dead_holder_ends_although_the_clock_was_set_back(
    path: Path, clock: VirtualClock
) -> None:
    async with opened(path, clock) as store:
        await lead(store, "a")
        clock.ms -= 86_400_000
        assert await store.leases.poll(request("b", ttl_ms=100)) == held("a", 1)
        clock.ms += TTL_MS - 1
        assert await store.leases.poll(request("b")) == held("a", 1, 1)
        clock.ms += 1
        assert await store.leases.poll(request("b")) == held("b", 2)


async def test_a_holder_keeps_its_lease_although_the_clock_was_set_back(
    path: Path, clock: VirtualClock
) -> None:
    async with opened(path, clock) as store:
        await lead(store, "a")
        clock.ms -= 86_400_000
        assert await store.leases.poll(request("a")) == held("a", 1)
        clock.ms += TTL_MS
        assert await store.leases.poll(request("b")) == held("b", 2)


# --- Appends ---


def statements_of(path: Path, call: Callable[[sqlite3.Connection], object]) -> list[str]:
    """Return the first words of the statements of a call.

    SQLite reports a statement again for each statement of its triggers.
    """
    traced: list[str] = []
    with contextlib.closing(connection.connect(path, create=False)) as db:
        db.executescript(topic_statements.APPENDER)
        db.set_trace_callback(traced.append)
        call(db)
    return [" ".join(text.split()[:2]) for text, _ in itertools.groupby(traced)]


async def test_batches_without_a_fence_take_no_statement_for_it_and_fenced_ones_one_commit(
    path: Path,
) -> None:
    async with opened(path) as store:
        one, two = [await store.topics.create(named(name), None) for name in ("one", "two")]
        stale = await lead(store, "a")
        fence = await lead(store, "a", refresh=True)
        others = await lead(store, "a", name="others")
    plain = [MessageBatch(topic.log, messages("ab")) for topic in (one, two, one)]
    append = ["INSERT INTO", "SELECT json_group_array(json_array(log,"]
    assert statements_of(path, lambda db: topic_entries.append(db, plain, START_MS)) == append
    assert statements_of(path, lambda db: log.append(db, numbered(3))) == ["INSERT INTO"]
    batches = [
        each._replace(fence=fence_)
        for each, fence_ in zip(plain, (fence, stale, others), strict=True)
    ]
    judged = ["BEGIN IMMEDIATE", "SELECT name,"]
    assert statements_of(path, lambda db: topic_entries.append(db, batches, START_MS)) == [
        *judged,
        *append,
        "COMMIT",
    ]
    operations = [fenced(each, "1", "2") for each in (fence, stale, others)]
    assert statements_of(path, lambda db: log.append_fenced(db, operations)) == [
        *judged,
        "INSERT INTO",
        "COMMIT",
    ]


@pytest.mark.parametrize(
    "count_", [3, 2 * sqlite_parts.STATEMENT_OPERATIONS], ids=["one statement", "several"]
)
async def test_a_fenced_append_that_fails_leaves_nothing(path: Path, count_: int) -> None:
    made = numbered(count_)
    async with opened(path) as store:
        topic = await store.topics.create(NAME, None)
        fence = await lead(store, "a")
        broken = [Message(b"{not json")]
        with pytest.raises(StoreUnavailableError):
            await store.topics.append(
                [
                    MessageBatch(topic.log, messages(range(count_)), fence),
                    MessageBatch(topic.log, broken, fence),
                ]
            )
        with pytest.raises(StoreUnavailableError):
            await store.append_fenced(
                [
                    FencedBatch(made, fence),
                    FencedBatch([Operation("insert", "video/x", b"{not json")], fence),
                ]
            )
        assert await payloads_of(store.topics, topic) == []
        assert (await log_of(store), await states_of(store)) == ([], [])
        assert await is_accepted(store, topic, fence)


async def test_fenced_batches_of_several_statements_are_appended_completely(
    path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(sqlite_parts, "STATEMENT_OPERATIONS", 7)
    made = numbered(90)
    async with opened(path) as store:
        topic = await store.topics.create(NAME, None)
        stale = await lead(store, "a")
        fence = await lead(store, "a", refresh=True)
        parts = [made[first : first + 9] for first in range(0, 90, 9)]
        fences = [fence if n % 3 else stale for n in range(10)]
        results = await store.append_fenced(
            [FencedBatch(part, each) for part, each in zip(parts, fences, strict=True)]
        )
        assert results == [each is fence for each in fences]
        kept = [
            each
            for part, given in zip(parts, fences, strict=True)
            if given is fence
            for each in part
        ]
        entries = await log_of(store)
        assert contents(entries) == wanted(kept)
        assert known(await states_of(store)) == expected(fold(entries))
        outcomes = await store.topics.append(
            [
                fenced_messages(topic, each, *range(10 * n, 10 * n + 10))
                for n, each in enumerate(fences)
            ]
        )
        assert [each is not Refused.STALE for each in outcomes] == results
        assert await payloads_of(store.topics, topic) == [
            str(10 * n + k) for n in range(10) if n % 3 for k in range(10)
        ]


async def test_fenced_operations_wake_the_follower_without_a_poll(
    path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("oplogd.store.sqlite.log.hand_over.POLL_SECONDS", 3600.0)
    async with asyncio.timeout(DEADLINE), opened(path) as store:
        fence = await lead(store, "a")
        for offset in range(10):
            following = asyncio.create_task(store.follow(offset, 10, 3600))
            await store.leases.find(ORDERS)  # meanwhile the follower begins to wait
            await store.append_fenced([fenced(fence, str(offset))])
            assert [entry.offset for entry in await following] == [offset + 1]


async def test_a_lease_that_another_process_takes_while_an_append_waits_refuses_it(
    path: Path, monkeypatch: Patch, clock: VirtualClock
) -> None:
    waits = threading.Semaphore(0)

    def announced(append: Callable[..., Any]) -> Callable[..., Any]:
        def call(db: sqlite3.Connection, *arguments: object) -> object:
            waits.release()
            return append(db, *arguments)

        return call

    monkeypatch.setattr(topic_entries, "append", announced(topic_entries.append))
    monkeypatch.setattr(log, "append_fenced", announced(log.append_fenced))
    async with opened(path, clock) as store:
        topic = await store.topics.create(NAME, None)

        def publish_late(fence: Fence) -> Awaitable[object]:
            return store.topics.append([fenced_messages(topic, fence, "late")])

        def send_late(fence: Fence) -> Awaitable[object]:
            return store.append_fenced([fenced(fence, "late")])

        for append in (publish_late, send_late):
            fence = await lead(store, "a")
            with direct(path) as db:
                db.execute("BEGIN IMMEDIATE")
                appending = asyncio.ensure_future(append(fence))
                assert await asyncio.to_thread(waits.acquire, timeout=DEADLINE)
                clock.ms += TTL_MS
                taken = lease_rows.poll(db, request("b"), clock.ms)
                db.execute("COMMIT")
            assert await appending in ([Refused.STALE], [False])
            await store.leases.release(ORDERS, "b", taken.term)
        assert await payloads_of(store.topics, topic) == []
        assert await ids_of(store) == []
        assert not await is_accepted(store, topic, fence)
        assert await is_accepted(store, topic, await lead(store, "a"))


async def test_a_store_without_leases_costs_no_rows(path: Path) -> None:
    async with opened(path) as store:
        topic = await store.topics.create(NAME, None)
        await publish(store.topics, topic, "a")
        (outcome,) = await store.topics.append(
            [MessageBatch(topic.log, [message("b")], Fence(ORDERS, 1))]
        )
        assert outcome is Refused.STALE
        assert count(path, "leases") == 0

"""Transactions in SQLite files: schema, statements, the log's bytes, failures."""

import asyncio
import contextlib
from collections.abc import Awaitable
from pathlib import Path

import pytest

from oplogd.errors import StoreUnavailableError, TopicNotFoundError, TransactionConflictError
from oplogd.model.operation import Operation, decode_data
from oplogd.model.transaction import State
from oplogd.store.sqlite import MIGRATIONS, SqliteStore
from oplogd.store.sqlite.file.schema import APPLICATION_ID
from oplogd.store.topics import Topic
from oplogd.store.transactions import NewTransaction, Transaction
from tests.kits.clock.virtual import START_MS, VirtualClock
from tests.kits.models.operations import fold, numbered, operation
from tests.kits.processes.logged import DEADLINE
from tests.kits.store.kits import contents, expected, known, log_of, states_of, wanted
from tests.kits.store.messages import NAME, entries_of, named, publish
from tests.kits.store.sqlite_files import (
    count,
    create_at_version,
    create_topic,
    direct,
    number,
    open_at_version,
    opened,
)
from tests.kits.store.transacting import (
    TIMEOUT_MS,
    TWENTY_MINUTES_MS,
    begin,
    committed_with,
    group_log,
    oplog_record,
    payloads_committed,
    payloads_uncommitted,
    record,
    records,
    write,
)

Patch = pytest.MonkeyPatch

pytestmark = pytest.mark.usefixtures("no_fsync")

# The schema version before transactions.
BEFORE = 3


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


# --- Schema ---


async def test_a_file_of_the_schema_before_gets_transactions_and_keeps_its_contents(
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
    assert number(path, "PRAGMA user_version") == BEFORE
    for payload in ("b", "c"):
        async with opened(path) as store:
            await committed_with(store, record(0, topic, payload))
            assert contents(await log_of(store)) == wanted(made)
    async with opened(path) as store:
        assert await payloads_committed(store, topic) == ["a", "b", "c"]
    assert number(path, "PRAGMA user_version") == len(MIGRATIONS)
    assert number(path, "PRAGMA application_id") == APPLICATION_ID


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
        await committed_with(newer, record(0, topic, "b"), oplog_record(1, operation()))
        await publish(older.topics, topic, "c")
        await older.append(numbered(2))
        assert await payloads_committed(newer, topic) == ["a", "b", "c"]
        assert [entry.offset for entry in await log_of(newer)] == [1, 2, 3]


async def test_a_store_without_transactions_costs_no_rows(path: Path) -> None:
    async with opened(path) as store:
        await publish(store.topics, await store.topics.create(NAME, None), "a")
        assert await store.transactions.keep() == 0
        assert (count(path, "txns"), count(path, "records")) == (0, 0)


# --- Operations ---


def _bytes_of_rows(path: Path) -> int:
    size = "sum(length(CAST(key AS BLOB)) + length(CAST(data AS BLOB)) + 32)"
    return number(path, f"SELECT coalesce({size}, 0) FROM ops")


def _changes(count_: int, first: int = 0) -> list[Operation]:
    """Return operations on a few objects, with letters of more than one byte."""
    events = ("insert", "update", "delete")
    return [
        operation(events[n % 3], id_=f"ä{n % 7}\U0001f600") for n in range(first, first + count_)
    ]


async def test_the_log_counts_the_bytes_of_operations_of_transactions_and_of_others(
    path: Path,
) -> None:
    async with opened(path) as store:
        for n in range(1, 40, 13):
            await store.append(_changes(n))
            changes = [oplog_record(lsn, each) for lsn, each in enumerate(_changes(n))]
            await committed_with(store, *changes)
            assert (await store.stats()).bytes == _bytes_of_rows(path)


async def test_a_commit_trims_the_log_to_its_cap(path: Path) -> None:
    cap = 20_000
    async with opened(path, max_bytes=cap) as store:
        for n in range(0, 300, 50):
            changes = [oplog_record(lsn, each) for lsn, each in enumerate(_changes(50, n))]
            commit = await committed_with(store, *changes)
            stats = await store.stats()
            size = _bytes_of_rows(path)
            assert stats.bytes == size <= cap
            assert stats.newest is not None
            assert commit.runs[0].first_offset + 49 == stats.newest.offset == n + 50
        first = (await log_of(store))[0].offset
        assert first > 1
        oldest = number(path, "SELECT length(CAST(data AS BLOB)) FROM ops ORDER BY seq LIMIT 1")
        assert size + oldest + 32 > cap - 200, "no more than necessary is trimmed"


async def test_only_entries_name_the_transaction_not_the_states(path: Path) -> None:
    made = _changes(50)
    async with opened(path) as store:
        await store.append(_changes(5))
        commit = await committed_with(
            store, *[oplog_record(lsn, each) for lsn, each in enumerate(made)]
        )
        entries = (await log_of(store))[5:]
        id_ = commit.transaction.id
        assert [entry.data for entry in entries] == [
            f'{each.data.decode()[:-1]},"txn":"{id_}","lsn":{lsn},"of":50}}'
            for lsn, each in enumerate(made)
        ]
        plain = [
            entry._replace(data=each.data.decode())
            for entry, each in zip(entries, made, strict=True)
        ]
        assert known(await states_of(store)) == expected(fold(plain))
        assert [decode_data(entry.data) for entry in entries] == [
            decode_data(entry.data) for entry in plain
        ]
        assert count(path, "records") == 0


async def test_the_first_entry_after_an_opening_may_come_from_a_commit(
    path: Path, monkeypatch: Patch
) -> None:
    clock = VirtualClock()
    async with opened(path, clock) as store:
        await store.append(numbered(1))
    clock.ms += 1000
    async with opened(path, clock) as store:
        await committed_with(store, oplog_record(0, operation()))
        assert (START_MS, START_MS + 1000) in (await store.locate()).unwritten


async def test_operations_of_a_commit_follow_the_head_in_a_log_that_was_set_aside(
    path: Path,
) -> None:
    async with opened(path) as store:
        await store.append(numbered(3))
        await store.new_epoch()
        await committed_with(
            store, *[oplog_record(lsn, each) for lsn, each in enumerate(numbered(3))]
        )
        assert [entry.offset for entry in await log_of(store)] == [4, 5, 6]


async def test_a_commit_removes_records_past_those_that_it_commits(path: Path) -> None:
    async with opened(path) as store:
        topic = await store.topics.create(NAME, None)
        transaction = await begin(store)
        await write(store, transaction, *records(topic, *"abcdef"), oplog_record(6, operation()))
        with pytest.raises(TransactionConflictError, match="the lsn 7"):
            await store.transactions.commit(transaction.id, 1 << 64)
        await store.transactions.commit(transaction.id, 4)
        assert count(path, "records") == 4
        assert await payloads_committed(store, topic) == ["a", "b", "c", "d"]
        assert await log_of(store) == []


# --- Steps that share a transaction of SQLite ---


async def test_one_step_that_fails_does_not_affect_those_that_share_its_transaction(
    path: Path,
) -> None:
    async with opened(path) as store:
        topic = await store.topics.create(NAME, None)
        await group_log(store)
        started = [await begin(store) for _ in range(30)]
        for each in started[::3]:
            await write(store, each, record(0, topic, "other"))
        written = await asyncio.gather(
            *(write(store, each, record(0, topic, each.id)) for each in started),
            return_exceptions=True,
        )
        failed = [isinstance(each, TransactionConflictError) for each in written]
        assert failed == [True, False, False] * 10
        ids = [str(each.id) for n, each in enumerate(started) if n % 3]
        assert await payloads_uncommitted(store, topic) == ["other"] * 10 + ids
        await asyncio.gather(*(store.transactions.commit(each.id, 1) for each in started))
        assert await payloads_committed(store, topic) == [
            str(each.id) if n % 3 else "other" for n, each in enumerate(started)
        ]
        assert store.transactions.decisions.committed == 30


@pytest.mark.parametrize("callers", [1, 20])
async def test_a_step_that_fails_leaves_nothing(path: Path, callers: int) -> None:
    async with opened(path) as store:
        kept, gone = [await store.topics.create(named(name), None) for name in "ab"]
        await store.topics.delete(gone.name)
        transaction = await begin(store)
        calls: list[Awaitable[Transaction]] = []
        for lsn in range(0, 2 * callers, 2):
            calls += [
                write(store, transaction, record(lsn, kept, "x"), record(lsn + 1, gone, "y")),
                begin(store, topic=gone),
            ]
        for call in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(call, TopicNotFoundError)
        assert (count(path, "txns"), count(path, "records")) == (1, 0)
        assert await entries_of(store.topics.log(kept)) == []
        assert await store.transactions.find(transaction.id) == transaction


async def test_a_caller_that_goes_away_leaves_the_others_their_answers(path: Path) -> None:
    async with opened(path) as store:
        new = NewTransaction((await group_log(store)).log, "default", None, TIMEOUT_MS)
        calls = [asyncio.create_task(store.transactions.begin(new)) for _ in range(20)]
        await asyncio.sleep(0)
        calls[5].cancel()
        async with asyncio.timeout(DEADLINE):
            found = await asyncio.gather(*calls, return_exceptions=True)
        assert [n for n, each in enumerate(found) if isinstance(each, BaseException)] == [5]
        assert count(path, "txns") == 20, "its step was done all the same"


async def test_steps_that_wait_while_the_store_closes_get_an_error(path: Path) -> None:
    async with opened(path) as store:
        await group_log(store)
        calls = [asyncio.create_task(begin(store)) for _ in range(500)]
        await asyncio.sleep(0)
        await store.close()
        async with asyncio.timeout(DEADLINE):
            found = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(each).__name__ for each in found} <= {"Transaction", "StoreUnavailableError"}


async def test_steps_wake_the_followers_of_topics_and_of_the_log_without_a_poll(
    path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("oplogd.store.sqlite.topics.news.POLL_SECONDS", 3600.0)
    monkeypatch.setattr("oplogd.store.sqlite.log.hand_over.POLL_SECONDS", 3600.0)
    async with asyncio.timeout(DEADLINE), opened(path) as store:
        topic = await store.topics.create(NAME, None)
        await group_log(store)
        await store.topics.news({}, 0)
        for head in range(0, 20, 2):
            transaction = await begin(store)
            waiting = asyncio.create_task(store.topics.news({topic.log: head}, 3600))
            following = asyncio.create_task(store.follow(head // 2, 10, 3600))
            await store.topics.find(NAME)  # meanwhile the followers begin to wait
            await write(store, transaction, record(0, topic, "a"), oplog_record(1, operation()))
            assert (await waiting).logs == [topic.log]
            await store.transactions.commit(transaction.id, 2)
            assert [entry.offset for entry in await following] == [head // 2 + 1]


# --- Failures ---


async def test_without_the_table_of_transactions_everything_else_goes_on(
    path: Path, clock: VirtualClock
) -> None:
    async with opened(path, clock) as store:
        topic, transaction = await _used(store, clock)
        with direct(path) as db:
            db.execute("DROP TABLE txns")
        for call in (
            begin(store),
            write(store, transaction, record(1, topic, "c")),
            store.transactions.commit(transaction.id, 1),
            store.transactions.abort(transaction.id),
            store.transactions.find(transaction.id),
            store.transactions.select(None, None, 10),
            store.transactions.keep(),
            store.transactions.stats(),
        ):
            with pytest.raises(StoreUnavailableError, match="no such table: txns"):
                await call
        await _goes_on(store, topic)
        assert await payloads_committed(store, topic) == ["b", "new"]
        clock.ms += 5001 + TWENTY_MINUTES_MS
        assert await store.topics.sweep() == 3  # the record of the transaction that is open stays
        assert count(path, "records") == 1


@pytest.mark.parametrize("damage", ["state = 'lost'", "logs = '['", "logs = 7"])
async def test_a_damaged_row_is_named_and_stops_no_other_transaction(
    path: Path, damage: str
) -> None:
    async with opened(path) as store:
        damaged, sound = await begin(store), await begin(store)
        with direct(path) as db:
            db.execute(f"UPDATE txns SET {damage} WHERE id = ?", (damaged.id,))
        for call in (
            store.transactions.find(damaged.id),
            store.transactions.commit(damaged.id, 0),
            store.transactions.select(None, None, 10),
        ):
            with pytest.raises(StoreUnavailableError, match=f"transaction {damaged.id} is damaged"):
                await call
        assert (await store.transactions.commit(sound.id, 0)).transaction.state is State.COMMITTED


async def test_a_damaged_result_of_a_commit_is_named(path: Path) -> None:
    async with opened(path) as store:
        transaction = await begin(store)
        await store.transactions.commit(transaction.id, 0)
        with direct(path) as db:
            db.execute("UPDATE txns SET result = x'00'")
        with pytest.raises(StoreUnavailableError, match="is damaged"):
            await store.transactions.commit(transaction.id, 0)


async def test_without_the_table_of_records_everything_else_goes_on(
    path: Path, clock: VirtualClock
) -> None:
    async with opened(path, clock) as store:
        topic, transaction = await _used(store, clock)
        plain = await store.topics.create(named("plain"), 5)
        await publish(store.topics, plain, "old")
        with direct(path) as db:
            db.execute("DROP TABLE records")
        for call in (
            write(store, transaction, record(1, topic, "c")),
            store.transactions.commit(transaction.id, 1),
            store.transactions.abort(transaction.id),
            payloads_committed(store, topic),
        ):
            with pytest.raises(StoreUnavailableError, match="no such table"):
                await call
        await _goes_on(store, topic)
        clock.ms += 5001 + TWENTY_MINUTES_MS
        await publish(store.topics, plain, "short", ttl=1)
        clock.ms += 1001
        with pytest.raises(StoreUnavailableError, match="no such table"):
            await store.topics.sweep()
        of_plain = f"entries WHERE place >> 40 = {plain.log}"
        assert count(path, of_plain) == count(path, f"{of_plain} AND kind = 'void'") == 1


async def _used(store: SqliteStore, clock: VirtualClock) -> tuple[Topic, Transaction]:
    """Return a topic and a transaction with a record in it. A second one has committed."""
    topic = await store.topics.create(NAME, 5)
    transaction = await begin(store)
    await write(store, transaction, record(0, topic, "a"))
    await committed_with(store, record(0, topic, "b"))
    return topic, transaction


async def _goes_on(store: SqliteStore, topic: Topic) -> None:
    await publish(store.topics, topic, "new")
    assert await payloads_uncommitted(store, topic) == ["a", "b", "new"]
    assert (await store.topics.log(topic).locate()).head.offset == 4
    await store.append(numbered(3))
    assert contents(await log_of(store)) == wanted(numbered(3))
    await store.new_epoch()

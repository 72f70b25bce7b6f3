"""The removal of entries and rows of transactions from SQLite files."""

from pathlib import Path

import pytest

from oplogd.store.sqlite.upkeep import sweep
from oplogd.store.topics import EntryKind
from tests.kits.clock.virtual import START_MS, VirtualClock
from tests.kits.store.messages import NAME, entries_of, named, payloads_of, publish
from tests.kits.store.sqlite_files import count, opened
from tests.kits.store.transacting import (
    TWENTY_MINUTES_MS,
    begin,
    committed_with,
    group_log,
    payloads_committed,
    payloads_uncommitted,
    record,
    records,
    write,
)

Patch = pytest.MonkeyPatch

pytestmark = pytest.mark.usefixtures("no_fsync")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


async def test_entries_of_transactions_leave_the_file_twenty_minutes_after_the_front_passed_them(
    path: Path, clock: VirtualClock
) -> None:
    async with opened(path, clock) as store:
        await group_log(store)
        topic = await store.topics.create(NAME, 5)
        await publish(store.topics, topic, "a", "b")
        await committed_with(store, *records(topic, "c", "d"))
        aborted = await begin(store)
        await write(store, aborted, record(0, topic, "e"))
        await store.transactions.abort(aborted.id)
        of_topic = f"entries WHERE place >> 40 = {topic.log}"
        clock.ms += 5001
        assert await store.topics.sweep() == 2
        assert count(path, of_topic) == 5
        assert await payloads_of(store.topics, topic) == []
        bounds = await store.topics.log(topic).locate()
        assert bounds.front == bounds.head
        await publish(store.topics, topic, "f")
        clock.ms += TWENTY_MINUTES_MS - 1
        assert await store.topics.sweep() == 1
        assert (count(path, of_topic), count(path, "records")) == (5, 2)
        clock.ms += 1
        assert await store.topics.sweep() == 5
        assert (count(path, of_topic), count(path, "records")) == (0, 0)
        assert await store.topics.sweep() == 0


async def test_an_idle_topic_with_a_longer_ttl_gives_back_what_an_earlier_ttl_has_hidden(
    path: Path, clock: VirtualClock
) -> None:
    async with opened(path, clock) as store:
        topic = await store.topics.create(NAME, 5)
        await committed_with(store, *records(topic, "a", "b"))
        clock.ms += TWENTY_MINUTES_MS + 1
        await publish(store.topics, topic, "c")
        clock.ms += 5001
        await store.topics.change(NAME, 10**6)
        assert await store.topics.sweep() == 4
        assert count(path, "records") == 0


@pytest.mark.parametrize("step", [1, 2, 3, 500])
async def test_a_sweep_in_steps_of_any_size_removes_the_same(
    path: Path, clock: VirtualClock, monkeypatch: Patch, step: int
) -> None:
    monkeypatch.setattr(sweep, "STEP_ENTRIES", step)
    async with opened(path, clock) as store:
        await group_log(store)
        first, second = [await store.topics.create(named(name), 5) for name in "ab"]
        for _ in range(2):
            await publish(store.topics, first, "x")
            both = [record(lsn, (first, second)[lsn % 2], lsn) for lsn in range(8)]
            await committed_with(store, *both)
        await store.topics.change(second.name, 10**6)
        clock.ms += 5001
        assert await store.topics.sweep() == 2
        clock.ms += TWENTY_MINUTES_MS
        assert await store.topics.sweep() == 2 * 5
        assert count(path, "records") == 8
        assert await payloads_committed(store, second) == ["1", "3", "5", "7"] * 2


async def test_a_deleted_topic_leaves_no_records(path: Path) -> None:
    async with opened(path) as store:
        topic = await store.topics.create(NAME, None)
        await committed_with(store, *records(topic, "a", "b"))
        open_one = await begin(store)
        await write(store, open_one, record(0, topic, "c"))
        await store.topics.delete(NAME)
        assert await store.topics.sweep() == 4
        assert count(path, "records") == 1
        commit = await store.transactions.commit(open_one.id, 1)
        assert [each.mark for each in commit.logs] == [None]
        assert count(path, "records") == 0


async def test_a_sweep_leaves_deferred_records_past_their_own_ttl_to_committed_readers(
    path: Path, clock: VirtualClock
) -> None:
    async with opened(path, clock) as store:
        topic = await store.topics.create(NAME, None)
        transaction = await begin(store)
        await write(store, transaction, record(0, topic, "a", ttl=5), record(1, topic, "b"))
        await publish(store.topics, topic, "c", ttl=5)
        entries = await entries_of(store.topics.log(topic))
        assert [each.expires_ms for each in entries] == [START_MS + 5000, 0, START_MS + 5000]
        clock.ms += 5000
        assert await payloads_uncommitted(store, topic) == ["a", "b", "c"]
        clock.ms += 1
        assert await store.topics.sweep() == 1
        assert await payloads_uncommitted(store, topic) == ["b"]
        assert [each.event for each in await entries_of(store.topics.log(topic))] == [
            EntryKind.VOID,
            EntryKind.DEFERRED,
            EntryKind.VOID,
        ]
        await store.transactions.commit(transaction.id, 2)
        clock.ms += 5000
        assert await payloads_committed(store, topic) == ["a", "b"]
        clock.ms += 1
        assert await payloads_committed(store, topic) == ["b"]


async def test_a_commit_is_expanded_after_its_row_was_forgotten(
    path: Path, clock: VirtualClock
) -> None:
    async with opened(path, clock) as store:
        topic = await store.topics.create(NAME, None)
        await committed_with(store, *records(topic, "a", "b"))
        clock.ms += 86_400_001
        assert await store.transactions.keep() == 0
        assert count(path, "txns") == 0
        assert await payloads_committed(store, topic) == ["a", "b"]

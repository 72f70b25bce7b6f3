"""Find, select, keep and the figures of transactions in every store."""

import asyncio

from oplogd.model.transaction import Marker, Reason, State
from oplogd.store.topics import EntryKind
from oplogd.store.transactions import Decisions, OpenStats
from tests.kits.clock.virtual import START_MS
from tests.kits.store.kits import Kit
from tests.kits.store.messages import NAME
from tests.kits.store.transacting import (
    StoreHandle,
    begin,
    committed_with,
    decisions_in,
    payloads_committed,
    record,
    write,
)


async def test_the_keeper_aborts_what_is_overdue_and_nothing_else(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    short, other = [await begin(txn_store, timeout_ms=1000) for _ in range(2)]
    long = await begin(txn_store, timeout_ms=5000)
    for each in (short, long):
        await write(txn_store, each, record(0, topic, str(each.id)))
    txn_kit.clock.ms = short.expires_ms
    assert await txn_store.transactions.keep() == 0
    txn_kit.clock.ms = other.expires_ms + 1
    assert await txn_store.transactions.keep() == 2
    assert await txn_store.transactions.keep() == 0
    assert txn_store.transactions.decisions == Decisions(committed=0, aborted=0, timed_out=2)
    for each in (short, other):
        found = await txn_store.transactions.find(each.id)
        assert (found.state, found.reason) == (State.ABORTED, Reason.TIMEOUT)
    assert await decisions_in(txn_store, topic) == [(EntryKind.ABORT, Marker(str(short.id)))]
    await txn_store.transactions.commit(long.id, 1)
    assert await payloads_committed(txn_store, topic) == [str(long.id)]


async def test_transactions_are_found_by_state_and_group_the_newest_first(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    other = await txn_kit.open()
    topic = await txn_store.topics.create(NAME, None)
    begun = []
    for group in ("default", "g", "default", None, "g", "g"):
        txn_kit.clock.ms += 1
        if group:
            begun.append(await begin(txn_store, group=group))
        else:
            begun.append(await begin(txn_store, topic=topic))
    await txn_store.transactions.commit(begun[1].id, 0)
    await txn_store.transactions.abort(begun[2].id)
    await write(txn_store, begun[4], record(0, topic, "a"))
    ids = [each.id for each in begun]

    async def found(state: State | None, group: str | None, limit: int = 100) -> list[int]:
        one = await txn_store.transactions.select(state, group, limit)
        assert one == await other.transactions.select(state, group, limit)
        assert one == [await other.transactions.find(each.id) for each in one]
        return [ids.index(each.id) for each in one]

    assert await found(None, None) == [5, 4, 3, 2, 1, 0]
    assert await found(None, None, 2) == [5, 4]
    assert await found(State.OPEN, None) == [5, 4, 3, 0]
    assert await found(State.OPEN, None, 3) == [5, 4, 3]
    assert await found(None, "g") == [5, 4, 1]
    assert await found(State.OPEN, "g") == [5, 4]
    assert await found(State.COMMITTED, "g") == [1]
    assert await found(State.ABORTED, None) == [2]
    assert await found(State.ABORTED, "g") == []
    assert await found(State.COMMITTING, None) == []
    assert await found(None, "unknown") == []


async def test_figures_tell_the_open_transactions_and_the_own_decisions(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    other = await txn_kit.open()
    topic = await txn_store.topics.create(NAME, None)
    assert await txn_store.transactions.stats() == OpenStats(0, 0)
    first = await begin(txn_store)
    txn_kit.clock.ms += 10
    second = await begin(other, topic=topic)
    assert first.begun_ms == START_MS
    for store in (txn_store, other):
        assert await store.transactions.stats() == OpenStats(2, START_MS)
    await other.transactions.commit(first.id, 0)
    await txn_store.transactions.commit(first.id, 0)
    assert await txn_store.transactions.stats() == OpenStats(1, START_MS + 10)
    for store in (other, txn_store):
        await store.transactions.abort(second.id)
    assert await txn_store.transactions.stats() == OpenStats(0, 0)
    assert other.transactions.decisions == Decisions(committed=1, aborted=1, timed_out=0)
    assert txn_store.transactions.decisions == Decisions()


async def test_keepers_of_several_agents_abort_a_transaction_once(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    other = await txn_kit.open()
    topic = await txn_store.topics.create(NAME, None)
    begun = [await begin(txn_store, timeout_ms=10) for _ in range(10)]
    for each in begun:
        await write(txn_store, each, record(0, topic, "a"))
    txn_kit.clock.ms += 1000
    counts = await asyncio.gather(*[store.transactions.keep() for store in (txn_store, other)])
    assert sum(counts) == 10
    assert len(await decisions_in(txn_store, topic)) == 10
    assert await payloads_committed(txn_store, topic) == []


async def test_plain_messages_of_a_topic_are_no_business_of_its_transactions(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    """A keeper and a sweep leave a committed transaction as it is, time and again."""
    topic = await txn_store.topics.create(NAME, None)
    commit = await committed_with(txn_store, record(0, topic, "a"))
    for _ in range(3):
        txn_kit.clock.ms += 20 * 60_000
        assert await txn_store.transactions.keep() == 0
        assert await txn_store.topics.sweep() == 0
    assert await payloads_committed(txn_store, topic) == ["a"]
    assert await txn_store.transactions.find(commit.transaction.id) == commit.transaction

"""The commit log of a group is deleted when it is idle, and comes back at its next use."""

import asyncio
import json

import pytest

from oplogd.errors import TopicNotFoundError
from oplogd.model.names import TopicName
from oplogd.store.numbers import REST_MS
from oplogd.store.topics import DEFAULT_TTL, TopicStats
from oplogd.store.transactions import IDLE_MS, RecordLimits
from oplogd.topics.known import KnownTopics
from oplogd.topics.transactions.begin import Begin
from oplogd.topics.transactions.service import TransactionService
from tests.kits.store.kits import Kit
from tests.kits.store.transacting import (
    StoreHandle,
    begin,
    committed_with,
    group_log,
    payloads_committed,
    record,
    told_in,
)

TTL_MS = 1000 * DEFAULT_TTL
NEW = Begin(group="g", topic=None, timeout_ms=1_000)


def nobody(log: int) -> bool:
    return False


def service(store: StoreHandle) -> TransactionService:
    limits = RecordLimits(100, 1_000_000)
    return TransactionService(store.transactions, store.topics, KnownTopics(store.topics), limits)


async def names(store: StoreHandle) -> list[str]:
    return [topic.name.topic for topic in await store.topics.in_namespace("system")]


async def test_a_group_is_idle_when_all_its_entries_have_expired_and_a_day_has_passed(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    store = txn_store
    topic = await store.topics.create(TopicName("ns", "t"), None)
    await committed_with(store, record(0, topic, "a"), group="long")
    await committed_with(store, record(0, topic, "b"), group="short")
    short = await store.topics.change(TopicName("system", "_txn.short"), 1)
    assert await store.transactions.retire(nobody) == 0
    txn_kit.clock.ms += IDLE_MS
    assert await store.transactions.retire(nobody) == 0
    txn_kit.clock.ms += 1
    assert await store.transactions.retire(nobody) == 1
    assert await names(store) == ["_txn.long"]
    assert await store.topics.current([short.log]) == {}
    txn_kit.clock.ms += TTL_MS - IDLE_MS - 1
    assert await store.transactions.retire(nobody) == 0
    txn_kit.clock.ms += 1
    assert await store.transactions.retire(nobody) == 1
    assert await names(store) == []
    assert await store.topics.find(topic.name) == topic


async def test_a_log_that_is_followed_or_has_an_open_transaction_stays(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    store = txn_store
    followed, busy = await group_log(store, "followed"), await group_log(store, "busy")
    await begin(store, group="busy")
    txn_kit.clock.ms += TTL_MS + 1
    assert await store.transactions.retire(lambda log: log == followed.log) == 0
    assert await names(store) == ["_txn.busy", "_txn.followed"]
    await store.transactions.keep()  # aborts the overdue transaction: an entry
    assert await store.transactions.retire(nobody) == 1
    assert await store.topics.current([busy.log, followed.log]) == {busy.log: busy}


async def test_other_topics_stay_however_old_they_are(txn_kit: Kit, txn_store: StoreHandle) -> None:
    kept = [
        await txn_store.topics.create(TopicName(namespace, name), 1)
        for namespace, name in [("system", "_txn"), ("system", "_txo"), ("ns", "_txn.a")]
    ]
    txn_kit.clock.ms += TTL_MS + 1
    assert await txn_store.transactions.retire(nobody) == 0
    assert len(await txn_store.topics.current([topic.log for topic in kept])) == 3


async def test_a_group_comes_back_at_any_agent_with_later_ids(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    store, other = txn_store, await txn_kit.open()
    here, there = service(store), service(other)
    first = [await each.begin(NEW) for each in (here, there)]
    for each in first:
        await here.abort(each.id)
    old = await group_log(store, "g")
    last = (await store.topics.log(old).locate()).head
    txn_kit.clock.ms += TTL_MS + 1
    assert await store.transactions.retire(nobody) == 1
    again = [await each.begin(NEW) for each in (there, here)]
    new = await group_log(store, "g")
    assert new.log != old.log
    assert {each.log for each in again} == {new.log}
    marks = [each.begin for each in again]
    assert all(mark is not None and mark[1:] > last[1:] for mark in marks)
    for each in again:
        assert (await there.commit(each.id, 0)).transaction.log == new.log
    told = [json.loads(data)["event"] for _, data in await told_in(store, "g")]
    assert told == ["begin", "begin", "commit", "commit"]


async def test_the_order_of_commits_holds_across(txn_kit: Kit, txn_store: StoreHandle) -> None:
    store = txn_store
    topic = await store.topics.create(TopicName("ns", "t"), 100 * DEFAULT_TTL)
    for round_ in range(3):
        for number in range(2):
            await committed_with(store, record(0, topic, f"{round_}.{number}"), group="g")
        txn_kit.clock.ms += 2 * TTL_MS
        assert await store.transactions.retire(nobody) == 1
        txn_kit.clock.jump(-TTL_MS / 1000)  # and it stands, so the store follows it
        for passed_ms in (11_000, 700_000):
            txn_kit.clock.ms += passed_ms
            await store.topics.log(topic).locate()  # looks at the clock
    expected = [f"{round_}.{number}" for round_ in range(3) for number in range(2)]
    assert await payloads_committed(store, topic) == expected


async def test_begins_beside_the_deletion_keep_the_log_or_create_it_again(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    store, other = txn_store, await txn_kit.open()
    agent = service(other)
    for _ in range(10):
        old = await agent.begin(NEW)
        await agent.abort(old.id)
        txn_kit.clock.ms += TTL_MS + 1
        begun, count = await asyncio.gather(
            agent.begin(NEW),
            store.transactions.retire(nobody),
        )
        assert (begun.log == old.log) == (count == 0)
        assert (await store.topics.current([begun.log])).keys() == {begun.log}
        assert (await agent.commit(begun.id, 0)).transaction.commit is not None


async def test_a_begin_that_does_not_know_of_the_deletion_is_refused(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    transaction = await begin(txn_store, group="g")
    await txn_store.transactions.abort(transaction.id)
    log = await group_log(txn_store, "g")
    txn_kit.clock.ms += TTL_MS + 1
    assert await txn_store.transactions.retire(nobody) == 1
    with pytest.raises(TopicNotFoundError):
        await begin(txn_store, topic=log)


async def test_thousands_of_idle_groups_leave_no_row(
    txn_kit: Kit, txn_store: StoreHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = txn_store
    count = 2_000 if txn_kit.bulk > 10_000 else 70
    monkeypatch.setattr("oplogd.store.mongo.interface.idle_groups._PAGE", 20)
    for number in range(count):
        await group_log(store, str(number))
    for number in range(0, count, count // 20):
        await store.transactions.abort((await begin(store, group=str(number))).id)
    txn_kit.clock.ms += TTL_MS + 1
    assert await store.transactions.retire(nobody) == count
    assert await names(store) == []
    await store.topics.sweep()
    txn_kit.clock.ms += REST_MS + 1
    await store.topics.sweep()
    assert await store.topics.stats() == TopicStats(0)
    assert await store.transactions.retire(nobody) == 0

"""Sweeps of topics with records of transactions."""

import asyncio

from pymongo.database import Database

from oplogd.store.mongo import Timing
from oplogd.store.mongo.link.layout import Document
from oplogd.store.topics import EntryKind
from tests.integration.mongo.committing import (
    Steps,
    begin,
    committed,
    kinds_of,
    opened,
    record,
    stepping,
    topics_of,
    write,
    written,
)
from tests.integration.mongo.topics.topics import place, stored
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.fixtures import MakeStore

TTL = 5
TWENTY_MINUTES_MS = 20 * 60_000


async def test_records_stay_for_twenty_minutes_and_leave_although_nothing_new_comes(
    plain_url: str,
    make_store: MakeStore,
    database: Database[Document],
    clock: VirtualClock,
) -> None:
    store = await opened(make_store, plain_url, timing=Timing(settle_seconds=0.0))
    (topic,) = await topics_of(store, "a")
    await store.topics.change(topic.name, TTL)
    txn = await begin(store, timeout_ms=900_000)
    await place(store.topics, topic, "plain")
    await write(store, txn, record(0, topic, "x"), record(1, topic, "y"))
    clock.ms = txn.expires_ms
    await place(store.topics, topic, "new")
    assert await store.topics.sweep() == 1
    assert stored(database, topic) == [(2, "deferred"), (3, "deferred"), (4, "message")]
    assert await kinds_of(store, topic) == ["message"]
    await store.transactions.commit(txn.id, 2)
    assert await committed(store, topic) == ["new", "x", "y"]
    clock.ms = txn.begun_ms + 1000 * TTL + TWENTY_MINUTES_MS
    assert await store.topics.sweep() == 1
    kinds = [str(kind) for _, kind in stored(database, topic)]
    assert kinds == [EntryKind.DEFERRED, EntryKind.DEFERRED, EntryKind.COMMIT]
    assert await committed(store, topic) == []
    assert await store.topics.sweep() == 0, "the floor is at the head now"
    clock.ms += 1
    assert await store.topics.sweep() == 2
    assert await store.topics.sweep() == 0
    assert stored(database, topic) == [(5, "commit")]


async def test_an_agent_that_slept_past_the_sweep_of_its_commit_brings_no_record_back(
    plain_url: str, make_store: MakeStore, clock: VirtualClock
) -> None:
    steps = Steps()
    store = await opened(make_store, plain_url, timing=Timing(settle_seconds=0.0))
    slow = await stepping(make_store, plain_url, steps)
    (topic,) = await topics_of(store, "a")
    await store.topics.change(topic.name, TTL)
    for slept_ms in (1000 * TTL + 1, 1000 * TTL + TWENTY_MINUTES_MS + 1):
        txn = await written(store, [record(0, topic, "x")])
        steps.hold_at = "decided"
        committing = asyncio.create_task(slow.transactions.commit(txn.id, 1))
        await steps.held.wait()
        await store.transactions.commit(txn.id, 1)
        await place(store.topics, topic, "next")
        clock.ms += slept_ms
        await place(store.topics, topic, "new")
        while await store.topics.sweep():
            pass
        steps.go_on.set()
        await committing
        assert await committed(store, topic) == ["new"]
        steps.held.clear()
        steps.go_on.clear()
        clock.ms += 1000 * TTL + 1

"""Sweeps of topics with messages under pointers."""

import asyncio

import pytest
from pymongo.database import Database

from oplogd.clock import Clock
from oplogd.errors import NotConfirmedError
from oplogd.model.pointer import Decision
from oplogd.store.mongo import Timing
from oplogd.store.mongo.link.layout import Document
from tests.integration.mongo.committing import opened, topics_of
from tests.integration.mongo.pointing import (
    TEPHRA,
    counts,
    kinds,
    publish,
    publish_stored,
    seen,
    stamp_of,
    store_messages,
    voided,
)
from tests.integration.mongo.topics.topics import ENTRIES, entries_of, place, stored
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.wire import Wire

TTL = 5
TWENTY_MINUTES_MS = 20 * 60_000


async def test_stored_messages_leave_with_their_entry_and_the_rest_with_the_decision(
    plain_url: str,
    make_store: MakeStore,
    database: Database[Document],
    clock: VirtualClock,
) -> None:
    store = await opened(make_store, plain_url, timing=Timing(settle_seconds=0.0))
    (topic,) = await topics_of(store, "a")
    await store.topics.change(topic.name, TTL)
    for pointer, decision in enumerate(Decision, 1):
        await publish(store, topic, "direct", pointer=pointer)
        await store_messages(store, topic, "a", "b", pointer=pointer)
        await publish_stored(store, topic, pointer)
        await store_messages(store, topic, "c", pointer=pointer)
        gone = await publish_stored(store, topic, pointer)
        await store.pointers.rollback(topic.log, pointer, [stamp_of(gone)])
        await store_messages(store, topic, "dropped", pointer=pointer)
        await store.pointers.decide([topic.log], pointer, decision)
    entries = [each for each in await entries_of(store.topics, topic) if each.event == "publish"]
    clock.ms += 1000 * TTL + 1
    await place(store.topics, topic, "plain")
    staying = ["publish", "void", "commit", "publish", "void", "abort", "publish", "void", "abort"]
    told = "void"  # the entry that names those of the aborted pointer
    for _ in range(2):
        await store.topics.sweep()
        kept = [kind for _, kind in stored(database, topic)]
        # The entries of the aborted pointer are void.
        expected = [*staying, "message", told]
        expected[3] = "void"
        assert kept == expected
        found = [await store.topics.log(topic).expand(each, -1, 9) for each in entries]
        assert [len(each) for each in found] == [2, 0, 2]
        assert await store.topics.log(topic).decisions([1, 2, 3]) == dict(enumerate(Decision, 1))
    assert counts(database) == [0, 12, 0, 0]
    clock.ms += TWENTY_MINUTES_MS
    await store.topics.sweep()
    assert stored(database, topic) == [(17, "void")]
    assert counts(database) == [0, 0, 0, 0]


async def test_numbers_go_on_after_the_sweep_of_an_open_pointer(
    plain_url: str,
    make_store: MakeStore,
    database: Database[Document],
    clock: VirtualClock,
) -> None:
    store = await opened(make_store, plain_url, timing=Timing(settle_seconds=0.0))
    (topic,) = await topics_of(store, "a")
    await store.topics.change(topic.name, TTL)
    await store_messages(store, topic, "a", "b")
    await publish_stored(store, topic)
    await store_messages(store, topic, "c")
    for left in (["c"], []):
        clock.ms += 1000 * TTL + TWENTY_MINUTES_MS + 1
        await place(store.topics, topic, "plain")
        for _ in range(2):
            await store.topics.sweep()
        await store_messages(store, topic, "d")
        await publish_stored(store, topic)
        assert await seen(store, topic) == ["plain", *left, "d"]
    assert counts(database) == [1, 1, 0, 0]


async def test_a_message_that_is_stored_during_a_sweep_can_be_published(
    wire: Wire, plain_url: str, make_store: MakeStore, clock: VirtualClock
) -> None:
    """The stored messages leave before their entry. A number that it covers is not used again."""
    sweeping = await opened(make_store, wire.url(), timing=Timing(settle_seconds=0.0))
    other = await opened(make_store, plain_url)
    (topic,) = await topics_of(other, "a")
    await other.topics.change(topic.name, TTL)
    await store_messages(other, topic, "a", "b")
    await publish_stored(other, topic)
    clock.ms += 1000 * TTL + TWENTY_MINUTES_MS + 1
    await place(other.topics, topic, "plain")
    held = wire.hold(lambda command: command.get("delete") == ENTRIES)
    sweep = asyncio.create_task(sweeping.topics.sweep())
    await asyncio.to_thread(held.wait)
    await store_messages(other, topic, "c")
    await publish_stored(other, topic)
    await asyncio.to_thread(held.release)
    assert await sweep == 1
    assert await seen(other, topic) == ["plain", "c"]
    await sweeping.close()


async def test_nothing_of_a_deleted_topic_stays(
    plain_url: str,
    make_store: MakeStore,
    database: Database[Document],
    clock: VirtualClock,
) -> None:
    store = await opened(make_store, plain_url, timing=Timing(settle_seconds=0.0))
    one, two, kept = await topics_of(store, "a", "b", "c")
    for topic in (one, two, kept):
        for pointer in (1, TEPHRA):
            await publish(store, topic, "direct", pointer=pointer)
            await store_messages(store, topic, "a", pointer=pointer)
            await publish_stored(store, topic, pointer)
            await store_messages(store, topic, "b", pointer=pointer)
        await store.pointers.decide([topic.log], 1, Decision.ABORTED)
    await store.topics.delete(one.name)
    await store.topics.sweep()
    assert counts(database) == [2, 8, 0, 0]
    await store.topics.delete(two.name)
    clock.ms += 900_001
    assert await store.pointers.keep() == 1, "only the topic that exists gets a decision"
    await store.topics.sweep()
    assert counts(database) == [0, 4, 0, 0]
    assert await seen(store, kept) == ["direct", "a"]


async def test_a_note_about_a_log_that_is_gone_leaves(
    plain_url: str, make_store: MakeStore, database: Database[Document]
) -> None:
    """An agent that slept may have made it."""
    store = await opened(make_store, plain_url)
    database["oplog_aborted"].insert_one({"_id": f"{TEPHRA:016x}00ffff"})
    await store.topics.sweep()
    assert counts(database) == [0, 0, 0, 0]


async def test_open_pointers_are_listed_in_the_order_of_an_index(
    plain_url: str, make_store: MakeStore, database: Database[Document]
) -> None:
    store = await opened(make_store, plain_url)
    await store.pointers.keep()
    indexes = database["oplog_pointers"].index_information()
    assert list(indexes["log"]["key"]) == [("log", 1), ("begun", 1), ("_id", 1)]


async def test_an_aborted_pointer_with_many_entries_is_voided(
    plain_url: str, make_store: MakeStore, database: Database[Document]
) -> None:
    store = await opened(make_store, plain_url)
    (topic,) = await topics_of(store, "a")
    await publish(store, topic, *map(str, range(1_100)))
    await publish(store, topic, "of another", pointer=7)
    await store.pointers.decide([topic.log], TEPHRA, Decision.ABORTED)
    await store.topics.sweep()
    assert await kinds(store, topic) == ["void"] * 1_100 + ["direct", "abort", "void"]
    assert await voided(store, topic) == [[(1, 1_100)]]
    assert counts(database) == [1, 0, 0, 0]


async def test_a_store_that_took_too_long_is_not_confirmed(
    plain_url: str, make_store: MakeStore
) -> None:
    """The sweep may have removed the messages that had its numbers before."""
    own = VirtualClock()

    async def pass_time(name: str) -> None:
        if name == "looked-up":
            own.move(31.0)

    timing = Timing(late_seconds=30.0, at_step=pass_time)
    store = await opened(make_store, plain_url, timing=timing, clock=Clock(boot=own.monotonic))
    (topic,) = await topics_of(store, "a")
    with pytest.raises(NotConfirmedError):
        await store_messages(store, topic, "a")

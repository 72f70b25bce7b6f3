"""Calls under one pointer that meet: each insert is held until the other call is done."""

import asyncio

import pytest
from pymongo.database import Database

from oplogd.errors import TransactionConflictError
from oplogd.model.pointer import Decision
from oplogd.store.mongo import MongoStore
from oplogd.store.mongo.link.layout import Document
from oplogd.store.topics import Topic
from tests.integration.mongo.committing import opened, topics_of
from tests.integration.mongo.pointing import (
    TEPHRA,
    kinds,
    publish,
    publish_stored,
    seen,
    store_messages,
    stores_messages,
    voided,
)
from tests.integration.mongo.topics.topics import entries_of, inserts_entries
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.wire import Command, Wire


@pytest.fixture
async def other(plain_url: str, make_store: MakeStore) -> MongoStore:
    return await opened(make_store, plain_url)


@pytest.fixture
async def topic(other: MongoStore) -> Topic:
    (made,) = await topics_of(other, "a")
    return made


@pytest.fixture
async def store(wire: Wire, make_store: MakeStore, topic: Topic) -> MongoStore:
    """A store whose commands the test holds."""
    return await opened(make_store, wire.url())


@pytest.mark.parametrize("is_stored", [False, True])
async def test_a_publish_that_is_beaten_by_the_decision_is_refused(
    wire: Wire, store: MongoStore, other: MongoStore, topic: Topic, is_stored: bool
) -> None:
    if is_stored:
        await store_messages(other, topic, "late")
    held = wire.hold(inserts_entries)
    call = publish_stored(store, topic) if is_stored else publish(store, topic, "late")
    publishing = asyncio.create_task(call)
    await asyncio.to_thread(held.wait)
    await other.pointers.decide([topic.log], TEPHRA, Decision.COMMITTED)
    await asyncio.to_thread(held.release)
    with pytest.raises(TransactionConflictError, match="has committed in this topic"):
        await publishing
    for _ in range(2):
        assert await kinds(other, topic) == ["commit"]
        assert (await other.pointers.stats()).open == 0
        with pytest.raises(TransactionConflictError):
            await publish(other, topic, "later")
    await store.close()


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_publish_that_the_decision_divides_is_taken_back(
    wire: Wire, store: MongoStore, other: MongoStore, topic: Topic, is_cancelled: bool
) -> None:
    """It takes two inserts: the first one is in the log when the second one is refused."""
    first = wire.hold(inserts_entries)
    publishing = asyncio.create_task(publish(store, topic, *["x" * 1_000_000] * 9))
    await asyncio.to_thread(first.wait)
    second = wire.hold(inserts_entries)
    await asyncio.to_thread(first.release)
    await asyncio.to_thread(second.wait)
    landed = await kinds(other, topic)
    assert 0 < len(landed) < 9
    await other.pointers.decide([topic.log], TEPHRA, Decision.COMMITTED)
    if is_cancelled:
        publishing.cancel()
        await asyncio.sleep(0)
    await asyncio.to_thread(second.release)
    with pytest.raises(asyncio.CancelledError if is_cancelled else TransactionConflictError):
        await publishing
    assert await kinds(other, topic) == ["void"] * len(landed) + ["commit", "void"]
    assert await voided(other, topic) == [[(1, len(landed))]]
    await store.close()


async def test_a_report_that_is_recorded_refuses_another_one_before_its_entry_is_there(
    wire: Wire, store: MongoStore, other: MongoStore, topic: Topic
) -> None:
    held = wire.hold(inserts_entries)
    deciding = asyncio.create_task(store.pointers.decide([topic.log], TEPHRA, Decision.COMMITTED))
    await asyncio.to_thread(held.wait)
    with pytest.raises(TransactionConflictError, match="has committed"):
        await other.pointers.decide([topic.log], TEPHRA, Decision.ABORTED)
    await asyncio.to_thread(held.release)
    await deciding
    assert await kinds(other, topic) == ["commit"]
    await store.close()


@pytest.mark.parametrize("meanwhile", [[], ["c"]])
async def test_two_publishes_of_stored_messages_do_not_overlap(
    wire: Wire, store: MongoStore, other: MongoStore, topic: Topic, meanwhile: list[str]
) -> None:
    await store_messages(other, topic, "a", "b")
    held = wire.hold(inserts_entries)
    publishing = asyncio.create_task(publish_stored(store, topic))
    await asyncio.to_thread(held.wait)
    if meanwhile:
        await store_messages(other, topic, *meanwhile)
    at = await publish_stored(other, topic)
    await asyncio.to_thread(held.release)
    assert await publishing == at
    assert await kinds(other, topic) == ["publish"]
    assert await seen(store, topic) == await seen(other, topic) == ["a", "b", *meanwhile]
    await store.close()


async def test_a_publish_of_a_part_is_followed_by_one_of_the_rest(
    wire: Wire, store: MongoStore, other: MongoStore, topic: Topic
) -> None:
    """The one with the larger part is beaten: it publishes only what is left."""
    await store_messages(other, topic, "a")
    first = await publish_stored(other, topic)
    await store_messages(store, topic, "b")
    held = wire.hold(inserts_entries)
    later = asyncio.create_task(publish_stored(store, topic))
    await asyncio.to_thread(held.wait)
    await store_messages(other, topic, "c")
    await publish(other, topic, "between", pointer=7)
    await asyncio.to_thread(held.release)
    second = await later
    third = await publish_stored(other, topic)
    assert first < second < third
    assert await seen(other, topic) == ["a", "between", "b", "c"]
    await store.close()


async def test_a_store_that_lands_after_the_publish_is_not_in_it(
    wire: Wire, store: MongoStore, other: MongoStore, topic: Topic
) -> None:
    await store_messages(other, topic, "a")
    held = wire.hold(stores_messages)
    storing = asyncio.create_task(store_messages(store, topic, "late", "too"))
    await asyncio.to_thread(held.wait)
    await store_messages(other, topic, "b")
    await publish_stored(other, topic)
    before = await seen(other, topic)
    await asyncio.to_thread(held.release)
    await storing
    assert before == await seen(other, topic) == await seen(store, topic) == ["a", "b"]
    await publish_stored(other, topic)
    assert await seen(store, topic) == ["a", "b", "late", "too"]
    await store.close()


async def test_write_stamps_ascend_although_a_publish_comes_between_two_look_ups(
    wire: Wire,
    store: MongoStore,
    other: MongoStore,
    topic: Topic,
    clock: VirtualClock,
) -> None:
    """The look-up of the last stored message is older than that of the last PUBLISH entry."""
    found = 0

    def second(command: Command) -> bool:
        nonlocal found
        found += command.get("find") == "oplog_entries" and command.get("sort") == {"x": -1}
        return found == 2

    await store_messages(other, topic, "a")
    held = wire.hold(second)
    storing = asyncio.create_task(store_messages(store, topic, "late"))
    await asyncio.to_thread(held.wait)
    await store_messages(other, topic, "b")
    await publish_stored(other, topic)
    await asyncio.to_thread(held.release)
    await storing
    await publish_stored(other, topic)
    entries = await entries_of(other.topics, topic)
    numbers = [
        record.number
        for entry in entries
        for record in await other.topics.log(topic).expand(entry, -1, 9)
    ]
    assert numbers == sorted(set(numbers))
    assert await seen(other, topic) == ["a", "b", "late"]
    await store.close()


@pytest.mark.parametrize("is_published", [False, True])
async def test_a_store_that_lands_after_a_rollback_of_everything_takes_no_number_that_was_used(
    wire: Wire, store: MongoStore, other: MongoStore, topic: Topic, is_published: bool
) -> None:
    held = wire.hold(stores_messages)
    storing = asyncio.create_task(store_messages(store, topic, "late"))
    await asyncio.to_thread(held.wait)
    await store_messages(other, topic, "a", "b")
    if is_published:
        await publish_stored(other, topic)
    await other.pointers.rollback(topic.log, TEPHRA, None)
    await asyncio.to_thread(held.release)
    await storing
    assert await seen(other, topic) == []
    await publish_stored(other, topic)
    assert await seen(other, topic) == ["late"]
    await store.close()


async def test_a_store_that_lands_after_the_decision_is_refused(
    wire: Wire,
    store: MongoStore,
    other: MongoStore,
    topic: Topic,
    database: Database[Document],
) -> None:
    """It was looked up before, and nobody will ever read the messages."""
    held = wire.hold(stores_messages)
    storing = asyncio.create_task(store_messages(store, topic, "late"))
    await asyncio.to_thread(held.wait)
    await other.pointers.decide([topic.log], TEPHRA, Decision.COMMITTED)
    await asyncio.to_thread(held.release)
    with pytest.raises(TransactionConflictError, match="has committed in this topic"):
        await storing
    assert database["oplog_payloads"].count_documents({"data": {"$ne": ""}}) == 0
    with pytest.raises(TransactionConflictError):
        await publish_stored(other, topic)
    assert await kinds(other, topic) == ["commit"]
    assert (await other.pointers.stats()).open == 0
    await store.close()


async def test_an_entry_that_lands_during_a_rollback_stays(
    wire: Wire, store: MongoStore, other: MongoStore, topic: Topic
) -> None:
    await publish(other, topic, "a")
    held = wire.hold(inserts_entries)
    rolling = asyncio.create_task(store.pointers.rollback(topic.log, TEPHRA, None))
    await asyncio.to_thread(held.wait)
    assert await kinds(other, topic) == ["void"]
    await publish(other, topic, "b")
    await asyncio.to_thread(held.release)
    at = await rolling
    assert at is not None
    assert at.offset == 3
    assert await seen(store, topic) == ["b"]
    assert await voided(store, topic) == [[(1, 1)]]
    await store.close()


@pytest.mark.parametrize("newer", [[], ["c"]])
async def test_a_publish_of_messages_that_are_being_rolled_back_is_voided_with_them(
    wire: Wire, store: MongoStore, other: MongoStore, topic: Topic, newer: list[str]
) -> None:
    """As a whole, with newer messages: a reader may have read it, and its agent remembers it."""
    await store_messages(other, topic, "a", "b")
    held = wire.hold(lambda command: command.get("insert") == "oplog_rollbacks")
    rolling = asyncio.create_task(store.pointers.rollback(topic.log, TEPHRA, None))
    await asyncio.to_thread(held.wait)
    if newer:
        await store_messages(other, topic, *newer)
    await publish_stored(other, topic)
    (entry,) = await entries_of(other.topics, topic)
    assert await seen(other, topic) == ["a", "b", *newer]
    await asyncio.to_thread(held.release)
    assert await rolling is not None
    assert await kinds(other, topic) == ["void", "void"]
    assert await voided(other, topic) == [[(1, 1)]]
    assert await other.topics.log(topic).expand(entry, -1, 9) == []
    await store_messages(other, topic, "d")
    await publish_stored(other, topic)
    assert await seen(store, topic) == ["d"]
    await store.close()


async def test_a_cancelled_caller_does_not_double_the_messages_of_another_one(
    wire: Wire, store: MongoStore, other: MongoStore, topic: Topic
) -> None:
    """Both share the append: the first one carries it out."""
    first_in_turn = wire.hold(inserts_entries)
    calls = [asyncio.create_task(publish(store, topic, "0"))]
    await asyncio.to_thread(first_in_turn.wait)
    waiting = store.pointers._appender._waiting
    for name in "12":
        calls.append(asyncio.create_task(publish(store, topic, name)))
        while len(waiting) < len(calls):
            await store.pointers.stats()
    held = wire.hold(inserts_entries, "after")
    await asyncio.to_thread(first_in_turn.release)
    await asyncio.to_thread(held.wait)
    calls[1].cancel()
    await asyncio.sleep(0)
    await asyncio.to_thread(held.release)
    await asyncio.wait(calls)
    assert calls[1].cancelled()
    assert sorted(await seen(other, topic)) == ["0", "1", "2"]
    assert len(await calls[2]) == 1
    await store.close()


@pytest.mark.parametrize("url", ["plain_url", "capped_url"])
async def test_two_agents_publish_each_stored_message_once(
    request: pytest.FixtureRequest, make_store: MakeStore, url: str
) -> None:
    place = request.getfixturevalue(url)
    stores = [await opened(make_store, place) for _ in range(2)]
    (topic,) = await topics_of(stores[0], "a")

    async def work(store: MongoStore, name: str) -> None:
        for n in range(3):
            await store_messages(store, topic, f"{name}{n}")
            await publish_stored(store, topic)

    await asyncio.gather(*(work(store, name) for store, name in zip(stores, "ab", strict=True)))
    found = await seen(stores[0], topic)
    assert found == await seen(stores[1], topic)
    assert sorted(found) == ["a0", "a1", "a2", "b0", "b1", "b2"]

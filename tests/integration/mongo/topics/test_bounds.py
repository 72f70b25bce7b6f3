"""Bounds in bytes on MongoDB: counted behind the appends, removed after a while."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from pymongo.database import Database

from oplogd.clock import Clock
from oplogd.model.pointer import Decision
from oplogd.store.mongo import MongoStore, Timing
from oplogd.store.mongo.link.layout import Document
from oplogd.store.mongo.link.topic_layout import places_of
from oplogd.store.topics import EntryKind, Full, MessageBatch, Topic
from tests.integration.mongo.topics.topics import ENTRIES, NAME, stored
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.store.bounded import BOUND, FIT, SIZE, fill, large, settle
from tests.kits.store.messages import messages, payloads_of
from tests.kits.store.pointing import publish_under
from tests.kits.store.stepping import YEARS, stepped
from tests.kits.store.transacting import committed_with, record

NOW = Timing(bounds_seconds=0.0)


async def ready(store: MongoStore) -> MongoStore:
    await store.open()
    return store


@asynccontextmanager
async def opened(url: str, clock: Clock) -> AsyncIterator[MongoStore]:
    store = await ready(MongoStore(url, collection="plain", clock=clock, timing=NOW))
    try:
        yield store
    finally:
        await store.close()


async def bounded(store: MongoStore) -> Topic:
    return await store.topics.create(NAME, None, max_bytes=BOUND)


def octets(database: Database[Document]) -> int:
    """Return the bytes that are counted in the topic's document."""
    document = database["oplog_topics"].find_one({"_id": str(NAME)})
    assert document is not None
    return sum(int(each["octets"]) for each in document["sizes"])


async def test_what_has_left_is_hidden_at_once_and_removed_after_twenty_minutes(
    clock: VirtualClock, database: Database[Document], plain_url: str
) -> None:
    own = VirtualClock()
    async with opened(plain_url, replace(clock.dates, boot=own.monotonic)) as store:
        topic = await bounded(store)
        await fill(store.topics, topic, 2 * FIT)
        await settle(store.topics)
        left = len(await payloads_of(store.topics, topic))
        assert left in (FIT - 1, FIT)
        assert len(stored(database, topic)) == 2 * FIT
        await store.topics.sweep()
        own.seconds += 1199
        await store.topics.shrink()
        await store.topics.sweep()
        assert len(stored(database, topic)) == 2 * FIT
        own.seconds += 2
        await store.topics.shrink()
        assert len(stored(database, topic)) == left
        assert len(await payloads_of(store.topics, topic)) == left


async def test_records_that_bytes_have_passed_do_not_stay_as_long_as_the_time_to_live(
    clock: VirtualClock, database: Database[Document], plain_url: str
) -> None:
    own = VirtualClock()
    async with opened(plain_url, replace(clock.dates, boot=own.monotonic)) as store:
        topic = await store.topics.create(NAME, 30 * 86_400, max_bytes=BOUND)
        await committed_with(store, record(0, topic, "a"), record(1, topic, "b"))
        for minutes in (2, 21, 1):
            own.seconds += 60 * minutes
            clock.ms += 60_000 * minutes
            await fill(store.topics, topic, FIT)
            await settle(store.topics)
        own.seconds += 1201
        clock.ms += 1_201_000
        await settle(store.topics)
        assert {
            each["kind"] for each in database[ENTRIES].find({"_id": places_of(topic.log, 0)})
        } == {EntryKind.MESSAGE}


async def test_records_that_bytes_have_passed_leave_after_a_repair_of_their_times(
    clock: VirtualClock, database: Database[Document], plain_url: str
) -> None:
    async with opened(plain_url, clock.dates) as store:
        topic = await store.topics.create(NAME, 30 * 86_400, max_bytes=BOUND)
        await stepped(clock, [store], YEARS)
        await committed_with(store, record(0, topic, "a"), record(1, topic, "b"))
        for minutes in (2, 1):
            clock.ms += 60_000 * minutes
            await fill(store.topics, topic, FIT)
            await settle(store.topics)
        await stepped(clock, [store], -YEARS)
        await store.new_epoch()
        for _ in range(3):
            clock.ms += 60_000 * 21
            await fill(store.topics, topic, FIT)
            await settle(store.topics)
            await store.topics.sweep()
        assert {
            each["kind"] for each in database[ENTRIES].find({"_id": places_of(topic.log, 0)})
        } == {EntryKind.MESSAGE}


async def test_entries_of_an_older_agent_are_counted(
    database: Database[Document], plain_url: str, make_store: MakeStore
) -> None:
    store = await ready(make_store(plain_url, "plain", timing=NOW))
    topic = await store.topics.create(NAME, None)
    await fill(store.topics, topic, FIT + 5)
    database[ENTRIES].update_many({}, {"$unset": {"z": ""}})
    database["oplog_topics"].update_many({}, {"$unset": {"sizes": ""}})
    await settle(store.topics)
    assert len(await payloads_of(store.topics, topic)) == FIT + 5, "an upgrade removes nothing"
    await store.topics.change(NAME, None, max_bytes=4 * BOUND)
    await settle(store.topics)
    assert octets(database) == (FIT + 5) * SIZE
    await store.topics.change(NAME, None, max_bytes=BOUND)
    await settle(store.topics)
    assert len(await payloads_of(store.topics, topic)) in (FIT - 1, FIT)


async def test_a_count_continues_after_a_restart_and_counts_nothing_twice(
    database: Database[Document], plain_url: str, make_store: MakeStore
) -> None:
    store = await ready(make_store(plain_url, "plain", timing=NOW))
    topic = await bounded(store)
    for first in (1, 5):
        await fill(store.topics, topic, 4, first)
        await settle(store.topics)
        await store.close()
        store = await ready(make_store(plain_url, "plain", timing=NOW))
        await settle(store.topics)
        assert octets(database) == (first + 3) * SIZE


async def test_an_agent_that_does_not_count_refuses_publishes_to_a_full_topic(
    plain_url: str, make_store: MakeStore
) -> None:
    store = await ready(make_store(plain_url, "plain", lease=60, timing=NOW))
    other = await ready(make_store(plain_url, "plain", lease=60, timing=NOW))
    topic = await bounded(store)
    await publish_under(store, topic, 7, *map(large, range(FIT + 1)))
    batch = MessageBatch(topic.log, messages(["more"]))
    await settle(store.topics)
    await other.topics.shrink()
    (outcome,) = await other.topics.append([batch])
    assert isinstance(outcome, Full)
    assert "pointer 7 is open" in outcome.reason
    await store.pointers.decide([topic.log], 7, Decision.ABORTED)
    await settle(store.topics)
    await other.topics.shrink()
    (outcome,) = await other.topics.append([batch])
    assert not isinstance(outcome, Full)

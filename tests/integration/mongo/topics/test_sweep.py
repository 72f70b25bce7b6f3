"""Sweeps of topics, and inserts that are carried out after a sweep has passed their place."""

import asyncio
from dataclasses import replace

import pytest
from pymongo.database import Database

from oplogd.errors import StoreUnavailableError, TopicNotFoundError
from oplogd.model.names import TopicName
from oplogd.store.mongo import MongoStore, Timing
from oplogd.store.mongo.link.layout import Document
from oplogd.store.numbers import REST_MS
from oplogd.store.topics import Placed, Refused
from tests.integration.mongo.topics.topics import (
    ENTRIES,
    NAME,
    append,
    inserts_entries,
    payloads_of,
    place,
    stored,
)
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.wire import Wire

TTL = 5
AT_ONCE = Timing(settle_seconds=0.0)


async def ready(store: MongoStore) -> MongoStore:
    await store.open()
    return store


@pytest.mark.parametrize("by", ["own clock", "clock of the cluster"])
async def test_a_message_whose_writer_paused_while_its_place_was_swept_is_not_lost(
    by: str,
    clock: VirtualClock,
    database: Database[Document],
    plain_url: str,
    make_store: MakeStore,
) -> None:
    own = VirtualClock()
    own_clock = replace(clock.dates, boot=own.monotonic)
    with Wire(plain_url, as_replica_set=by == "clock of the cluster") as wire:
        other = await ready(make_store(plain_url, "plain", lease=60, timing=AT_ONCE))
        url = wire.url(retryWrites="false")
        store = await ready(MongoStore(url, collection="plain", clock=own_clock))
        try:
            topic = await other.topics.create(NAME, TTL)
            await place(store.topics, topic, "first")
            held = wire.hold(inserts_entries)
            writing = asyncio.create_task(place(store.topics, topic, "late", "later"))
            await asyncio.to_thread(held.wait)
            await place(other.topics, topic, *"abcd")
            clock.ms += 1000 * TTL + 1
            await place(other.topics, topic, "last")
            assert await other.topics.sweep() == 5
            if by == "own clock":
                own.seconds += 31
            else:
                wire.cluster_seconds += 31
            await asyncio.to_thread(held.release)
            placed = await writing
            assert (placed.first.offset, placed.last.offset) == (7, 8)
            assert await payloads_of(other.topics, topic) == ["last", "late", "later"]
            assert [offset for offset, _ in stored(database, topic)] == [6, 7, 8]
        finally:
            await store.close()


async def test_a_message_whose_writer_paused_while_its_topic_was_swept_away_is_refused(
    clock: VirtualClock,
    wire: Wire,
    database: Database[Document],
    plain_url: str,
    make_store: MakeStore,
) -> None:
    own = VirtualClock()
    own_clock = replace(clock.dates, boot=own.monotonic)
    other = await ready(make_store(plain_url, "plain", lease=60, timing=AT_ONCE))
    store = await ready(make_store(wire.url(), "plain", clock=own_clock))
    topic = await other.topics.create(NAME, None)
    held = wire.hold(inserts_entries)
    writing = asyncio.create_task(append(store.topics, topic, "late"))
    await asyncio.to_thread(held.wait)
    await other.topics.delete(NAME)
    new = await other.topics.create(NAME, None)
    await other.topics.sweep()
    assert stored(database, topic) == []
    own.seconds += 31
    await asyncio.to_thread(held.release)
    assert await writing is Refused.DELETED
    assert stored(database, topic) == []
    assert await payloads_of(other.topics, new) == []
    await store.close()


async def test_a_sweep_removes_only_entries_that_an_earlier_one_saw_long_enough_ago(
    clock: VirtualClock, database: Database[Document], plain_url: str, make_store: MakeStore
) -> None:
    """A writer that paused for less than that has met a duplicate key."""
    timing = Timing()
    store = await ready(make_store(plain_url, "plain", lease=60, timing=timing))
    topic = await store.topics.create(NAME, TTL)
    await place(store.topics, topic, *"abc")
    clock.ms += 1000 * TTL + 1
    assert await store.topics.sweep() == 0  # sees the head 3
    await place(store.topics, topic, *"def")
    clock.move(timing.settle_seconds - 1)
    assert await store.topics.sweep() == 0
    clock.move(1)
    assert await store.topics.sweep() == 3  # sees the head 6
    assert [offset for offset, _ in stored(database, topic)] == [4, 5, 6]
    assert await payloads_of(store.topics, topic) == []
    assert await store.topics.sweep() == 0
    clock.move(timing.settle_seconds)
    assert await store.topics.sweep() == 2  # the newest entry stays
    assert [offset for offset, _ in stored(database, topic)] == [6]


async def test_the_log_of_a_deleted_topic_stays_as_long(
    clock: VirtualClock, database: Database[Document], plain_url: str, make_store: MakeStore
) -> None:
    timing = Timing()
    store = await ready(make_store(plain_url, "plain", lease=60, timing=timing))
    topic = await store.topics.create(NAME, TTL)
    await place(store.topics, topic, *"abc")
    await store.topics.delete(NAME)
    await store.topics.create(NAME, None)
    clock.ms += int(1000 * timing.settle_seconds) - 1
    assert await store.topics.sweep() == 0
    assert len(stored(database, topic)) == 4
    clock.ms += 1
    assert await store.topics.sweep() == 3
    assert stored(database, topic) == []
    reservation = {"_id": f"#{topic.log:06x}"}
    assert database["oplog_topics"].count_documents(reservation) == 1
    clock.ms += REST_MS
    await store.topics.sweep()
    assert database["oplog_topics"].count_documents(reservation) == 0


async def test_only_the_holder_of_the_lease_sweeps(
    clock: VirtualClock, database: Database[Document], plain_url: str, make_store: MakeStore
) -> None:
    holder = await ready(make_store(plain_url, "plain", lease=60, timing=AT_ONCE))
    other = await ready(make_store(plain_url, "plain", lease=60, timing=AT_ONCE))
    topic = await other.topics.create(NAME, TTL)
    await place(other.topics, topic, *"abc")
    clock.ms += 1000 * TTL + 1
    assert await other.topics.sweep() == 0
    assert len(stored(database, topic)) == 3
    assert await holder.topics.sweep() == 2


async def test_sweeps_beside_the_appends_of_two_stores_lose_nothing(
    clock: VirtualClock, plain_url: str, make_store: MakeStore
) -> None:
    stores = [make_store(plain_url, "plain", lease=60, timing=AT_ONCE) for _ in range(2)]
    for store in stores:
        await store.open()
    topic = await stores[0].topics.create(NAME, TTL)
    marks: list[int] = []

    async def write(who: int) -> None:
        for number in range(100):
            placed = await place(stores[who].topics, topic, f"{who}-{number}")
            marks.append(placed.first.offset)
            clock.ms += 100

    async def sweep() -> int:
        swept = 0
        while len(marks) < 200:
            swept += await stores[0].topics.sweep()
        return swept

    _, _, swept = await asyncio.gather(write(0), write(1), sweep())
    assert sorted(marks) == list(range(1, 201))
    bounds = await stores[1].topics.log(topic).locate()
    left = await payloads_of(stores[1].topics, topic)
    assert bounds.head.offset == 200
    assert len(left) == 200 - bounds.front.offset
    assert 0 < swept <= bounds.front.offset


async def test_the_rest_of_a_sweep_that_was_cut_goes_with_the_next_one(
    clock: VirtualClock, wire: Wire, database: Database[Document], make_store: MakeStore
) -> None:
    store = await ready(make_store(wire.url(), "plain", lease=60, timing=AT_ONCE))
    topic = await store.topics.create(NAME, TTL)
    await place(store.topics, topic, *map(str, range(1200)))
    clock.ms += 1000 * TTL + 1
    deletes: list[Document] = []

    def is_second_delete(command: Document) -> bool:
        if command.get("delete") == ENTRIES:
            deletes.append(command)
        return len(deletes) == 2 and command.get("delete") == ENTRIES

    wire.cut(is_second_delete, "before")
    with pytest.raises(Exception, match="MongoDB at"):
        await store.topics.sweep()
    wire.cut(None)
    assert len(stored(database, topic)) == 700
    assert await payloads_of(store.topics, topic) == []
    await place(store.topics, topic, "a", "b")
    clock.ms += 1000 * TTL + 1
    assert await store.topics.sweep() == 701
    assert [offset for offset, _ in stored(database, topic)] == [1202]
    await store.close()


# --- Collections that a person drops ---


async def test_topics_begin_again_empty_if_their_entries_were_dropped(
    database: Database[Document], plain_url: str, make_store: MakeStore
) -> None:
    timing = Timing(keep_seconds=0.02)
    store = await ready(make_store(plain_url, "plain", lease=1, timing=timing))
    other = await ready(make_store(plain_url, "plain", lease=1, timing=timing))
    old = await store.topics.create(NAME, 77)
    last = (await place(store.topics, old, *"abc")).last
    database[ENTRIES].drop()
    async with asyncio.timeout(120):
        while (new := await other.topics.find(NAME)) == old:
            await asyncio.sleep(0.01)
    assert new is not None
    assert new.ttl == 77
    async with asyncio.timeout(120):
        while database[ENTRIES].count_documents({}) == 0:
            await asyncio.sleep(0.01)
    for each in (store, other):
        assert await append(each.topics, old, "x") is Refused.DELETED
        with pytest.raises(TopicNotFoundError):
            await each.topics.log(old).read(0, 10)
    placed = await place(other.topics, new, "d")
    assert placed.first.offset == 1
    assert (placed.first.ms, placed.first.sequence) > (last.ms, last.sequence)
    assert await payloads_of(store.topics, new) == ["d"]


async def test_nobody_appends_to_dropped_entries_before_they_are_set_up(
    database: Database[Document], plain_url: str, make_store: MakeStore
) -> None:
    timing = Timing(keep_seconds=3600.0)
    store = await ready(make_store(plain_url, "plain", lease=60, timing=timing))
    topic = await store.topics.create(NAME, None)
    await place(store.topics, topic, "a")
    database[ENTRIES].drop()
    with pytest.raises(StoreUnavailableError, match="oplog_entries is gone"):
        await append(store.topics, topic, "b")
    assert database[ENTRIES].count_documents({}) == 0


async def test_no_number_of_a_log_returns_if_the_catalogue_was_dropped(
    database: Database[Document], plain_url: str, make_store: MakeStore
) -> None:
    store = await ready(make_store(plain_url, "plain", timing=Timing(keep_seconds=0.02)))
    old = await store.topics.create(NAME, None)
    await place(store.topics, old, "a")
    await store.close()
    database["oplog_topics"].drop()
    store = await ready(make_store(plain_url, "plain", timing=Timing(keep_seconds=0.02)))
    async with asyncio.timeout(120):
        while database["oplog_topics"].count_documents({}) == 0:
            await asyncio.sleep(0.01)
    new = await store.topics.create(NAME, None)
    assert new.log > old.log
    assert await payloads_of(store.topics, new) == []


async def test_a_database_without_collections_of_topics_gets_them(
    database: Database[Document], plain_url: str, make_store: MakeStore
) -> None:
    store = await ready(make_store(plain_url, "plain"))
    await store.close()
    database.drop_collection("oplog_topics")
    database.drop_collection(ENTRIES)
    store = await ready(make_store(plain_url, "plain"))
    async with asyncio.timeout(120):
        while True:  # the log is ready before the topics are
            try:
                await store.topics.create(NAME, None)
                break
            except StoreUnavailableError:
                await asyncio.sleep(0.01)
    names = [TopicName("ns", str(number)) for number in range(3)]
    made = [await store.topics.create(name, None) for name in names]
    outcomes = [await append(store.topics, topic, "a") for topic in made]
    assert all(isinstance(each, Placed) for each in outcomes)


# --- Numbers of logs ---


async def test_no_number_of_a_swept_log_returns_by_a_store_that_reserved_one_long_ago(
    clock: VirtualClock, plain_url: str, make_store: MakeStore
) -> None:
    stores = [
        await ready(make_store(plain_url, "plain", lease=60, timing=AT_ONCE)) for _ in range(2)
    ]
    sweeper, other = (each.topics for each in stores)
    names = [TopicName("ns", each) for each in "abcd"]
    first = await other.create(names[0], None)
    swept = await sweeper.create(names[1], None)
    last = await sweeper.create(names[2], None)
    await sweeper.delete(swept.name)
    clock.ms += 1
    await sweeper.sweep()
    new = await other.create(names[3], None)
    assert first.log < swept.log < last.log < new.log


async def test_no_number_of_a_log_returns_by_a_store_that_was_open_while_the_catalogue_was_dropped(
    database: Database[Document], plain_url: str, make_store: MakeStore
) -> None:
    timing = Timing(keep_seconds=0.02)
    store = await ready(make_store(plain_url, "plain", timing=timing))
    other = await ready(make_store(plain_url, "plain", timing=timing))
    await other.topics.create(NAME, None)
    old = [await store.topics.create(TopicName("ns", each), None) for each in "abc"]
    await place(store.topics, old[-1], "x")
    database["oplog_topics"].drop()
    async with asyncio.timeout(120):
        while database["oplog_topics"].count_documents({"_id": "#"}) == 0:
            await asyncio.sleep(0.01)
    new = await other.topics.create(NAME, None)
    assert new.log > old[-1].log
    assert await payloads_of(other.topics, new) == []


@pytest.mark.parametrize("messages", [0, 3])
async def test_no_message_goes_to_a_log_of_a_catalogue_that_was_dropped(
    messages: int, database: Database[Document], plain_url: str, make_store: MakeStore
) -> None:
    store = await ready(make_store(plain_url, "plain", timing=Timing(keep_seconds=0.02)))
    old = await store.topics.create(NAME, None)
    await store.topics.log(old).locate()
    for _ in range(messages):
        await place(store.topics, old, "a")
    database["oplog_topics"].drop()
    async with asyncio.timeout(120):
        while database["oplog_topics"].count_documents({"_id": "#"}) == 0:
            await asyncio.sleep(0.01)
    assert await append(store.topics, old, "b") is Refused.DELETED
    new = await store.topics.create(NAME, None)
    assert await append(store.topics, old, "b") is Refused.DELETED
    await place(store.topics, new, "c")
    assert await payloads_of(store.topics, new) == ["c"]


async def test_no_number_of_a_log_returns_if_both_collections_were_dropped(
    database: Database[Document], plain_url: str, make_store: MakeStore
) -> None:
    store = await ready(make_store(plain_url, "plain", timing=Timing(keep_seconds=0.02)))
    old = [await store.topics.create(TopicName("ns", str(each)), None) for each in range(3)]
    database[ENTRIES].drop()
    database["oplog_topics"].drop()
    async with asyncio.timeout(120):
        while database[ENTRIES].count_documents({}) == 0:
            await asyncio.sleep(0.01)
    new = [await store.topics.create(TopicName("ns", str(each)), None) for each in range(3)]
    assert not {each.log for each in old} & {each.log for each in new}

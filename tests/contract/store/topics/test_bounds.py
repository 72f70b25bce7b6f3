"""Bounds in bytes in every store: the oldest messages of a topic leave."""

import asyncio

import pytest

from oplogd.store.numbers import MAX_LOG, begin_of, generation_of
from oplogd.store.topics import ENTRY_BYTES, Topics
from tests.kits.processes.logged import DEADLINE
from tests.kits.store.bounded import BOUND, FIT, SIZE, fill, large, numbers, octets_of, settle
from tests.kits.store.kits import KITS, Kit
from tests.kits.store.messages import (
    NAME,
    entries_of,
    message,
    messages,
    named,
    payloads_of,
    publish,
    publish_all,
)


async def test_without_a_bound_nothing_leaves(topics: Topics) -> None:
    topic = await topics.create(NAME, None)
    await fill(topics, topic, FIT + 4)
    await settle(topics)
    assert numbers(await payloads_of(topics, topic)) == [*range(1, FIT + 5)]


@pytest.mark.parametrize("topic_kits", KITS, indirect=True)
async def test_the_oldest_messages_leave_until_a_topic_keeps_its_bound(topics: Topics) -> None:
    topic = await topics.create(NAME, None, max_bytes=BOUND)
    assert topic.max_bytes == BOUND
    await fill(topics, topic, 2 * FIT)
    await settle(topics)
    left = numbers(await payloads_of(topics, topic))
    assert left == [*range(2 * FIT - len(left) + 1, 2 * FIT + 1)]
    assert len(left) in (FIT - 1, FIT)
    bounds = await topics.log(topic).locate()
    assert bounds.front.offset == 2 * FIT - len(left)
    assert bounds.head.offset == 2 * FIT


async def test_a_topic_whose_number_is_used_again_is_counted_from_its_beginning(
    topic_kit: Kit, topics: Topics
) -> None:
    await topics.create(named("other"), None)
    await topic_kit.used_logs(MAX_LOG)
    topic = await topics.create(NAME, None, max_bytes=BOUND)
    assert generation_of(topic.log) == 1
    await fill(topics, topic, 2 * FIT)
    await settle(topics)
    left = numbers(await payloads_of(topics, topic))
    assert left == [*range(2 * FIT - len(left) + 1, 2 * FIT + 1)]
    assert len(left) in (FIT - 1, FIT)
    assert (await topics.log(topic).locate()).front.offset == begin_of(topic.log) + left[0] - 1
    assert (await topics.stats()).left == left[0] - 1


async def test_a_topic_within_its_bound_loses_nothing(topics: Topics) -> None:
    topic = await topics.create(NAME, None, max_bytes=BOUND)
    await fill(topics, topic, FIT)
    await settle(topics)
    assert numbers(await payloads_of(topics, topic)) == [*range(1, FIT + 1)]


async def test_offsets_stay_dense_and_a_reader_behind_continues_past_the_front(
    topics: Topics,
) -> None:
    topic = await topics.create(NAME, None, max_bytes=BOUND)
    await fill(topics, topic, 2 * FIT)
    await settle(topics)
    entries = await topics.log(topic).read(3, 1000)
    front = (await topics.log(topic).locate()).front.offset
    assert [each.offset for each in entries] == [*range(front + 1, 2 * FIT + 1)]
    placed = await publish(topics, topic, "next")
    assert placed.first.offset == 2 * FIT + 1


async def test_what_has_left_is_hidden_from_other_agents_at_once(
    topic_kit: Kit, topics: Topics
) -> None:
    topic = await topics.create(NAME, None, max_bytes=BOUND)
    other = (await topic_kit.open()).topics
    await fill(topics, topic, 2 * FIT)
    assert len(await entries_of(other.log(topic))) >= FIT - 1
    await settle(topics)
    assert await payloads_of(other, topic) == await payloads_of(topics, topic)
    assert (await other.log(topic).locate()).front == (await topics.log(topic).locate()).front


async def test_the_follower_of_another_agent_is_told_what_has_left(
    topic_kit: Kit, topics: Topics
) -> None:
    topic = await topics.create(NAME, None, max_bytes=BOUND)
    other = (await topic_kit.open()).topics
    await other.news({topic.log: 0}, 0)
    await fill(topics, topic, 2 * FIT)
    await settle(topics)
    front = (await topics.log(topic).locate()).front.offset
    told: dict[int, int] = {}
    async with asyncio.timeout(DEADLINE):
        while told != {topic.log: front}:
            told |= (await other.news({topic.log: 2 * FIT}, 5)).floors


async def test_a_lower_bound_counts_for_what_is_there_and_a_higher_one_brings_nothing_back(
    topics: Topics,
) -> None:
    topic = await topics.create(NAME, None)
    await fill(topics, topic, 2 * FIT)
    changed = await topics.change(NAME, None, max_bytes=BOUND)
    assert changed.max_bytes == BOUND
    await settle(topics)
    left = await payloads_of(topics, topic)
    assert len(left) in (FIT - 1, FIT)
    for bound in (8 * BOUND, None):
        await topics.change(NAME, None, max_bytes=bound)
        await settle(topics)
        assert await payloads_of(topics, topic) == left


async def test_the_bound_is_shown_and_removed(topic_kit: Kit, topics: Topics) -> None:
    other = (await topic_kit.open()).topics
    topic = await topics.create(NAME, 60, max_bytes=BOUND)
    for found in (
        await other.find(NAME),
        (await other.in_namespace("ns"))[0],
        (await other.current([topic.log]))[topic.log],
    ):
        assert found == topic
    await topics.change(NAME, 60)
    assert await other.find(NAME) == topic._replace(max_bytes=None)


async def test_the_newest_message_stays_although_it_alone_is_large(topics: Topics) -> None:
    topic = await topics.create(NAME, None, max_bytes=BOUND)
    payload = "y" * (BOUND - ENTRY_BYTES - len(message("").data))
    assert octets_of(payload) == BOUND
    await publish(topics, topic, "before")
    await publish(topics, topic, payload)
    await settle(topics)
    assert await payloads_of(topics, topic) == [payload]


# The stand-in for MongoDB holds fewer documents.
@pytest.mark.parametrize("topic_kits", ["sqlite"], indirect=True)
async def test_many_small_messages_leave_in_many_steps(topic_kit: Kit, topics: Topics) -> None:
    topic = await topics.create(NAME, None)
    for _ in range(11):
        await publish_all(topics, topic, messages(["z" * 100] * 1000))
    size = octets_of("z" * 100)
    await topics.change(NAME, None, max_bytes=BOUND)
    await settle(topics)
    count = len(await entries_of(topics.log(topic)))
    assert BOUND - BOUND // 16 - size <= count * size <= BOUND


# Only SQLite removes with the append.
@pytest.mark.parametrize("topic_kits", ["sqlite"], indirect=True)
async def test_an_append_keeps_the_bound_without_the_keeper(topic_kit: Kit, topics: Topics) -> None:
    topic = await topics.create(NAME, None, max_bytes=BOUND)
    for first in range(1, 200):
        await fill(topics, topic, 1, first)
        stored = (await topics.stats()).bytes
        assert stored <= BOUND + SIZE
    assert stored > BOUND * 7 // 8


# --- All topics together ---


async def test_of_all_topics_the_oldest_messages_leave_first(topic_kit: Kit) -> None:
    topics = (await topic_kit.open(topics_max_bytes=BOUND)).topics
    first, second = [await topics.create(named(name), None) for name in "ab"]
    for number in range(FIT):
        for topic in (first, second):
            topic_kit.clock.ms += 1000
            await publish(topics, topic, large(number))
    await settle(topics)
    left = [numbers(await payloads_of(topics, each)) for each in (first, second)]
    assert left[0] == [*range(FIT - len(left[0]), FIT)]
    assert left[1] == [*range(FIT - len(left[1]), FIT)]
    assert FIT - 2 <= len(left[0]) + len(left[1]) <= FIT
    assert abs(len(left[0]) - len(left[1])) <= 1


async def test_an_idle_topic_keeps_its_newest_message(topic_kit: Kit) -> None:
    topics = (await topic_kit.open(topics_max_bytes=BOUND)).topics
    idle = await topics.create(named("idle"), None)
    await publish(topics, idle, "a", "b")
    topic_kit.clock.ms += 1000
    busy = await topics.create(named("busy"), None)
    await fill(topics, busy, 2 * FIT)
    await settle(topics)
    assert await payloads_of(topics, idle) == ["b"]
    assert len(await payloads_of(topics, busy)) >= FIT - 2


async def test_the_bound_of_all_topics_is_in_the_store_and_ends_with_zero(topic_kit: Kit) -> None:
    first = (await topic_kit.open(topics_max_bytes=8 * BOUND)).topics
    assert (await first.stats()).max_bytes == 8 * BOUND
    second = (await topic_kit.open()).topics
    assert (await second.stats()).max_bytes == 8 * BOUND
    third = (await topic_kit.open(topics_max_bytes=0)).topics
    for each in (first, third):
        assert (await each.stats()).max_bytes is None


# On MongoDB deleted topics leave when their time has come.
@pytest.mark.parametrize("topic_kits", ["sqlite"], indirect=True)
async def test_deleted_topics_make_room_first(topic_kit: Kit) -> None:
    topics = (await topic_kit.open(topics_max_bytes=BOUND)).topics
    kept = await topics.create(named("kept"), None)
    await fill(topics, kept, FIT // 2)
    gone = await topics.create(named("gone"), None)
    await fill(topics, gone, FIT)
    await topics.delete(gone.name)
    await settle(topics)
    assert len(await payloads_of(topics, kept)) == FIT // 2
    assert (await topics.stats()).bytes == FIT // 2 * SIZE


async def test_figures_tell_bytes_and_what_has_left(topics: Topics) -> None:
    topic = await topics.create(NAME, None, max_bytes=BOUND)
    await fill(topics, topic, 2 * FIT)
    await settle(topics)
    stats = await topics.stats()
    left = len(await payloads_of(topics, topic))
    assert stats.bytes == left * SIZE
    assert stats.left == 2 * FIT - left

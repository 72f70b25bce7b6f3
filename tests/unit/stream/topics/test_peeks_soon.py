"""Polls that wait for the follower: its one read serves all, and none of them shows too little."""

import asyncio
from collections.abc import Callable

import pytest

from oplogd.model.event_id import Millis
from oplogd.model.message import decode_content
from oplogd.model.message_id import MessageId
from oplogd.store.topics import MessageBatch, Topic
from oplogd.stream.feeds import MOST_DUE
from tests.kits.stream.reading import awaited
from tests.kits.stream.topic_worlds import TopicWorld, message, told
from tests.kits.stream.worlds import DEADLINE
from tests.unit.stream.topics.peeks import MB, peek, polled

_HOUR = 3600.0

Answer = list[str | None] | None


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oplogd.stream.topic_feed.REACH_SECONDS", _HOUR)


async def followed(world: TopicWorld) -> Topic:
    """Return a topic whose ring follows it."""
    topic = await world.create()
    await polled(world, topic)
    return topic


async def soon(world: TopicWorld, topic: Topic, after: MessageId | None = None) -> Answer:
    async with asyncio.timeout(DEADLINE):
        found = await world.feeds.peek_soon(topic, after, 100, MB)
    return None if found is None else [decode_content(data).payload for _, data in found.messages]


async def waiting(
    world: TopicWorld, topic: Topic, after: MessageId | None = None
) -> "asyncio.Task[Answer]":
    """Return a poll that waits for the follower."""
    task = asyncio.create_task(soon(world, topic, after))
    await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_one_read_of_the_follower_serves_all_polls_that_wait(topic_world: TopicWorld) -> None:
    topic = await followed(topic_world)
    await topic_world.publish(topic, "a")
    reads = topic_world.topics.reads
    polls = [await waiting(topic_world, topic) for _ in range(50)]
    await topic_world.follower.advance(0)
    assert await asyncio.gather(*polls) == [["a"]] * 50
    assert topic_world.topics.reads == reads + 1
    assert await soon(topic_world, topic) == ["a"]  # without a wait


async def test_a_poll_need_not_have_what_clients_learn_while_it_waits(
    topic_world: TopicWorld,
) -> None:
    topic = await followed(topic_world)
    (mark,) = await topic_world.publish(topic, "a")
    earlier = await waiting(topic_world, topic)
    topic_world.feeds.acknowledged(topic.log, mark.offset + 1)
    later = await waiting(topic_world, topic)
    await topic_world.follower.advance(0)
    assert await earlier == ["a"]
    await asyncio.sleep(0)
    assert not later.done()
    await topic_world.publish(topic, "b")
    await topic_world.advance()
    assert await later == ["a", "b"]


async def test_a_poll_asks_the_store_when_it_has_waited_long_enough(
    topic_world: TopicWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oplogd.stream.topic_feed.REACH_SECONDS", 0)
    topic = await followed(topic_world)
    await topic_world.publish(topic, "a")
    assert await soon(topic_world, topic) is None
    await topic_world.advance()
    assert await soon(topic_world, topic) == ["a"]


async def test_only_the_first_polls_wait_for_a_follower_that_takes_long(
    topic_world: TopicWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await followed(topic_world)
    await topic_world.publish(topic, "a")
    monkeypatch.setattr("oplogd.stream.topic_feed.REACH_SECONDS", 0)
    assert await soon(topic_world, topic) is None
    monkeypatch.setattr("oplogd.stream.topic_feed.REACH_SECONDS", _HOUR)
    assert await soon(topic_world, topic) is None  # without a wait
    await topic_world.advance()
    await topic_world.publish(topic, "b")
    poll = await waiting(topic_world, topic)
    await topic_world.advance()
    assert await poll == ["a", "b"]


async def test_a_poll_that_waits_lets_the_follower_read(topic_world: TopicWorld) -> None:
    topic = await followed(topic_world)
    await topic_world.publish(topic, "a")
    topic_world.feeds.due.clear()  # it has read before the message was acknowledged
    woken = topic_world.feeds.woken()
    poll = await waiting(topic_world, topic)
    assert list(topic_world.feeds.due) == [topic.log]
    assert woken.done()
    await topic_world.advance()
    assert await poll == ["a"]


async def test_no_poll_waits_for_a_log_that_an_older_copy_has_replaced(
    topic_world: TopicWorld,
) -> None:
    topic = await followed(topic_world)
    await topic_world.publish(topic, *"abcd")
    await topic_world.advance()
    await topic_world.publish(topic, *"efgh")
    gone = await waiting(topic_world, topic)
    gone.cancel()
    del topic_world.topics.generation(topic.log).entries[2:]
    await topic_world.advance()
    feed = topic_world.feeds.get(topic.log)
    assert feed is not None
    topic_world.clock.ms += 1
    await topic_world.publish(topic, "3")
    await topic_world.advance()
    for number in range(4, 12):
        head = feed.ring.head
        topic_world.clock.ms += 1
        await topic_world.publish(topic, str(number))
        poll = await waiting(topic_world, topic, MessageId(head.ms, head.sequence))
        await topic_world.advance()
        assert await poll == [str(number)]


async def test_a_poll_has_what_a_stream_behind_the_ring_has_shown(topic_world: TopicWorld) -> None:
    topic = await followed(topic_world)
    await topic_world.publish(topic, "a")
    await topic_world.advance()
    feed = topic_world.feeds.get(topic.log)
    assert feed is not None
    feed.give_up(10**9)
    # Another agent appends.
    await topic_world.topics.append([MessageBatch(topic.log, [message("b")])])
    consumer = await topic_world.connect(topic, Millis(1))
    assert told(await awaited(consumer)) == ["a", "b"]
    poll = await waiting(topic_world, topic)
    await topic_world.advance()
    assert await poll is None  # memory lacks the first one
    assert feed.acknowledged == 2


async def test_polls_of_a_deleted_topic_wait_no_longer(topic_world: TopicWorld) -> None:
    topic = await followed(topic_world)
    await topic_world.publish(topic, "a")
    polls = [await waiting(topic_world, topic) for _ in range(3)]
    topic_world.feeds.end(topic.log)
    assert await asyncio.gather(*polls) == [None] * 3


def go_stale(world: TopicWorld, _topic: Topic) -> None:
    world.feeds.is_stale = True


def change(world: TopicWorld, topic: Topic) -> None:
    world.feeds.unsure[topic.log] = None


def outdate(world: TopicWorld, _topic: Topic) -> None:
    world.feeds.learnt -= 1  # another worker has changed or deleted a topic


@pytest.mark.parametrize("happen", [go_stale, change, outdate])
async def test_memory_that_is_in_doubt_answers_no_poll(
    happen: Callable[[TopicWorld, Topic], None], topic_world: TopicWorld
) -> None:
    topic = await followed(topic_world)
    await topic_world.publish(topic, "a")
    poll = await waiting(topic_world, topic)
    feed = topic_world.feeds.get(topic.log)
    assert feed is not None
    happen(topic_world, topic)
    feed.ring.append(await topic_world.topics.log(topic).read(0, 10))
    topic_world.feeds.grown(feed)
    assert await poll is None
    await topic_world.publish(topic, "b")
    assert await soon(topic_world, topic) is None  # without a wait


async def test_no_poll_waits_for_the_beginning_of_a_ring(topic_world: TopicWorld) -> None:
    topic = await topic_world.create()
    for _ in range(2):
        assert peek(topic_world, topic) is None
    await topic_world.publish(topic, "a")
    assert await soon(topic_world, topic) is None


async def test_no_poll_waits_for_a_follower_that_has_much_to_read(topic_world: TopicWorld) -> None:
    topics = [await topic_world.create(f"t{number}") for number in range(MOST_DUE + 1)]
    for topic in topics * 2:
        assert peek(topic_world, topic) is None
    await topic_world.advance()
    for topic in topics[1:]:
        await topic_world.publish(topic, "a")
    poll = await waiting(topic_world, topics[1])
    await topic_world.publish(topics[0], "a")
    assert await soon(topic_world, topics[1]) is None
    feed = topic_world.feeds.get(topics[1].log)
    assert feed is not None
    feed.ring.append(await topic_world.topics.log(topics[1]).read(0, 10))
    topic_world.feeds.grown(feed)
    assert await poll == ["a"]  # however much is left to read


async def test_a_poll_that_is_cancelled_leaves_the_others_waiting(topic_world: TopicWorld) -> None:
    topic = await followed(topic_world)
    await topic_world.publish(topic, "a")
    gone, stays = [await waiting(topic_world, topic) for _ in range(2)]
    gone.cancel()
    await asyncio.sleep(0)
    assert not stays.done()
    await topic_world.advance()
    assert await stays == ["a"]

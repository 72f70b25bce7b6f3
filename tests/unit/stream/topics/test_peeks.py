"""Polls from memory: they ask the store for nothing, and miss nothing that it has."""

import pytest

from oplogd.model.event_id import Mark
from oplogd.model.message_id import MessageId
from oplogd.model.transaction import Isolation
from oplogd.stream.topic_feed import Peeked
from tests.kits.stream.topic_worlds import TTL, TopicWorld, message
from tests.unit.stream.topics.peeks import MB, peek, polled


async def test_a_poll_from_memory_asks_the_store_for_nothing(topic_world: TopicWorld) -> None:
    topic = await topic_world.create()
    await polled(topic_world, topic)
    marks = await topic_world.publish(topic, "a", "b", "c")
    await topic_world.advance()
    reads = topic_world.topics.reads
    assert peek(topic_world, topic) == ["a", "b", "c"]
    assert peek(topic_world, topic, marks[0]) == ["b", "c"]
    assert peek(topic_world, topic, marks[2]) == []
    assert topic_world.topics.reads == reads


async def test_memory_does_not_answer_before_it_has_what_this_agent_acknowledged(
    topic_world: TopicWorld,
) -> None:
    topic = await topic_world.create()
    await polled(topic_world, topic)
    (mark,) = await topic_world.publish(topic, "a")
    assert peek(topic_world, topic) is None
    assert peek(topic_world, topic, mark) is None
    assert topic_world.feeds.is_behind
    await topic_world.advance()
    assert peek(topic_world, topic) == ["a"]
    assert not topic_world.feeds.is_behind


async def test_an_acknowledgement_before_the_ring_started_counts(topic_world: TopicWorld) -> None:
    topic = await topic_world.create()
    for _ in range(2):
        assert peek(topic_world, topic) is None
    await topic_world.publish(topic, "a")
    assert peek(topic_world, topic) is None
    await topic_world.advance()
    (mark,) = await topic_world.publish(topic, "b")
    await topic_world.advance()
    assert peek(topic_world, topic, Mark(1, mark.ms, mark.sequence - 1)) == ["b"]


@pytest.mark.parametrize("isolation", Isolation)
async def test_memory_answers_an_idle_reader_whose_last_message_has_left_the_ring(
    isolation: Isolation, topic_world: TopicWorld
) -> None:
    topic = await topic_world.create()
    await polled(topic_world, topic)
    (mark,) = await topic_world.publish(topic, "a")
    await topic_world.advance()
    topic_world.clock.ms += TTL * 1000 + 1
    id_ = MessageId(mark.ms, mark.sequence)
    assert topic_world.feeds.peek(topic, id_, 100, MB, isolation) == Peeked([])


async def test_memory_does_not_answer_for_messages_from_before_the_feed(
    topic_world: TopicWorld,
) -> None:
    topic = await topic_world.create()
    first, second = await topic_world.publish(topic, "a", "b")
    await polled(topic_world, topic)
    assert peek(topic_world, topic) is None
    assert peek(topic_world, topic, first) is None
    assert peek(topic_world, topic, second) == []
    topic_world.clock.ms += TTL * 1000 + 1
    await topic_world.publish(topic, "c")
    await topic_world.advance()
    assert peek(topic_world, topic) == ["c"]
    assert peek(topic_world, topic, first) is None


async def test_memory_does_not_answer_while_the_store_is_away(topic_world: TopicWorld) -> None:
    topic = await topic_world.create()
    await polled(topic_world, topic)
    topic_world.feeds.is_stale = True
    assert peek(topic_world, topic) is None


async def test_expired_messages_are_absent_at_once(topic_world: TopicWorld) -> None:
    topic = await topic_world.create()
    await polled(topic_world, topic)
    begin = topic_world.clock.ms
    await topic_world.publish(topic, message("a", ttl=1), "b")
    await topic_world.advance()
    topic_world.clock.ms = begin + 1_000
    assert peek(topic_world, topic) == ["a", "b"]
    topic_world.clock.ms += 1
    assert peek(topic_world, topic) == ["b"]
    topic_world.clock.ms = begin + TTL * 1000
    assert peek(topic_world, topic) == ["b"]
    topic_world.clock.ms += 1
    assert peek(topic_world, topic) == []


async def test_a_changed_time_to_live_is_followed(topic_world: TopicWorld) -> None:
    topic = await topic_world.create()
    await polled(topic_world, topic)
    begin = topic_world.clock.ms
    await topic_world.publish(topic, "a")
    await topic_world.advance()
    await topic_world.topics.change(topic.name, 1)
    await topic_world.advance()
    topic_world.clock.ms = begin + 1_001
    assert peek(topic_world, topic) == []
    await topic_world.topics.change(topic.name, None)
    await topic_world.advance()
    assert peek(topic_world, topic) == []
    await topic_world.publish(topic, "b")
    topic_world.clock.ms += TTL * 1000
    await topic_world.advance()
    assert peek(topic_world, topic) == ["b"]


async def test_a_time_to_live_that_changed_twice_since_the_last_look_is_followed(
    topic_world: TopicWorld,
) -> None:
    topic = await topic_world.create()
    await polled(topic_world, topic)
    await topic_world.publish(topic, "a")
    await topic_world.advance()
    topic_world.clock.ms += 5_000
    await topic_world.publish(topic, "b")
    await topic_world.topics.change(topic.name, 1)
    await topic_world.topics.change(topic.name, 2 * TTL)
    await topic_world.advance()
    assert peek(topic_world, topic) == ["b"]


async def test_memory_does_not_answer_for_a_deleted_topic(topic_world: TopicWorld) -> None:
    topic = await topic_world.create()
    await polled(topic_world, topic)
    await topic_world.topics.delete(topic.name)
    await topic_world.advance()
    assert topic_world.feeds.stats.feeds == 0
    assert peek(topic_world, topic) is None

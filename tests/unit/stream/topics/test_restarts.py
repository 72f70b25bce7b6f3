"""A ring of a topic restarts when its log does not continue."""

import pytest

from oplogd.model.event_id import Millis
from oplogd.store.topics import MessageBatch
from tests.kits.stream.topic_worlds import TTL, TopicWorld, message, read_all, told


async def test_a_ring_restarts_when_the_log_continues_elsewhere(topic_world: TopicWorld) -> None:
    """The follower was unreachable for longer than the time to live."""
    topic = await topic_world.create()
    consumer = await topic_world.connect(topic, Millis(0))
    await topic_world.publish(topic, "a")
    await topic_world.advance()
    assert told(await read_all(consumer)) == ["a"]
    await topic_world.publish(topic, "b")
    topic_world.clock.ms += TTL * 1000 + 1
    await topic_world.publish(topic, "c")
    await topic_world.advance()
    assert told(await read_all(consumer)) == ["reset", "c"]


@pytest.mark.parametrize("sweep", [False, True])
async def test_a_ring_restarts_when_all_new_messages_have_expired_unread(
    topic_world: TopicWorld, sweep: bool
) -> None:
    topic = await topic_world.create()
    consumer = await topic_world.connect(topic)
    await topic_world.topics.append([MessageBatch(topic.log, [message("a"), message("b")])])
    topic_world.clock.ms += TTL * 1000 + 1
    if sweep:
        await topic_world.topics.sweep()
    await topic_world.advance()
    assert told(await read_all(consumer)) == ["reset"]
    await topic_world.publish(topic, "c")
    await topic_world.advance()
    assert told(await read_all(consumer)) == ["c"]


@pytest.mark.parametrize("is_idle", [False, True])
async def test_a_ring_restarts_when_an_older_copy_has_replaced_the_log(
    topic_world: TopicWorld, is_idle: bool
) -> None:
    topic = await topic_world.create()
    consumer = await topic_world.connect(topic, Millis(0))
    await topic_world.publish(topic, "a", "b")
    await topic_world.advance()
    assert told(await read_all(consumer)) == ["a", "b"]
    if not is_idle:
        await topic_world.publish(topic, "c")
    del topic_world.topics.generation(topic.log).entries[1:]
    assert topic_world.feeds.is_behind != is_idle
    await topic_world.advance()
    assert not topic_world.feeds.is_behind
    assert told(await read_all(consumer)) == ["reset", "a"]


@pytest.mark.parametrize("is_live", [False, True])
async def test_another_log_of_more_messages_is_noticed(
    topic_world: TopicWorld, is_live: bool
) -> None:
    topic = await topic_world.create()
    consumer = await topic_world.connect(topic, Millis(0))
    await topic_world.publish(topic, "a")
    await topic_world.advance()
    assert told(await read_all(consumer)) == ["a"]
    if not is_live:
        topic_world.feeds.max_bytes = 1
    topic_world.clock.ms += 1
    entries = topic_world.topics.generation(topic.log).entries
    if not is_live:
        await topic_world.publish(topic, "b")
        await topic_world.advance()
    entries[0] = entries[0]._replace(ms=entries[0].ms - 1, data='{"payload":"other"}')
    await topic_world.publish(topic, "c")
    if is_live:
        await topic_world.advance()
    expected = ["reset", "other", "c"] if is_live else ["reset", "other", "b", "c"]
    assert told(await read_all(consumer)) == expected

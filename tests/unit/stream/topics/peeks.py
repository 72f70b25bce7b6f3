"""Polls of a topic from memory."""

from oplogd.model.event_id import Mark
from oplogd.model.message import decode_content
from oplogd.model.message_id import MessageId
from oplogd.store.topics import Topic
from tests.kits.stream.topic_worlds import TopicWorld

MB = 1_000_000


def peek(world: TopicWorld, topic: Topic, after: Mark | None = None) -> list[str | None] | None:
    id_ = after and MessageId(after.ms, after.sequence)
    found = world.feeds.peek(topic, id_, 100, MB)
    return None if found is None else [decode_content(data).payload for _, data in found.messages]


async def polled(world: TopicWorld, topic: Topic) -> None:
    """Poll twice, so that there is a feed."""
    assert peek(world, topic) is None
    assert peek(world, topic) is None
    await world.advance()
    assert world.feeds.stats.feeds == 1

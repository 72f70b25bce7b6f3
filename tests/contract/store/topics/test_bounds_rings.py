"""Bounds in bytes and the rings of agents: what has left is in no memory."""

import asyncio

from oplogd.store.topics import Topic, Topics
from oplogd.stream.feeds import Feeds
from oplogd.stream.topic_feed import TopicFeed
from oplogd.stream.topic_follower import TopicFollower
from tests.kits.processes.logged import DEADLINE
from tests.kits.store.bounded import BOUND, FIT, fill, settle
from tests.kits.store.kits import Kit
from tests.kits.store.messages import NAME


class Agent:
    """An agent that follows one topic."""

    def __init__(self, topics: Topics, kit: Kit) -> None:
        self.topics = topics
        self.feeds = Feeds(topics, lambda _: None, max_bytes=1 << 30, clock=kit.clock.clock)
        self.follower = TopicFollower(topics, self.feeds)

    async def follow(self, topic: Topic) -> TopicFeed:
        return await self.feeds.open(topic)

    async def until(self, feed: TopicFeed, base: int, head: int) -> None:
        """Follow until the ring holds exactly the entries past ``base`` up to ``head``."""
        async with asyncio.timeout(DEADLINE):
            while (feed.ring.base, feed.ring.head.offset) != (base, head):
                await self.follower.advance(0.2)


async def test_what_has_left_leaves_the_rings_of_all_agents(topic_kit: Kit, topics: Topics) -> None:
    topic = await topics.create(NAME, None)
    agents = [Agent(topics, topic_kit), Agent((await topic_kit.open()).topics, topic_kit)]
    feeds = [await agent.follow(topic) for agent in agents]
    await fill(topics, topic, 2 * FIT)
    for agent, feed in zip(agents, feeds, strict=True):
        await agent.until(feed, 0, 2 * FIT)
    await topics.change(NAME, None, max_bytes=BOUND)
    await settle(topics)
    front = (await topics.log(topic).locate()).front.offset
    assert front >= FIT
    for agent, feed in zip(agents, feeds, strict=True):
        await agent.until(feed, front, 2 * FIT)
        peeked = feed.peek(None, 1000, 1 << 30)
        assert peeked is not None
        assert len(peeked.messages) == 2 * FIT - front
        assert agent.feeds.stats.bytes == feed.ring.window.size
    await fill(topics, topic, FIT // 2)
    await settle(topics)
    front = (await topics.log(topic).locate()).front.offset
    for agent, feed in zip(agents, feeds, strict=True):
        await agent.until(feed, front, 2 * FIT + FIT // 2)
        await agent.follower.close()

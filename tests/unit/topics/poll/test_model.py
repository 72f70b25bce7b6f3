"""Polls compared with a list in memory, whatever was published, expired or deleted before.

The requests and answers are JSON, as over HTTP. A poll is answered from the store or, when the feed
of the topic has what is needed, from memory: the answer must be the same.
"""

import asyncio
import json
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.model.message_id import MessageId, stamp, unstamp
from oplogd.model.names import TopicName
from oplogd.model.shard import Shard
from oplogd.store.topics import MessageBatch, TopicEntry, TopicLog
from oplogd.stream.feeds import Feeds
from oplogd.stream.topic_follower import TopicFollower
from oplogd.topics.codec.codec import PollRequest
from oplogd.topics.codec.json_codec import JsonCodec
from oplogd.topics.counters import TopicCounters
from oplogd.topics.known import KnownTopics
from oplogd.topics.poll import PASSING_ENTRIES
from oplogd.topics.poller import Poller
from oplogd.topics.publish import MessageQueue, MessageWriter, PublishService
from oplogd.watch.health import Health
from tests.kits.clock.virtual import START_MS, VirtualClock
from tests.kits.models.properties import examples
from tests.kits.models.shards import shards
from tests.kits.topics.memory import MemoryTopics
from tests.kits.topics.messages import decode_poll, of_json
from tests.unit.topics.polling import TopicModel

NAME = TopicName("ns", "t")
LIMIT = 20
HUGE = 10**9
CODEC = JsonCodec()


class Publish(NamedTuple):
    """``sizes``: of the payloads in bytes. ``ttl``: of each message."""

    sizes: list[int]
    ttl: int | None


class Pass(NamedTuple):
    ms: int


class Change(NamedTuple):
    ttl: int


class Recreate(NamedTuple):
    """Delete the topic and create it again."""


class Sweep(NamedTuple):
    pass


class Follow(NamedTuple):
    """Bring all new messages into memory, if the topic has a feed."""


class Poll(NamedTuple):
    """``kind``: see ``start_of``. ``shift``: added to the chosen id or time."""

    kind: str
    choice: int
    shift: int
    inclusive: bool
    limit: int | None
    shard: Shard | None = None


Step = Publish | Pass | Change | Recreate | Sweep | Follow | Poll

sizes = st.one_of(st.integers(0, 20), st.just(400_000))
ttls = st.sampled_from([None, None, 1, 2])
steps = st.one_of(
    st.builds(Publish, st.lists(sizes, min_size=1, max_size=4), ttls),
    st.builds(Pass, st.sampled_from([0, 1, 500, 1001, 3000])),
    st.builds(Change, st.integers(1, 4)),
    st.builds(Recreate),
    st.builds(Sweep),
    st.builds(Follow),
    *[
        st.builds(
            Poll,
            st.sampled_from(["oldest", "id", "id", "ms", "old id", "part"]),
            st.integers(0, 50),
            st.integers(-1, 1),
            st.booleans(),
            st.one_of(st.none(), st.integers(1, LIMIT + 5)),
            shards,
        )
    ]
    * 4,
)


class World:
    """An agent's parts over topics in memory, beside the model."""

    def __init__(self, *, from_memory: bool) -> None:
        self.clock = VirtualClock()
        self.topics = MemoryTopics(self.clock.now_ms)
        self.ids: list[str] = []
        self.polled_from_memory = 0
        self.feeds = Feeds(
            self.topics,
            lambda _: None,
            max_bytes=2_000_000,
            clock=self.clock.clock,
        )
        self.follower = TopicFollower(self.topics, self.feeds)
        queue, counters = MessageQueue(HUGE, HUGE, "messages"), TopicCounters()
        acknowledged = self.feeds.acknowledged
        self.known = KnownTopics(self.topics)
        self.writer = MessageWriter(self.topics, queue, Health(), acknowledged)
        self.publisher = PublishService(self.known, queue, counters)
        memory = self.feeds if from_memory else None
        self.poller = Poller(self.topics, self.known, counters, LIMIT, memory)
        self.model: TopicModel

    async def create(self, ttl: int, ended: int) -> None:
        await self.topics.create(NAME, ttl)
        self.model = TopicModel(ttl, max(stamp(self.clock.ms, 0), ended))

    async def play(self, step: Step) -> None:
        match step:
            case Publish(sizes, ttl):
                payloads = [f"{'x' * size}" for size in sizes]
                members = {} if ttl is None else {"ttl": ttl}
                messages = [of_json({"payload": each, **members}) for each in payloads]
                await self.publisher.publish(NAME, messages)
                self.model.publish(self.clock.ms, payloads, ttl)
                self.ids += [each.id for each in self.model.messages[-len(sizes) :]]
            case Pass(ms):
                self.clock.ms += ms
            case Change(ttl):
                self.feeds.changed(await self.topics.change(NAME, ttl))
                self.model.set_ttl(self.clock.ms, ttl)
            case Recreate():
                await self.topics.delete(NAME)
                self.known.forget(NAME)
                await self.create(self.model.ttl, self.model.head + 1)
            case Sweep():
                await self.topics.sweep()
            case Follow():
                await self.follow()
            case Poll():
                await self.poll(step)

    async def follow(self) -> None:
        """Run the follower until every feed is started and has all messages."""
        await self.follower.advance(0)
        while self.feeds.due:
            await self.follower.advance(0)

    async def poll(self, step: Poll) -> None:
        start = self.start_of(step)
        body = {"startFrom": start, "inclusive": step.inclusive, "limit": step.limit}
        request = decode_poll(CODEC, json.dumps(body).encode())
        reads = self.topics.reads
        answer = await self.poller.poll(NAME, request, step.shard)
        self.polled_from_memory += self.topics.reads == reads
        got = json.loads(CODEC.encode(answer.messages)), answer.gap
        limit, shard, now = min(step.limit or LIMIT, LIMIT), step.shard, self.clock.ms
        assert got == self.model.poll(now, start, step.inclusive, limit, shard)
        if answer.reached is not None:
            rest = self.model.poll(now, answer.reached, False, HUGE, shard)[0]
            whole = self.model.poll(now, start, step.inclusive, HUGE, shard)[0]
            assert (got[0] + rest)[: len(whole)] == whole, "it continues elsewhere"
        assert (answer.reached is None) or shard
        assert shard is None or answer.reached is not None or not answer.messages

    def start_of(self, step: Poll) -> str | int | None:
        """Return a start near a message: of this generation, or of any (``old id``)."""
        ids = self.ids if step.kind == "old id" else [each.id for each in self.model.messages]
        if step.kind == "oldest" or not ids:
            return None
        number = int(ids[step.choice % len(ids)][:20], 16)
        if step.kind == "ms":
            return unstamp(number)[0] + step.shift
        if step.kind == "part":  # an id that is larger than the message's own
            return str(MessageId(*unstamp(number), 1, step.choice))
        return str(MessageId(*unstamp(number + step.shift)))


@pytest.mark.thorough
@pytest.mark.parametrize("from_memory", [False, True])
async def test_a_poll_returns_what_the_list_has(from_memory: bool) -> None:
    @examples()
    @given(st.lists(steps, min_size=5, max_size=30))
    def compare(played: list[Step]) -> None:
        asyncio.run(playing(played, from_memory=from_memory))

    await asyncio.to_thread(compare)


async def playing(played: list[Step], *, from_memory: bool) -> None:
    """Play the steps. After them, a poll of a new message is answered from memory or is not."""
    world = World(from_memory=from_memory)
    await world.create(2, 0)
    writing = asyncio.create_task(world.writer.run())
    # The second poll creates a feed, so that most of the messages come into memory.
    listening: list[Step] = [*[Poll("oldest", 0, 0, True, None)] * 2, Follow()]
    fresh: list[Step] = [*listening, Publish([1], None), Follow()]
    try:
        for step in [*listening, *played, *fresh]:
            await world.play(step)
        before = world.polled_from_memory
        await world.play(Poll("id", len(world.model.messages) - 1, 0, False, None))
        await world.play(Poll("id", len(world.model.messages) - 1, -1, False, None))
        await world.play(Poll("id", len(world.model.messages) - 1, -1, False, None, Shard(0, 1)))
        assert world.polled_from_memory - before == (3 if from_memory else 0)
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await world.follower.close()


async def test_a_ttl_that_another_agent_changed_before_a_topic_has_a_feed_counts() -> None:
    world = World(from_memory=True)
    await world.create(100, 0)
    other = TopicName("ns", "other")
    await world.topics.create(other, None)
    oldest = PollRequest()
    writing = asyncio.create_task(world.writer.run())
    try:
        await world.publisher.publish(NAME, [of_json("old")])
        for _ in range(2):
            await world.poller.poll(other, oldest)
        await world.topics.change(NAME, 1)
        for _ in range(2):
            await world.follower.advance(0)
        for _ in range(2):
            await world.poller.poll(NAME, oldest)
        await world.follower.advance(0)
        position = world.topics.generation(1).head
        after = PollRequest(MessageId(position.ms, position.sequence).to_bytes(), inclusive=False)
        await world.publisher.publish(NAME, [of_json("new")])
        await world.follower.advance(0)
        reads = world.topics.reads
        assert len((await world.poller.poll(NAME, after)).messages) == 1
        assert world.topics.reads == reads, "the message is in memory"
        world.clock.ms += 1001
        assert (await world.poller.poll(NAME, after)).messages == []
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await world.follower.close()


async def test_a_poll_shows_no_less_than_the_one_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a poll reads the store, a ring begins, and another agent publishes after that."""
    world = World(from_memory=True)
    await world.create(100, 0)
    oldest = PollRequest()
    topic = world.topics.generation(1).topic
    log_type = type(world.topics.log(topic))

    async def publish_and_read(log: TopicLog, after: int, limit: int) -> list[TopicEntry]:
        monkeypatch.undo()
        await world.follow()
        await world.topics.append([MessageBatch(topic.log, [of_json("of the other agent")])])
        return await log.read(after, limit)

    assert (await world.poller.poll(NAME, oldest)).messages == []
    monkeypatch.setattr(log_type, "read", publish_and_read)
    shown = (await world.poller.poll(NAME, oldest)).messages
    assert len(shown) == 1
    assert (await world.poller.poll(NAME, oldest)).messages == shown
    await world.follow()
    reads = world.topics.reads
    assert (await world.poller.poll(NAME, oldest)).messages == shown
    assert world.topics.reads == reads, "the message is in memory"
    await world.follower.close()


async def test_a_long_row_of_expired_messages_is_read_once() -> None:
    """Otherwise each poll would read all of them, until their topic's time to live has passed."""
    topics = MemoryTopics(lambda: now)
    now, before, expired = START_MS, 3, 5 * PASSING_ENTRIES
    poller = Poller(topics, KnownTopics(topics), TopicCounters(), LIMIT)
    topic = await topics.create(NAME, None)
    given = [of_json(f"first {each}") for each in range(before)]
    given += [of_json({"payload": "", "ttl": 1})] * expired + [of_json("last")]
    await topics.append([MessageBatch(topic.log, given)])
    now += 1001
    counts = []
    for start in (None, None, unstamp(stamp(START_MS, 1000))):
        reads = topics.reads
        position = None if start is None else MessageId(*start).to_bytes()
        answer = await poller.poll(NAME, PollRequest(position, inclusive=False))
        assert json.loads(answer.messages[-1].data) == {"payload": "last"}
        assert len(answer.messages) == (before + 1 if start is None else 1)
        assert not answer.gap
        counts.append(topics.reads - reads)
    assert counts == [7, 3, 3]

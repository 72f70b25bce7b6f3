"""In any order of events, a stream has every message of its topic once, or announces a gap."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.model.message_id import MessageId
from oplogd.store.topics import MessageBatch, Placed, Topic
from tests.kits.models.properties import examples
from tests.kits.stream.topic_worlds import TTL, message
from tests.kits.stream.worlds import WatchedConsumer
from tests.unit.stream.player import TOPICS, Player
from tests.unit.stream.topics.topic_clients import History, TopicClient


class Publish(NamedTuple):
    """``ttls``: own times to live in seconds of the messages, 0 without one."""

    topic: int
    ttls: list[int]
    known: bool


class Tick(NamedTuple):
    ms: int


class Sweep(NamedTuple):
    pass


class ChangeTtl(NamedTuple):
    topic: int
    ttl: int | None


class Recreate(NamedTuple):
    """Delete a topic and create it again. ``known``: by this agent."""

    topic: int
    known: bool


class Advance(NamedTuple):
    """Run one round of the follower."""


class RestartRing(NamedTuple):
    topic: int


class DropFeeds(NamedTuple):
    """Let the feeds without a stream be unused for long enough."""


class Connect(NamedTuple):
    """``at``: the place of its id in the history, from 0 to 1."""

    topic: int
    kind: Literal["none", "zero", "seen"]
    at: float


class Read(NamedTuple):
    client: int
    chunks: int


class Poll(NamedTuple):
    """Poll from memory, from the oldest message or past an id, and compare with the log."""

    topic: int
    at: float | None


class Resume(NamedTuple):
    """Connect again at the last event id."""

    client: int


class Meddle(NamedTuple):
    """Let an event happen between a call of the store and its answer."""

    event: Publish | Tick | Sweep | ChangeTtl | Recreate


Action = (
    Publish | Tick | Sweep | ChangeTtl | Recreate | Advance | RestartRing | DropFeeds
    | Connect | Read | Poll | Resume | Meddle
)  # fmt: skip

topics = st.integers(0, TOPICS - 1)
publishes = st.builds(
    Publish, topics, st.lists(st.sampled_from([0, 0, 0, 1, 5]), min_size=1, max_size=5),
    st.booleans(),
)  # fmt: skip
ticks = st.builds(Tick, st.sampled_from([1, 1, 500, 1_001, 5_001, TTL * 500, TTL * 1000 + 1]))
changes = st.builds(ChangeTtl, topics, st.sampled_from([None, 1, 5, 1000]))
recreates = st.builds(Recreate, topics, st.booleans())
meddling = st.builds(Meddle, st.one_of(publishes, ticks, st.just(Sweep()), changes, recreates))
connects = st.builds(
    Connect, topics, st.sampled_from(["none", "zero", "seen", "seen"]), st.floats(0, 1)
)
clients = st.integers(0, 5)
reads = st.builds(Read, clients, st.integers(1, 4))
actions: st.SearchStrategy[Action] = st.one_of(
    publishes, publishes, publishes, ticks, st.just(Sweep()), changes, recreates,
    st.just(Advance()), st.just(Advance()), st.just(Advance()), st.builds(RestartRing, topics),
    st.just(DropFeeds()), connects, connects, reads, reads, reads, reads,
    st.builds(Resume, clients), meddling, meddling, st.builds(Poll, topics, st.none()),
    st.builds(Poll, topics, st.floats(0, 1)),
)  # fmt: skip


@examples(2)
@given(
    first=st.tuples(publishes, connects, connects),
    then=st.lists(actions, min_size=15, max_size=60),
    max_bytes=st.sampled_from([1, 400, 1_500, 10**9]),
    page=st.sampled_from([1, 3, 500]),
    batch=st.sampled_from([1, 3, 2_000]),
    chunk=st.sampled_from([1, 400, 10**6]),
)
def test_every_stream_has_every_message_once_or_an_announced_gap(
    first: tuple[Action, ...],
    then: list[Action],
    max_bytes: int,
    page: int,
    batch: int,
    chunk: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oplogd.stream.hub.StreamConsumer", WatchedConsumer)
        patch.setattr("oplogd.stream.phases.catch_up.PAGE", page)
        patch.setattr("oplogd.stream.topic_follower._BATCH", batch)
        patch.setattr("oplogd.stream.phases.phase.CHUNK_BYTES", chunk)
        asyncio.run(Play(max_bytes).run([*first, *then]))


def test_a_stream_that_looked_its_topic_up_before_a_change_does_not_undo_the_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oplogd.stream.hub.StreamConsumer", WatchedConsumer)
    asyncio.run(
        Play(10**9).run(
            [
                Publish(0, [0], False),
                ChangeTtl(0, 10 * TTL),
                *[Poll(0, 0.0)] * 3,  # the second one makes a feed, which learns the change
                Connect(0, "none", 0.0),
                Tick(TTL * 1000 + 1),
                Poll(0, None),
            ]
        )
    )


def test_a_new_feed_learns_a_change_since_its_stream_looked_the_topic_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oplogd.stream.hub.StreamConsumer", WatchedConsumer)
    asyncio.run(
        Play(10**9).run(
            [
                ChangeTtl(0, 10 * TTL),
                Connect(1, "none", 0.0),  # the follower learns the catalogue for another feed
                Advance(),
                Connect(0, "none", 0.0),
                Publish(0, [0], False),
                Advance(),
                Tick(TTL * 1000 + 1),
                Poll(0, None),
            ]
        )
    )


class Play(Player[History, TopicClient]):
    def _history(self, topic: Topic) -> History:
        return History(self.world, topic)

    async def _do(self, action: Action) -> None:
        match action:
            case Meddle(event):
                self.topics.meddle.append(self._later(event))
            case Advance():
                await self.world.follower.advance(0)
            case RestartRing(topic):
                self._restart_ring(topic)
            case DropFeeds():
                self.world.clock.seconds += 1000
            case Connect():
                await self._connect(action)
            case Read(client, chunks) if client < len(self.clients):
                for _ in range(chunks):
                    await self.clients[client].read()
            case Resume(client) if client < len(self.clients):
                await self._resume(self.clients[client])
            case Poll(topic, at):
                await self._poll(self.histories[topic], at)
            case Publish() | Tick() | Sweep() | ChangeTtl() | Recreate():
                await self._happen(action)
            case _:
                pass

    def _later(
        self, event: Publish | Tick | Sweep | ChangeTtl | Recreate
    ) -> Callable[[], Awaitable[None]]:
        return lambda: self._happen(event)

    async def _happen(self, event: Publish | Tick | Sweep | ChangeTtl | Recreate) -> None:
        world = self.world
        match event:
            case Publish():
                await self._publish(event)
            case Tick(ms):
                world.clock.ms += ms
            case Sweep():
                await self.topics.sweep()
            case ChangeTtl(topic, ttl):
                await self.topics.change(self.histories[topic].topic.name, ttl)
            case Recreate(topic, known):
                gone = self.histories[topic].topic
                await self.topics.delete(gone.name)
                if known:
                    world.feeds.end(gone.log)
                world.clock.ms += 1
                self.histories[topic] = History(world, await world.create(gone.name.topic))

    async def _publish(self, publish: Publish) -> None:
        history = self.histories[publish.topic]
        made = []
        for ttl in publish.ttls:
            self.published += 1
            made.append(message(str(self.published), ttl or None))
        (placed,) = await self.topics.append([MessageBatch(history.topic.log, made)])
        assert isinstance(placed, Placed)
        history.note(history.generation.entries[-len(made) :])
        if publish.known:
            self.world.feeds.acknowledged(history.topic.log, placed.last.offset)

    async def _connect(self, connect: Connect) -> None:
        history = self.histories[connect.topic]
        last_id = "0" if connect.kind == "zero" else ""
        if connect.kind == "seen" and history.entries:
            ids = list(history.entries)
            last_id = str(MessageId(*ids[int(connect.at * (len(ids) - 1))]))
        client = TopicClient(self.world, history)
        await client.connect(last_id)
        self.clients.append(client)

    async def _poll(self, history: History, at: float | None) -> None:
        self.topics.meddle.clear()
        await self.world.advance()
        front = history.front
        after = front.ms, front.sequence
        if at is not None and history.entries:
            ids = list(history.entries)
            after = ids[int(at * (len(ids) - 1))]
        id_ = None if at is None else MessageId(*after)
        found = self.world.feeds.peek(history.topic, id_, 10**6, 10**9)
        if found is None:
            return
        assert after >= (front.ms, front.sequence), "a gap is not announced"
        assert found.messages == [
            (MessageId(entry.ms, entry.sequence), entry.data)
            for place, entry in history.entries.items()
            if place > after and not history.is_past_its_own_end(entry)
        ]

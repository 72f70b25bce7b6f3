"""In any order of events, readers of both isolations get their events once, or a reset."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.errors import TopicNotFoundError
from oplogd.model.message import Message
from oplogd.model.message_id import MessageId
from oplogd.model.shard import Shard
from oplogd.model.transaction import Isolation
from oplogd.store.topics import MessageBatch, Topic
from tests.kits.models.properties import examples
from tests.kits.models.shards import shards
from tests.kits.stream.topic_worlds import TTL, message
from tests.kits.stream.worlds import WatchedConsumer
from tests.unit.stream.player import TOPICS, Player
from tests.unit.stream.transactions.transacted_topics import Transacting, Writer
from tests.unit.stream.transactions.transaction_clients import EventClient, EventHistory


class Publish(NamedTuple):
    """``ttls``: own times to live in seconds of the messages, 0 without one."""

    topic: int
    ttls: list[int]


class Write(NamedTuple):
    """Write records in a transaction, the last ones first if ``reverse``."""

    writer: int
    topic: int
    ttls: list[int]
    reverse: bool


class Begin(NamedTuple):
    """``topic``: the only topic of the transaction, None: any."""

    topic: int | None


class End(NamedTuple):
    writer: int
    commit: bool


class Tick(NamedTuple):
    ms: int


class Sweep(NamedTuple):
    pass


class Recreate(NamedTuple):
    topic: int


Event = Publish | Write | Begin | End | Tick | Sweep | Recreate


class Advance(NamedTuple):
    """Run one round of the follower."""


class RestartRing(NamedTuple):
    topic: int


class DropFeeds(NamedTuple):
    """Let the feeds without a stream be unused for long enough."""


class Connect(NamedTuple):
    """``at``: the place of its id among the ids that readers have seen, from 0 to 1."""

    topic: int
    isolation: Isolation
    kind: Literal["none", "zero", "event", "entry"]
    at: float
    shard: Shard | None


class Read(NamedTuple):
    client: int
    chunks: int


class Checkpoint(NamedTuple):
    client: int


class Resume(NamedTuple):
    """Connect again at the last event id."""

    client: int


class Poll(NamedTuple):
    """Poll from memory and compare with the history. ``at``: see ``Connect``; None: the oldest."""

    topic: int
    isolation: Isolation
    at: float | None


class Meddle(NamedTuple):
    """Let an event happen between a call of the store and its answer."""

    event: Event


Action = (
    Event | Advance | RestartRing | DropFeeds
    | Connect | Read | Checkpoint | Resume | Poll | Meddle
)  # fmt: skip

topics = st.integers(0, TOPICS - 1)
writers = st.integers(0, 3)
ttls = st.lists(st.sampled_from([0, 0, 0, 0, 1, 5]), min_size=1, max_size=5)
isolations = st.sampled_from(Isolation)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Publish, topics, ttls), st.builds(Publish, topics, ttls),
    st.builds(Write, writers, topics, ttls, st.booleans()),
    st.builds(Write, writers, topics, ttls, st.booleans()),
    st.builds(Begin, st.none() | topics),
    st.builds(End, writers, st.sampled_from([True, True, False])),
    st.builds(End, writers, st.just(True)),
    st.builds(Tick, st.sampled_from([1, 1, 500, 1_001, 5_001, TTL * 500, TTL * 1000 + 1])),
    st.just(Sweep()), st.builds(Recreate, topics),
)  # fmt: skip
kinds = st.sampled_from(["none", "zero", "event", "event", "entry"])
connects = st.builds(Connect, topics, isolations, kinds, st.floats(0, 1), shards)
clients = st.integers(0, 5)
reads = st.builds(Read, clients, st.integers(1, 4))
actions: st.SearchStrategy[Action] = st.one_of(
    events, events, events, st.just(Advance()), st.just(Advance()), st.just(Advance()),
    st.builds(RestartRing, topics), st.just(DropFeeds()), connects, connects, reads, reads, reads,
    st.builds(Checkpoint, clients), st.builds(Resume, clients), st.builds(Meddle, events),
    st.builds(Poll, topics, isolations, st.none() | st.floats(0, 1)),
)  # fmt: skip


@examples(2)
@given(
    first=st.tuples(st.builds(Begin, st.none()), connects, connects, connects),
    then=st.lists(actions, min_size=15, max_size=60),
    max_bytes=st.sampled_from([1, 400, 1_500, 10**9, 10**9]),
    page=st.sampled_from([1, 3, 500]),
    records=st.sampled_from([1, 2, 500]),
    enough=st.sampled_from([0, 200, 10**6]),
    kept=st.sampled_from([0, 8_000, 10**6]),
    small=st.sampled_from([0, 1, 3, 100]),
    batch=st.sampled_from([1, 3, 2_000]),
    chunk=st.sampled_from([1, 400, 10**6]),
    cheap=st.sampled_from([0, 8]),
    piece=st.sampled_from([1, 3, 10**4]),
    cuts=st.sampled_from([0, 600, 10**6]),
)
def test_every_reader_has_every_event_once_or_an_announced_gap(
    first: tuple[Action, ...],
    then: list[Action],
    max_bytes: int,
    page: int,
    records: int,
    kept: int,
    enough: int,
    small: int,
    batch: int,
    chunk: int,
    cheap: int,
    piece: int,
    cuts: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oplogd.stream.hub.StreamConsumer", WatchedConsumer)
        patch.setattr("oplogd.stream.ring.topic_view.CHEAP", cheap)
        patch.setattr("oplogd.stream.ring.topic_view.PIECE", piece)
        patch.setattr("oplogd.stream.ring.cuts._CACHED_BYTES", cuts)
        patch.setattr("oplogd.stream.phases.catch_up.PAGE", page)
        patch.setattr("oplogd.stream.phases.record_pages.PAGE", records)
        patch.setattr("oplogd.stream.phases.record_pages.MAX_BYTES", kept)
        patch.setattr("oplogd.stream.phases.catch_up._ENOUGH", enough)
        patch.setattr("oplogd.stream.phases.record_pages.MAX_RECORDS", small)
        patch.setattr("oplogd.stream.topic_follower._BATCH", batch)
        patch.setattr("oplogd.stream.phases.phase.CHUNK_BYTES", chunk)
        asyncio.run(Play(max_bytes).run([*first, *then]))


class Play(Player[EventHistory, EventClient]):
    def __init__(self, max_bytes: int) -> None:
        super().__init__(max_bytes)
        self.transacting = Transacting(self.world)
        self.writers: list[Writer] = []

    def _history(self, topic: Topic) -> EventHistory:
        return EventHistory(self.world, topic)

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
            case Checkpoint(client) if client < len(self.clients):
                self.clients[client].take_checkpoint()
            case Resume(client) if client < len(self.clients):
                await self._resume(self.clients[client])
            case Poll():
                await self._poll(action)
            case Publish() | Write() | Begin() | End() | Tick() | Sweep() | Recreate():
                await self._happen(action)
            case _:
                pass

    def _later(self, event: Event) -> Callable[[], Awaitable[None]]:
        return lambda: self._happen(event)

    async def _happen(self, event: Event) -> None:
        world = self.world
        match event:
            case Publish(topic, ttls):
                batch = MessageBatch(self.histories[topic].topic.log, self._made(ttls))
                await self.topics.append([batch])
            case Begin(topic):
                only = None if topic is None else self.histories[topic].topic
                self.writers.append(await self.transacting.begin(only))
            case Write() if event.writer < len(self.writers):
                await self._write(event)
            case End(writer, commit) if writer < len(self.writers):
                gone = self.writers.pop(writer)
                await (gone.commit() if commit else gone.abort())
            case Tick(ms):
                world.clock.ms += ms
            case Sweep():
                await self.topics.sweep()
            case Recreate(topic):
                old = self.histories[topic].topic
                await self.topics.delete(old.name)
                world.clock.ms += 1
                self.histories[topic] = EventHistory(world, await world.create(old.name.topic))
            case _:
                pass
        for history in self.histories:
            history.note()

    def _made(self, ttls: list[int]) -> list[Message]:
        made = []
        for ttl in ttls:
            self.published += 1
            made.append(message(str(self.published), ttl or None))
        return made

    async def _write(self, write: Write) -> None:
        """Write records. A transaction begun with a topic takes only records of this topic."""
        writer = self.writers[write.writer]
        topic = writer.topic or self.histories[write.topic].topic
        made = self._made(write.ttls)
        first = writer.records
        lsns = range(first, first + len(made))
        with suppress(TopicNotFoundError):
            await writer.write_at(topic, lsns[::-1] if write.reverse else lsns, *made)

    async def _follow_to_the_head(self, history: EventHistory) -> None:
        """Let the ring have every entry, if there is one: nothing here is acknowledged."""
        await self.world.advance()
        feed = self.world.feeds.get(history.topic.log)
        while feed is not None and feed.ring.head.offset < history.generation.head.offset:
            await self.world.advance()

    async def _connect(self, connect: Connect) -> None:
        history = self.histories[connect.topic]
        client = EventClient(self.world, history, connect.isolation, connect.shard)
        await client.connect("0" if connect.kind == "zero" else self._id(history, connect))
        self.clients.append(client)

    def _id(self, history: EventHistory, connect: Connect) -> str:
        """Return an id that a reader of either isolation has seen, or one of an entry."""
        ids = history.ids
        if connect.kind == "event":
            ids = sorted({event.id for each in history.events.values() for event in each})
        if connect.kind == "none" or not ids:
            return ""
        return str(ids[int(connect.at * (len(ids) - 1))])

    async def _poll(self, poll: Poll) -> None:
        history, isolation = self.histories[poll.topic], poll.isolation
        self.topics.meddle.clear()
        await self._follow_to_the_head(history)
        events = sorted({event.id for each in history.events.values() for event in each})
        after = None
        if poll.at is not None and events:
            after = events[int(poll.at * (len(events) - 1))]
        found = self.world.feeds.peek(history.topic, after, 10**6, 10**9, isolation)
        if found is None:
            return
        place = after or MessageId(*history.front)
        if isolation is Isolation.READ_UNCOMMITTED:
            place = MessageId(*place[:2])
        assert not history.is_gap(place, isolation), "a gap is not announced"
        assert found.messages == [
            (event.id, event.data)
            for event in history.between(place, None, isolation)
            if not history.is_past_its_own_end(event) and event.offset > history.front_offset
        ]

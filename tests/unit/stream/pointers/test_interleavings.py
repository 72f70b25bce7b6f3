"""In any order of events, readers get what is published under pointers once, and never too early.

The rings lag behind, forget and restart; decisions and rollbacks come in the middle of look-ups.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.errors import MessageError, TopicNotFoundError
from oplogd.model.message_id import MessageId
from oplogd.model.pointer import Decision
from oplogd.model.shard import Shard
from oplogd.model.transaction import Isolation
from oplogd.store.topics import MessageBatch, Topic
from oplogd.store.transactions import RecordLimits
from tests.kits.models.properties import examples
from tests.kits.models.shards import shards
from tests.kits.stream.topic_worlds import TTL, message
from tests.kits.stream.worlds import WatchedConsumer
from tests.kits.topics.memory_pointers import MemoryPointers
from tests.unit.stream.player import TOPICS, Player
from tests.unit.stream.pointers.pointer_clients import PointerClient, PointerHistory

_TIMEOUT_MS = 10**12


class Publish(NamedTuple):
    topic: int
    size: int


class Direct(NamedTuple):
    topic: int
    who: int
    size: int


class Store(NamedTuple):
    """Store messages; ``publish``: publish what is stored, too."""

    topic: int
    who: int
    size: int
    publish: bool


class RollBack(NamedTuple):
    """``share``: of the entries of the pointer, the oldest first; None: everything."""

    topic: int
    who: int
    share: float | None


class Decide(NamedTuple):
    topic: int
    who: int
    decision: Decision


class Tick(NamedTuple):
    ms: int


class Sweep(NamedTuple):
    pass


class Recreate(NamedTuple):
    topic: int


Event = Publish | Direct | Store | RollBack | Decide | Tick | Sweep | Recreate


class Advance(NamedTuple):
    """Run one round of the follower."""


class RestartRing(NamedTuple):
    topic: int


class Connect(NamedTuple):
    """``at``: the place of its id among the ids that readers have seen, from 0 to 1."""

    topic: int
    isolation: Isolation
    kind: Literal["none", "zero", "event"]
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


Action = Event | Advance | RestartRing | Connect | Read | Checkpoint | Resume | Poll | Meddle

topics = st.integers(0, TOPICS - 1)
whos = st.integers(0, 1)
sizes = st.integers(1, 4)
isolations = st.sampled_from(Isolation)
decisions = st.sampled_from([Decision.COMMITTED, Decision.COMMITTED, *Decision])
decides = st.builds(Decide, topics, whos, decisions)
rollbacks = st.builds(RollBack, topics, whos, st.none() | st.floats(0, 1))
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Publish, topics, sizes),
    st.builds(Direct, topics, whos, sizes), st.builds(Direct, topics, whos, sizes),
    st.builds(Store, topics, whos, sizes, st.booleans()),
    st.builds(Store, topics, whos, sizes, st.just(True)),
    decides, decides, rollbacks,
    st.builds(Tick, st.sampled_from([1, 1, 500, TTL * 500, TTL * 1000 + 1])),
    st.just(Sweep()), st.builds(Recreate, topics),
)  # fmt: skip
kinds = st.sampled_from(["none", "zero", "event", "event"])
connects = st.builds(Connect, topics, isolations, kinds, st.floats(0, 1), shards)
clients = st.integers(0, 4)
reads = st.builds(Read, clients, st.integers(1, 4))
actions: st.SearchStrategy[Action] = st.one_of(
    events, events, events, st.just(Advance()), st.just(Advance()), st.just(Advance()),
    st.builds(RestartRing, topics), connects, reads, reads, reads,
    st.builds(Checkpoint, clients), st.builds(Resume, clients), st.builds(Meddle, events),
    st.builds(Meddle, decides | rollbacks),
    st.builds(Poll, topics, isolations, st.none() | st.floats(0, 1)),
)  # fmt: skip


@examples(2)
@given(
    first=st.tuples(connects, connects, connects),
    then=st.lists(actions, min_size=15, max_size=60),
    max_bytes=st.sampled_from([1, 400, 1_500, 10**9, 10**9]),
    page=st.sampled_from([1, 3, 500]),
    records=st.sampled_from([1, 2, 500]),
    small=st.sampled_from([0, 1, 3, 100]),
    batch=st.sampled_from([1, 3, 2_000]),
    chunk=st.sampled_from([1, 400, 10**6]),
    changed=st.sampled_from([0, 2, 10_000, 10_000]),
    cheap=st.sampled_from([0, 8]),
    piece=st.sampled_from([1, 3, 10**4]),
)
def test_every_reader_has_every_event_once_and_not_before_its_decision(
    first: tuple[Action, ...],
    then: list[Action],
    max_bytes: int,
    page: int,
    records: int,
    small: int,
    batch: int,
    chunk: int,
    changed: int,
    cheap: int,
    piece: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oplogd.stream.ring.topic_ring._MOST_CHANGED", changed)
        patch.setattr("oplogd.stream.hub.StreamConsumer", WatchedConsumer)
        patch.setattr("oplogd.stream.ring.topic_view.CHEAP", cheap)
        patch.setattr("oplogd.stream.ring.topic_view.PIECE", piece)
        patch.setattr("oplogd.stream.phases.catch_up.PAGE", page)
        patch.setattr("oplogd.stream.phases.record_pages.PAGE", records)
        patch.setattr("oplogd.stream.phases.record_pages.MAX_RECORDS", small)
        patch.setattr("oplogd.stream.topic_follower._BATCH", batch)
        patch.setattr("oplogd.stream.phases.phase.CHUNK_BYTES", chunk)
        asyncio.run(Play(max_bytes).run([*first, *then]))


class Play(Player[PointerHistory, PointerClient]):
    def __init__(self, max_bytes: int) -> None:
        super().__init__(max_bytes)
        self.pointers = MemoryPointers(self.topics)

    def _history(self, topic: Topic) -> PointerHistory:
        return PointerHistory(self.world, topic)

    async def _do(self, action: Action) -> None:
        match action:
            case Meddle(event):
                self.topics.meddle.append(self._later(event))
            case Advance():
                await self.world.follower.advance(0)
            case RestartRing(topic):
                self._restart_ring(topic)
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
            case Publish() | Direct() | Store() | RollBack() | Decide():
                await self._happen(action)
            case Tick() | Sweep() | Recreate():
                await self._happen(action)
            case _:
                pass

    async def _drain(self) -> None:
        await self.world.advance()
        for client in self.clients:
            client.is_current = True
        await super()._drain()

    def _later(self, event: Event) -> Callable[[], Awaitable[None]]:
        return lambda: self._happen(event)

    async def _happen(self, event: Event) -> None:
        world, pointers = self.world, self.pointers
        match event:
            case Publish(topic, size):
                log = self.histories[topic].topic.log
                made = [message(str(number)) for number in self._numbers(size)]
                await self.topics.append([MessageBatch(log, made)])
            case Direct(topic, who, size):
                history = self.histories[topic]
                made = [message(str(number)) for number in self._numbers(size)]
                with suppress(MessageError):  # messages are stored
                    await pointers.publish(
                        history.topic.log, history.pointer(who), made, _TIMEOUT_MS
                    )
            case Store(topic, who, size, publish):
                history = self.histories[topic]
                log, pointer = history.topic.log, history.pointer(who)
                made = [message(str(number)) for number in self._numbers(size)]
                await pointers.store(log, pointer, made, _TIMEOUT_MS, RecordLimits())
                if publish:
                    await pointers.publish_stored(log, pointer, _TIMEOUT_MS)
            case RollBack(topic, who, share):
                history = self.histories[topic]
                pointer = history.pointer(who)
                stamps = history.roll_back(pointer, share)
                await pointers.rollback(history.topic.log, pointer, stamps)
            case Decide(topic, who, decision):
                history = self.histories[topic]
                pointer = history.pointer(who)
                await pointers.decide([history.topic.log], pointer, decision)
                history.decide(who)
            case Tick(ms):
                world.clock.ms += ms
            case Sweep():
                for history in self.histories:
                    history.sweep()
                await self.topics.sweep()
            case Recreate(topic):
                old = self.histories[topic].topic
                await self.topics.delete(old.name)
                world.clock.ms += 1
                self.histories[topic] = PointerHistory(world, await world.create(old.name.topic))
        for history in self.histories:
            history.note()

    def _numbers(self, count: int) -> range:
        self.published += count
        return range(self.published - count, self.published)

    async def _connect(self, connect: Connect) -> None:
        history = self.histories[connect.topic]
        client = PointerClient(self.world, history, connect.isolation, connect.shard)
        last_id = "0" if connect.kind == "zero" else ""
        if connect.kind == "event" and history.events:
            last_id = str(history.events[int(connect.at * (len(history.events) - 1))].id)
        await client.connect(last_id)
        self.clients.append(client)

    async def _poll(self, poll: Poll) -> None:
        history = self.histories[poll.topic]
        self.topics.meddle.clear()
        feed = self.world.feeds.get(history.topic.log)
        await self.world.advance()
        while feed is not None and feed.ring.head.offset < history.generation.head.offset:
            await self.world.advance()
        after = None
        if poll.at is not None and history.events:
            after = history.events[int(poll.at * (len(history.events) - 1))].id
        with suppress(TopicNotFoundError):
            found = self.world.feeds.peek(history.topic, after, 10**6, 10**9, poll.isolation)
            if found is not None:
                history.check_found(found, after or MessageId(*history.front), poll.isolation)

"""Named consumers of one or more agents on a store in one process. A test decides every step."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from oplogd.ingest.appends import Appends
from oplogd.model.consumer import ConsumerSettings, ShardKey, ShardPosition
from oplogd.model.event_id import format_id
from oplogd.model.message import Message, of_payload
from oplogd.model.names import OPLOG, TopicName
from oplogd.model.operation import Operation
from oplogd.store.consumers import ConsumerRow
from oplogd.store.topics import MessageBatch, Placed, Topic
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.feeds import Feeds
from oplogd.stream.follower import advance
from oplogd.stream.hub import Hub
from oplogd.stream.passes import FOR_EVER
from oplogd.stream.ring.frames import Framer
from oplogd.stream.ring.ring import Ring
from oplogd.stream.ring.waker import Waker
from oplogd.stream.topic_follower import TopicFollower
from oplogd.topics.consumers.rules import ConsumerShown
from oplogd.topics.consumers.service import NamedConsumers
from oplogd.topics.known import KnownTopics
from oplogd.watch.health import Health
from tests.kits.sse.stream import Event
from tests.kits.stream.reading import awaited
from tests.kits.stream.topic_worlds import wake_all
from tests.kits.stream.worlds import World

NAME = "search"
SETTINGS = ConsumerSettings(OPLOG)
TOPIC = TopicName("ns", "t")
OF_TOPIC = ConsumerSettings(TOPIC)
KEY = ShardKey(NAME, 0)


class Desk(NamedTuple):
    """An agent's part in named consumers."""

    hub: Hub
    ring: Ring
    feeds: Feeds
    follower: TopicFollower
    appends: Appends
    consumers: NamedConsumers

    async def create(
        self, settings: ConsumerSettings = SETTINGS, start: str = "now", name: str = NAME
    ) -> ConsumerRow:
        row, is_new = await self.consumers.create(name, settings, start)
        assert is_new
        return row

    async def connect(
        self, shard: int = 0, term: int | None = None, *, address: str = "host:1", name: str = NAME
    ) -> StreamConsumer:
        row = await self.consumers.find(name)
        return await self.consumers.connect(row, shard, term, address=address, pass_=FOR_EVER)

    async def acknowledge(self, term: int, id_: str, shard: int = 0, name: str = NAME) -> None:
        await self.consumers.acknowledge(ShardKey(name, shard), term, id_)

    async def shard(self, number: int = 0, name: str = NAME) -> ShardPosition:
        return (await self.consumers.find(name)).shards[number]

    async def shown(self, name: str = NAME) -> ConsumerShown:
        return await self.consumers.show(await self.consumers.find(name))


class ConsumerWorld(World):
    """A world with topics and named consumers. ``desk``: of the first agent."""

    async def start(self) -> None:
        await super().start()
        self.desks: list[Desk] = []
        self.desk = self.add_desk()
        self.known = KnownTopics(self.store.topics)

    def add_desk(
        self, wrap: Callable[[NamedConsumers], None] = lambda _: None, *, max_clients: int = 100
    ) -> Desk:
        """Return one more agent on the same store."""
        clock = self.clock.clock
        feeds = Feeds(self.store.topics, wake_all, max_bytes=10**9, clock=clock)
        framer = Framer()
        ring = Ring(framer.route, self.ring.max_entries, 10**9, Waker().wake)
        ring.restart(self.ring.head)
        hub = Hub(
            self.store,
            ring,
            framer,
            heartbeat=1e9,
            max_connection_age=0,
            max_clients=max_clients,
            feeds=feeds,
            clock=clock,
        )
        appends = Appends(Health(), clock)
        consumers = NamedConsumers(
            self.store, hub, KnownTopics(self.store.topics), feeds, appends, clock
        )
        follower = TopicFollower(self.store.topics, feeds)
        desk = Desk(hub, ring, feeds, follower, appends, consumers)
        self.desks.append(desk)
        return desk

    async def stop(self) -> None:
        for desk in self.desks:
            for consumer in list(desk.hub.consumers):
                desk.hub.disconnect(consumer)
            await desk.follower.close()
        await super().stop()

    async def grow(self, operations: Sequence[Operation]) -> list[str]:
        """Append operations, and let all agents read them. Return their ids."""
        before = self.head.offset
        await self.append(operations)
        self.clock.ms += 1
        for desk in self.desks:
            while desk.ring.head != self.head:
                await advance(self.store, desk.ring, 0)
        return [format_id(self.mark(offset)) for offset in range(before + 1, self.head.offset + 1)]

    async def create_topic(self, name: TopicName = TOPIC) -> Topic:
        return await self.store.topics.create(name, None)

    async def publish(self, topic: Topic, *messages: Message | str) -> None:
        made = [of_payload(each.encode()) if isinstance(each, str) else each for each in messages]
        (placed,) = await self.store.topics.append([MessageBatch(topic.log, made)])
        assert isinstance(placed, Placed)
        self.clock.ms += 1
        for desk in self.desks:
            desk.feeds.acknowledged(topic.log, placed.last.offset)
        await self.advance_topics()

    async def advance_topics(self) -> None:
        for desk in self.desks:
            for _ in range(2):
                await desk.follower.advance(0)
                while desk.feeds.due:
                    await desk.follower.advance(0)

    async def in_between(self, method: str, work: Callable[[], Awaitable[object]]) -> None:
        """Do some work just before the next call of a method of the store's consumers."""
        rows = self.store.consumers
        real = getattr(rows, method)

        async def call(*arguments: object) -> object:
            setattr(rows, method, real)
            await work()
            return await real(*arguments)

        setattr(rows, method, call)


async def read(consumer: StreamConsumer, count: int) -> list[Event]:
    """Return the next blocks of a stream: at least so many, or all up to its end."""
    raw = b""
    while raw.count(b"\n\n") < count and (chunk := await awaited(consumer)):
        raw += chunk
    return [Event.parse(block + b"\n\n") for block in raw.split(b"\n\n")[:-1]]


def ids_of(events: Sequence[Event]) -> list[str]:
    return [event.id for event in events]

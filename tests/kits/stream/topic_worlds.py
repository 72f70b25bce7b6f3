"""Topics in memory, their feeds, and consumers. A test turns the clocks and decides every step."""

import asyncio
from collections.abc import Iterable
from typing import Any

from oplogd.model.event_id import Mark, Millis
from oplogd.model.message import Message, decode_content, of_payload
from oplogd.model.message_id import MessageId, end_id, parse_message_id
from oplogd.model.names import TopicName
from oplogd.store.topics import MessageBatch, Placed, Topic
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.feeds import Feeds
from oplogd.stream.hub import Hub
from oplogd.stream.phases.start import TopicPosition
from oplogd.stream.ring.frames import TOPIC_RESET, Framer
from oplogd.stream.ring.postings import Waiter
from oplogd.stream.ring.ring import Ring
from oplogd.stream.topic_follower import TopicFollower
from oplogd.watch.health import Health
from tests.kits.clock.virtual import VirtualClock
from tests.kits.stream.reading import awaited
from tests.kits.stream.worlds import DEADLINE, WatchedConsumer
from tests.kits.topics.memory import MemoryTopics

# Seconds.
TTL = 100


def wake_all(waiters: Iterable[Waiter]) -> None:
    for waiter in waiters:
        waiter.wake()


def message(text: str, ttl: int | None = None) -> Message:
    return of_payload(text.encode(), ttl)


class TopicWorld:
    def __init__(self, kind: type[MemoryTopics] = MemoryTopics) -> None:
        self.clock = VirtualClock()
        self.topics = kind(self.clock.now_ms, TTL)
        self.feeds = Feeds(
            self.topics,
            wake_all,
            max_bytes=10**9,
            clock=self.clock.clock,
        )
        self.follower = TopicFollower(self.topics, self.feeds)
        self.health = Health()
        framer = Framer()
        self.hub = Hub(
            # The oplog's store is not used.
            None,  # type: ignore[arg-type]
            Ring(framer.route, 10, 10**6, wake_all),
            framer,
            heartbeat=1e9,
            max_connection_age=0,
            max_clients=10**6,
            feeds=self.feeds,
            clock=self.clock.clock,
        )

    async def create(self, topic: str = "t", ttl: int | None = None) -> Topic:
        made = await self.topics.create(TopicName("ns", topic), ttl)
        self.clock.ms += 1
        return made

    async def publish(self, topic: Topic, *messages: Message | str) -> list[Mark]:
        """Append and acknowledge messages in one batch. Return their marks."""
        made = [message(each) if isinstance(each, str) else each for each in messages]
        (placed,) = await self.topics.append([MessageBatch(topic.log, made)])
        assert isinstance(placed, Placed)
        self.feeds.acknowledged(topic.log, placed.last.offset)
        entries = await self.topics.log(topic).read(placed.first.offset - 1, len(made))
        return [Mark(entry.offset, entry.ms, entry.sequence) for entry in entries]

    async def advance(self) -> None:
        """Run the follower until it has read all there is."""
        # The news may have been asked for before a log was read, and then leave it out: ask again.
        for _ in range(2):
            await self.follower.advance(0)
            while self.feeds.due:
                await self.follower.advance(0)

    async def connect(
        self, topic: Topic, position: TopicPosition | None = None, *, checkpoints: bool = False
    ) -> StreamConsumer:
        return await self.hub.connect_topic(
            topic, position, checkpoints=checkpoints, address="host:1"
        )

    async def connect_at(self, topic: Topic, last_id: str) -> StreamConsumer:
        return await self.connect(topic, position_of(last_id))

    async def close(self) -> None:
        for consumer in list(self.hub.consumers):
            self.hub.disconnect(consumer)
        await self.follower.close()


def position_of(last_id: str) -> TopicPosition:
    return parse_message_id(last_id) if len(last_id) == 40 else Millis(int(last_id))


def id_of(mark: Mark) -> str:
    return str(MessageId(mark.ms, mark.sequence))


def end_of(mark: Mark) -> str:
    """Return the position of a consumer that has everything up to a mark."""
    return str(end_id(mark.ms, mark.sequence))


async def read_all(consumer: StreamConsumer) -> bytes:
    """Return all bytes until the consumer sleeps or its stream is over."""
    chunks = []
    while chunk := await next_chunk(consumer):
        chunks.append(chunk)
    return b"".join(chunks)


async def next_chunk(consumer: StreamConsumer) -> bytes:
    """Return the next bytes, none when the consumer sleeps or its stream is over."""
    assert isinstance(consumer, WatchedConsumer)
    consumer.asleep.clear()
    reading = asyncio.ensure_future(awaited(consumer))
    sleeping = asyncio.ensure_future(consumer.asleep.wait())
    either: set[asyncio.Future[Any]] = {reading, sleeping}
    try:
        async with asyncio.timeout(DEADLINE):
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return reading.result() if reading.done() else b""
    finally:
        reading.cancel()
        sleeping.cancel()
        await asyncio.wait(either)


def told(stream: bytes) -> list[str]:
    """Return the payloads of a stream's messages, ``reset`` for resets; no other block is valid."""
    blocks = []
    *texts, rest = stream.decode().split("\n\n")
    assert rest == "", "a chunk ends within a block"
    for text in texts:
        if f"{text}\n\n".encode() == TOPIC_RESET:
            blocks.append("reset")
            continue
        id_, event, data = text.split("\n")
        assert id_.startswith("id: ")
        parse_message_id(id_[4:])
        assert event == "event: message"
        payload = decode_content(data.removeprefix("data: ")).payload
        assert payload is not None
        blocks.append(payload)
    return blocks


def last_id_of(stream: bytes) -> str:
    return stream.decode().rpartition("id: ")[2].partition("\n")[0]

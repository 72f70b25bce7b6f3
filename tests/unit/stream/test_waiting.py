"""A live consumer waits for the next entry as soon as its bytes bring it to the head."""

import asyncio
from typing import Any

import pytest

from oplogd.stream.connection import Outlet, StreamConnection
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.phases.phase import LivePhase, Step
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.frames import HEARTBEAT, TOPIC_RESET
from tests.kits.models.operations import numbered
from tests.kits.stream.topic_worlds import TTL, TopicWorld
from tests.kits.stream.worlds import World
from tests.unit.stream.connecting import connected, grow

ALL = Filter()


class Sink(Outlet):
    """Takes chunks until it is full."""

    is_full = False

    def __init__(self, *, most: int = 1_000) -> None:
        self.chunks: list[bytes] = []
        self.most = most
        self.is_complete = False

    def complete(self) -> None:
        self.is_complete = True

    def fail(self) -> None:
        raise AssertionError("the stream failed")

    def abort(self) -> None:
        raise AssertionError("the stream was cut off")

    def unsent(self) -> int:
        return 0

    def write(self, chunk: bytes) -> None:
        self.chunks.append(chunk)
        self.is_full = len(self.chunks) >= self.most


async def consumer_of(world: World, filter_: Filter = ALL, **how: Any) -> StreamConsumer:
    client = await connected(world, "", filter_, **how)
    assert client.consumer is not None
    return client.consumer


def is_waiting(consumer: StreamConsumer) -> bool:
    waits = consumer in consumer.view.waiting
    assert consumer.is_asleep >= waits
    return waits


async def woken() -> None:
    """Let the consumers of one turn go on."""
    await asyncio.sleep(0)


async def test_a_consumer_at_the_head_is_asked_once_per_wake(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = await consumer_of(world)
    sink = Sink()
    connection = StreamConnection(world.hub, consumer, sink)
    connection.go_on()
    assert (is_waiting(consumer), sink.chunks) == (True, [])
    asked = 0
    next_chunk = LivePhase.next_chunk

    def counting(phase: LivePhase) -> bytes | None:
        nonlocal asked
        asked += 1
        return next_chunk(phase)

    monkeypatch.setattr(LivePhase, "next_chunk", counting)
    for count in range(1, 4):
        await world.append(numbered(2))
        await world.catch_up()
        await woken()
        assert (asked, len(sink.chunks), is_waiting(consumer)) == (count, count, True)
    assert b"".join(sink.chunks).count(b"\n\n") == consumer.sent == 6


async def test_a_consumer_short_of_the_head_goes_on_without_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oplogd.stream.phases.phase.CHUNK_BYTES", 1)
    consumer = await consumer_of(world)
    assert consumer.take() is None
    await world.append(numbered(3))
    await world.catch_up()
    for left in (2, 1, 0):
        assert consumer.take()
        assert is_waiting(consumer) == (not left)
    assert consumer.sent == 3


async def test_a_full_connection_gets_the_rest_when_there_is_room(world: World) -> None:
    consumer = await consumer_of(world)
    sink = Sink(most=1)
    connection = StreamConnection(world.hub, consumer, sink)
    connection.go_on()
    for _ in range(3):
        await grow(world, "a")
        await woken()
    assert len(sink.chunks) == 1  # it was full after the first
    sink.is_full, sink.most = False, 1_000
    connection.go_on()
    assert (len(sink.chunks), consumer.sent, is_waiting(consumer)) == (2, 3, True)


async def test_a_filtered_consumer_gets_its_checkpoint_before_it_waits(world: World) -> None:
    consumer = await consumer_of(world, Filter(frozenset({"a"})), checkpoints=True)
    assert consumer.take() == f"id: {world.epoch.ms}\n\n".encode()
    assert not is_waiting(consumer)
    await grow(world, "a")
    entry = consumer.take()
    assert entry
    assert b"event: insert" in entry
    assert not is_waiting(consumer)
    checkpoint = consumer.take()
    assert checkpoint
    assert checkpoint == entry[: entry.index(b"\n")] + b"\n\n"
    assert is_waiting(consumer)


@pytest.mark.parametrize("owed", [{"reset": TOPIC_RESET}, {"greeting": True}])
async def test_a_heartbeat_before_a_block_that_is_due_does_not_put_it_off(
    world: World, owed: dict[str, Any]
) -> None:
    consumer = await consumer_of(world)
    assert consumer.take() is None
    before = consumer.phase
    assert isinstance(before, LivePhase)

    async def asked() -> Step:  # when the follower has lost its place, for example
        return Step(
            b"", LivePhase(before.subscription, before.mark, before.epoch, first_offset=1, **owed)
        )

    consumer._asking = asyncio.create_task(asked())
    await asyncio.sleep(0)
    consumer.heartbeat = 0
    assert consumer.take() == HEARTBEAT
    assert not is_waiting(consumer)
    consumer.heartbeat = 1e9
    assert consumer.take() == owed.get("reset", f"id: {world.epoch.ms}\n\n".encode())
    assert is_waiting(consumer)


async def test_an_end_wakes_a_consumer_that_waits_since_its_bytes(world: World) -> None:
    consumer = await consumer_of(world)
    sink = Sink()
    connection = StreamConnection(world.hub, consumer, sink)
    connection.go_on()
    await grow(world, "a")
    await woken()
    consumer.end()
    assert not sink.is_complete  # within the call
    await woken()
    assert (sink.is_complete, len(sink.chunks), len(world.hub.consumers)) == (True, 1, 0)


async def test_a_ring_that_begins_anew_with_the_bytes_keeps_the_consumer_awake() -> None:
    world = TopicWorld()
    topic = await world.create(ttl=TTL)
    consumer = await world.connect(topic, checkpoints=True)
    try:
        await world.publish(topic, "a")
        await world.advance()
        phase = consumer.phase
        assert isinstance(phase, LivePhase)
        phase.mark = phase.ring.head
        world.clock.ms += (TTL + 1) * 1_000
        phase.ring.expire()
        world.clock.ms -= 1_000  # what has expired may be read again
        epoch = phase.ring.epoch
        assert (consumer.take() or b"").startswith(b"id: ")  # the checkpoint of the beginning
        assert phase.ring.epoch == epoch + 1
        assert not is_waiting(consumer)
        assert consumer.take() is None  # it asks the store where it stands
        await asyncio.sleep(0)
        assert isinstance(consumer.phase, LivePhase)
        assert consumer.phase.epoch == phase.ring.epoch
    finally:
        await world.close()

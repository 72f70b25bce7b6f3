"""A stream in its connection."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from oplogd.model.event_id import Mark, Millis
from oplogd.stream.connection import StreamConnection
from oplogd.stream.response import TAKE_OVER, EventStream, TakeOver
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.frames import HEARTBEAT
from tests.kits.models.operations import operation
from tests.kits.stream.worlds import World


class KeptOutlet:
    """Keeps what is written. ``is_full``: there is no room."""

    def __init__(self) -> None:
        self.is_full = False
        self.written: list[bytes] = []
        self.ends: list[str] = []

    def write(self, chunk: bytes) -> None:
        self.written.append(chunk)

    def complete(self) -> None:
        self.ends.append("complete")

    def fail(self) -> None:
        self.ends.append("failed")

    def abort(self) -> None:
        self.ends.append("aborted")

    def unsent(self) -> int:
        return 0


async def send(message: Any) -> None:
    """Take the head of an answer."""


async def receive() -> Any:
    raise AssertionError("a stream reads nothing")


async def begin(world: World, take_over: TakeOver, position: Millis | None = None) -> Any:
    """Answer with the stream of a new consumer, and return the consumer."""
    consumer = await world.hub.connect(position, Filter(), checkpoints=False, address="test")
    stream = EventStream(world.hub, consumer, {})
    scope = {"type": "http", "extensions": {TAKE_OVER: take_over}}
    await stream(scope, receive, send)
    return consumer


async def settle() -> None:
    """Let all callbacks run."""
    for _ in range(5):
        await asyncio.sleep(0)


def into(outlet: Any) -> TakeOver:
    return lambda connect: connect(outlet).go_on()


@pytest.mark.parametrize("position", [None, Millis(0)], ids=["sleeps", "asks the store"])
async def test_a_stream_leaves_nothing_to_the_garbage_collector_when_its_client_goes(
    world: World, monkeypatch: pytest.MonkeyPatch, position: Millis | None
) -> None:
    asked = asyncio.Event()
    connections: list[StreamConnection] = []
    outlets: list[Any] = [KeptOutlet()]

    def take_over(connect: Any) -> None:
        connections.append(connect(outlets[0]))
        connections[0].go_on()

    async def checkpoint() -> Mark:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(world.store, "checkpoint", checkpoint)
    consumer = await begin(world, take_over, position)
    watched: list[weakref.ref[Any]] = [weakref.ref(consumer), weakref.ref(outlets.pop())]
    if position is not None:
        async with asyncio.timeout(60):
            await asked.wait()
    del consumer
    gc.disable()
    try:
        connections.pop().close()
        await settle()  # until the step that asks the store is cancelled
        assert [object_() for object_ in watched] == [None, None]
    finally:
        gc.enable()
    assert not world.hub.consumers


async def test_a_waiting_stream_goes_on_with_each_entry_while_there_is_room(world: World) -> None:
    outlet = KeptOutlet()
    consumer = await begin(world, into(outlet))
    events = []
    for is_full in (False, True, False):
        outlet.is_full = is_full
        await world.append([operation()])
        await world.catch_up()
        if not is_full:
            consumer.connection.go_on()
        await settle()
        events.append(b"".join(outlet.written).count(b"\nevent: "))
    assert events == [1, 1, 3]
    consumer.end()
    await settle()
    assert outlet.ends == ["complete"]
    assert not world.hub.consumers
    assert not consumer.view.waiting


async def test_a_waiting_stream_sends_heartbeats(world: World) -> None:
    outlet = KeptOutlet()
    consumer = await begin(world, into(outlet))
    consumer.last_write = float("-inf")
    world.hub.look(0)
    await settle()
    assert outlet.written == [HEARTBEAT]
    world.hub.disconnect(consumer)


async def test_a_consumer_whose_head_is_not_sent_is_disconnected(world: World) -> None:
    async def fail(message: Any) -> None:
        raise asyncio.CancelledError

    consumer = await world.hub.connect(None, Filter(), checkpoints=False, address="test")
    with pytest.raises(asyncio.CancelledError):
        await EventStream(world.hub, consumer, {})({"type": "http"}, receive, fail)
    assert not world.hub.consumers

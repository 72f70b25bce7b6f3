"""All consumers at once: their ends, their heartbeats, their reads of the store."""

import asyncio
import time
from typing import Any

import pytest

from oplogd.model.event_id import EventId, Millis, format_id
from oplogd.shared.places import Places
from oplogd.stream.hub import (
    END_SPREAD_SECONDS,
    Hub,
    TooManyClientsError,
    TooManyFromAddressError,
)
from oplogd.stream.phases.phase import IN_FLIGHT
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.frames import HEARTBEAT, RESET, Framer
from oplogd.stream.ring.keys import Key
from oplogd.workers.workers import Worker, Workers
from tests.kits.clock.virtual import START_MS, VirtualClock
from tests.kits.models.operations import numbered
from tests.kits.stream.clients import Client
from tests.kits.stream.reading import awaited
from tests.kits.stream.worlds import World


async def connected(world: World, number: int, *, checkpoints: bool = False) -> list[Client]:
    made = []
    for _ in range(number):
        client = Client(world, Filter(), checkpoints)
        await client.begin("")
        world.clients.append(client)
        made.append(client)
    return made


class SleptClock(VirtualClock):
    """Time passes in ``sleep`` only. As in uvloop's timers, a pause is rounded to milliseconds."""

    async def sleep(self, seconds: float) -> None:
        self.move(round(seconds, 3) + 0.00001)


class FakeConsumer:
    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.ended_at = 0.0

    def end(self) -> None:
        assert not self.ended_at
        self.ended_at = self.clock.seconds


@pytest.mark.parametrize(
    ("streams", "seconds"), [(1, 0.003), (100, 0.3), (1000, 3), (8000, 3), (50_000, 3)]
)
async def test_the_ends_of_any_number_of_streams_are_spread_evenly(
    world: World, streams: int, seconds: float
) -> None:
    clock = SleptClock()
    consumers: Any = [FakeConsumer(clock) for _ in range(streams)]
    hub = Hub(
        world.store,
        world.ring,
        Framer(),
        heartbeat=1e9,
        max_connection_age=0,
        max_clients=1,
        clock=clock.clock,
    )
    hub.consumers = set(consumers)
    await hub.end_all()
    ends = sorted(consumer.ended_at - 1000 for consumer in consumers)
    assert seconds <= END_SPREAD_SECONDS
    assert 0 < ends[0] <= ends[-1] <= seconds + 0.02
    for tenth in range(1, 10):
        ended = sum(end <= seconds * tenth / 10 for end in ends)
        assert ended == pytest.approx(streams * tenth / 10, abs=1 + streams * 0.05)


async def test_a_stream_opened_while_streams_end_ends_too(world: World) -> None:
    late = asyncio.create_task(world.hub.connect(None, Filter(), checkpoints=False, address="test"))

    async def end_all() -> None:
        await world.hub.end_all()

    world.store.meddle = [end_all]
    consumer = await late
    assert await awaited(consumer) == b""
    world.hub.disconnect(consumer)


async def test_heartbeats_that_are_due_together_are_woken_a_few_at_a_time(world: World) -> None:
    clients = await connected(world, 300)
    for client in clients:
        assert not await client.read()
        assert client.consumer is not None
        client.consumer.heartbeat = 0
    world.hub.look(time.monotonic())
    await asyncio.sleep(0)
    asleep = sum(client.consumer is not None and client.consumer.is_asleep for client in clients)
    assert asleep == 300 - 64
    assert [await client.woken() for client in clients] == [HEARTBEAT] * 300


@pytest.mark.parametrize("operations", [0, 1])
async def test_a_heartbeats_checkpoint_asks_the_store_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, operations: int
) -> None:
    await world.append(numbered(operations))
    await world.restart_ring()  # as at a start: the log holds operations, the ring does not
    [client] = await connected(world, 1, checkpoints=True)
    consumer = client.consumer
    assert consumer is not None
    position = format_id(world.mark(1)) if operations else str(START_MS)

    async def locate(offset: int = 0) -> None:
        raise AssertionError("asks the store")

    monkeypatch.setattr(world.store, "locate", locate)
    assert await awaited(consumer) == f"id: {position}\n\n".encode()
    consumer.heartbeat = 0
    assert await awaited(consumer) == HEARTBEAT + f"id: {position}\n\n".encode()
    monkeypatch.undo()


async def test_a_consumer_leaves_without_a_search_among_the_consumers_of_other_filters(
    world: World,
) -> None:
    """Each consumer leaves its own postings; none is searched for in a list."""
    type_ = "video"
    consumers = [
        await world.hub.connect(
            None, Filter(frozenset({type_, f"own{n}"})), checkpoints=False, address="test"
        )
        for n in range(100)
    ]
    [shared] = [posting for posting in world.ring.index if posting.key == Key(type_, (), "", "")]
    assert isinstance(shared.views, dict)
    assert len(shared.views) == 100
    for left, consumer in enumerate(reversed(consumers), 1):
        world.hub.disconnect(consumer)
        assert len(shared.views) == 100 - left
    assert not world.ring.views


async def test_a_connect_that_is_cancelled_or_fails_leaves_nothing_behind(world: World) -> None:
    world.hub.max_clients = 1
    for failure in (asyncio.CancelledError, OSError):

        async def fail(failure: type[BaseException] = failure) -> None:
            raise failure

        task = asyncio.create_task(
            world.hub.connect(None, Filter(frozenset({"a"})), checkpoints=False, address="test")
        )
        world.store.meddle = [fail]
        with pytest.raises(failure):
            await task
    assert not world.ring.views
    assert not world.hub.consumers
    await world.hub.connect(None, Filter(), checkpoints=False, address="test")


async def test_pages_are_read_a_few_at_a_time_for_all_consumers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 consumers replicate, and 20 are behind the ring."""
    await world.append(numbered(50))
    await world.restart_ring()
    pending = {"states": 0, "read": 0}
    most = dict(pending)

    def counted(name: str) -> Any:
        call = getattr(world.store, name)

        async def counting(*arguments: Any, **keywords: Any) -> Any:
            pending[name] += 1
            most[name] = max(most[name], pending[name])
            try:
                return await call(*arguments, **keywords)
            finally:
                pending[name] -= 1

        return counting

    for name in pending:
        monkeypatch.setattr(world.store, name, counted(name))
    first = world.history[0]
    positions: list[EventId | Millis] = [Millis(0)] * 20 + [
        EventId(first.ms // 1000, first.ms % 1000, 1)
    ] * 20
    consumers = [
        await world.hub.connect(position, Filter(), checkpoints=False, address="test:0")
        for position in positions
    ]
    try:
        resets = await asyncio.gather(*(awaited(consumer) for consumer in consumers[:20]))
        chunks = await asyncio.gather(*(awaited(consumer) for consumer in consumers))
    finally:
        for consumer in consumers:
            world.hub.disconnect(consumer)
    assert resets == [RESET] * 20
    assert [chunk.count(b"event: insert\n") for chunk in chunks] == [50] * 20 + [49] * 20
    assert most == {"states": IN_FLIGHT, "read": IN_FLIGHT}


@pytest.mark.parametrize("shared", [False, True])
async def test_the_hub_takes_its_places_from_those_of_the_agent(
    world: World, *, shared: bool
) -> None:
    places: Places | None = Worker(Workers(2, max_clients=3), 1).places if shared else None
    hub = Hub(
        world.store,
        world.ring,
        Framer(),
        heartbeat=20,
        max_connection_age=0,
        max_clients=3,
        max_clients_per_address=2,
        places=places,
    )

    async def connect(port: int, host: str = "[::1]") -> object:
        return await hub.connect(None, Filter(), checkpoints=False, address=f"{host}:{port}")

    first, _ = [await connect(port) for port in (1, 2)]
    with pytest.raises(TooManyFromAddressError):
        await connect(3)
    await connect(4, "10.0.0.1")
    with pytest.raises(TooManyClientsError):
        await connect(5, "10.0.0.2")
    for _ in range(2):
        hub.disconnect(first)  # type: ignore[arg-type]
    await connect(6)
    assert (hub.refused["max_clients"], hub.refused["max_clients_per_address"]) == (1, 1)

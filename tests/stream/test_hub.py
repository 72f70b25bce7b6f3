"""All consumers at once: their ends are spread, they are woken in turns, and their heartbeats leave the store alone."""

import asyncio
import gc
import time
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from oplogd.event_id import EventId, Mark, Millis, format_id
from oplogd.stream.alarm import Alarm
from oplogd.stream.consumer import IN_FLIGHT
from oplogd.stream.filters import Filter
from oplogd.stream.follower import advance
from oplogd.stream.frames import HEARTBEAT, RESET, Framer
from oplogd.stream.hub import END_GRACE_SECONDS, END_SPREAD_SECONDS, EventStream, Hub
from oplogd.stream.outlet import Outlet
from oplogd.stream.ring import Ring
from tests.operations import entry, numbered
from tests.stream.worlds import START_MS, Client, Sizes, World

ROOMY = Sizes(cap=10**9, ring_entries=1000, ring_bytes=10**9, page=500, chunk=10**6)


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    world = World(tmp_path, ROOMY, monkeypatch)
    await world.start()
    yield world
    await world.stop()


async def connected(world: World, number: int, *, checkpoints: bool = False) -> list[Client]:
    made = []
    for _ in range(number):
        client = Client(world, Filter(), checkpoints)
        await client.begin("")
        world.clients.append(client)
        made.append(client)
    return made


class FakeLoop:
    """Time passes in ``sleep`` only, and as in uvloop's timers in whole milliseconds: a shorter pause is none."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        patch.setattr("oplogd.stream.hub.time.monotonic", lambda: self.now)
        patch.setattr("oplogd.stream.hub.asyncio.sleep", self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.now += round(seconds, 3) + 0.00001


class FakeConsumer:
    def __init__(self, loop: FakeLoop) -> None:
        self.loop = loop
        self.ended_at = 0.0

    def end(self) -> None:
        assert not self.ended_at
        self.ended_at = self.loop.now


@pytest.mark.parametrize(
    ("streams", "seconds"), [(1, 0.003), (100, 0.3), (1000, 3), (8000, 3), (50_000, 3)]
)
async def test_streams_end_spread_evenly_however_many_they_are(
    world: World, monkeypatch: pytest.MonkeyPatch, streams: int, seconds: float
) -> None:
    with monkeypatch.context() as patch:
        loop = FakeLoop(patch)
        consumers: Any = [FakeConsumer(loop) for _ in range(streams)]
        world.hub.consumers = set(consumers)
        await world.hub.end_all()
    world.hub.consumers = set()
    ends = sorted(consumer.ended_at - 1000 for consumer in consumers)
    assert seconds <= END_SPREAD_SECONDS
    assert 0 < ends[0] <= ends[-1] <= seconds + 0.02
    for tenth in range(1, 10):
        ended = sum(end <= seconds * tenth / 10 for end in ends)
        assert ended == pytest.approx(streams * tenth / 10, abs=1 + streams * 0.05)


async def test_a_stream_that_is_opened_while_the_streams_end_is_ended_too(world: World) -> None:
    late = asyncio.create_task(world.hub.connect(None, Filter(), checkpoints=False, address="test"))

    async def end_all() -> None:
        await world.hub.end_all()

    world.store.meddle = [end_all]
    consumer = await late
    assert await consumer.next_chunk() == b""
    world.hub.disconnect(consumer)


async def test_heartbeats_that_are_due_together_are_woken_a_few_at_a_time(world: World) -> None:
    clients = await connected(world, 300)
    for client in clients:
        assert not await client.read()
        assert client.consumer is not None
        client.consumer.heartbeat = 0
    world.hub.look(time.monotonic())
    woken = [
        client.consumer._waiter.done()
        for client in clients
        if client.consumer and client.consumer._waiter
    ]
    assert len(woken) == 300
    assert 0 < sum(woken) <= 64
    chunks = [await client._task for client in clients if client._task]
    assert chunks == [HEARTBEAT] * 300
    for client in clients:
        client._task = None


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
    assert await consumer.next_chunk() == f"id: {position}\n\n".encode()
    consumer.heartbeat = 0
    assert await consumer.next_chunk() == HEARTBEAT + f"id: {position}\n\n".encode()
    monkeypatch.undo()


class OneBatch:
    """A store of which ``follow`` gives one long batch."""

    def __init__(self, operations: int) -> None:
        self.entries = [
            entry(offset, START_MS, op) for offset, op in enumerate(numbered(operations), 1)
        ]

    async def follow(self, after: int, limit: int, seconds: float, at_ms: int | None = None) -> Any:
        return self.entries[after : after + limit]


@pytest.mark.parametrize(("piece_bytes", "pieces"), [(10**9, 16), (1, 2000)])
async def test_a_long_batch_is_appended_in_pieces_between_which_other_work_is_done(
    monkeypatch: pytest.MonkeyPatch, piece_bytes: int, pieces: int
) -> None:
    monkeypatch.setattr("oplogd.stream.pace._WORK_SECONDS", 0.0)
    monkeypatch.setattr("oplogd.stream.follower._PIECE_BYTES", piece_bytes)
    ring = Ring(Framer(), 10_000, 10**9, Alarm().wake)
    ring.restart(Mark(0, START_MS))
    store: Any = OneBatch(2000)
    feeding = asyncio.create_task(advance(store, ring, 0))
    heads = []
    while not feeding.done():
        heads.append(ring.head.offset)
        await asyncio.sleep(0)
    await feeding
    assert ring.head.offset == 2000
    assert len(set(heads)) >= pieces


async def test_consumers_of_other_filters_leave_without_a_look_at_each_other(world: World) -> None:
    """None of the thousand is looked for in a list of the others: each leaves its own postings."""
    type_ = "video"
    consumers = [
        await world.hub.connect(
            None, Filter(frozenset({type_, f"own{n}"})), checkpoints=False, address="test"
        )
        for n in range(100)
    ]
    [shared] = [posting for posting in world.ring._index if posting.key == (type_, "")]
    assert isinstance(shared.views, dict)
    assert len(shared.views) == 100
    for left, consumer in enumerate(reversed(consumers), 1):
        world.hub.disconnect(consumer)
        assert len(shared.views) == 100 - left
    assert not world.ring._views


async def test_a_connect_that_is_cancelled_or_fails_leaves_nothing_behind(world: World) -> None:
    for failure in (asyncio.CancelledError, OSError):

        async def fail(failure: type[BaseException] = failure) -> None:
            raise failure

        task = asyncio.create_task(
            world.hub.connect(None, Filter(frozenset({"a"})), checkpoints=False, address="test")
        )
        world.store.meddle = [fail]
        with pytest.raises(failure):
            await task
    assert not world.ring._views
    assert not world.hub.consumers
    assert world.hub._reserved == 0


@pytest.mark.parametrize("position", [None, Millis(0)], ids=["that sleeps", "that asks the store"])
async def test_a_stream_whose_client_goes_leaves_nothing_to_the_garbage_collector(
    world: World, monkeypatch: pytest.MonkeyPatch, position: Millis | None
) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def receive() -> dict[str, str]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        pass

    async def checkpoint() -> Mark:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(world.store, "checkpoint", checkpoint)
    consumer = await world.hub.connect(position, Filter(), checkpoints=True, address="test")
    stream = EventStream(world.hub, consumer, {})
    watched: list[weakref.ref[Any]] = [weakref.ref(consumer), weakref.ref(stream)]
    running = asyncio.create_task(stream({"type": "http"}, receive, send))
    while not (asked.is_set() or consumer.view.waiting):
        await asyncio.sleep(0)
    del consumer, stream
    gc.disable()
    try:
        gone.set()
        await running
        del running
        for _ in range(3):  # until what was asked is cancelled
            await asyncio.sleep(0)
        assert [object_() for object_ in watched] == [None, None]
    finally:
        gc.enable()
    assert not world.hub.consumers


class Connection:
    def __init__(self) -> None:
        self.unsent = 100
        self.aborts: list[str] = []

    def abort(self) -> None:
        self.aborts.append("aborted")


async def stalling(
    world: World, *, stall_timeout: float, ends_at: float
) -> tuple[Hub, Connection, Any]:
    hub = world.hub
    hub._stall_timeout = stall_timeout
    consumer = await hub.connect(None, Filter(), checkpoints=False, address="test")
    connection = Connection()
    consumer.outlet = Outlet(connection.abort, lambda: connection.unsent)
    consumer.ends_at = ends_at
    return hub, connection, consumer


async def test_only_a_write_that_waits_without_a_byte_taken_is_a_stall(world: World) -> None:
    hub, connection, consumer = await stalling(world, stall_timeout=60, ends_at=float("inf"))
    hub.look(1000)
    hub.look(2000)  # nothing is being written: silence is no stall
    consumer.outlet.writing = True
    hub.look(2001)
    hub.look(2060)
    connection.unsent -= 1  # one byte was taken
    hub.look(2061)
    hub.look(2120)
    consumer.last_write += 1  # that write is through, and the next one waits
    hub.look(2121)
    hub.look(2180)
    assert not connection.aborts
    hub.look(2181)
    hub.look(2182)
    assert connection.aborts == ["aborted"]
    hub.disconnect(consumer)


async def test_a_stall_is_cut_off_when_its_end_has_been_due_for_the_grace(world: World) -> None:
    hub, connection, consumer = await stalling(world, stall_timeout=float("inf"), ends_at=1000)
    consumer.outlet.writing = True
    hub.look(990)
    hub.look(1000)
    assert consumer.ending
    hub.look(1000 + END_GRACE_SECONDS - 0.1)
    assert not connection.aborts
    hub.look(1000 + END_GRACE_SECONDS)
    assert connection.aborts == ["aborted"]
    hub.disconnect(consumer)


async def test_an_overdue_stream_whose_consumer_still_takes_bytes_is_let_finish(
    world: World,
) -> None:
    hub, connection, consumer = await stalling(world, stall_timeout=float("inf"), ends_at=1000)
    consumer.outlet.writing = True
    for second in range(1000, 1050):
        connection.unsent -= 1
        hub.look(second)
    assert not connection.aborts
    hub.disconnect(consumer)


async def test_pages_are_read_a_few_at_a_time_for_all_consumers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of states for 20 consumers that replicate, and pages of entries for 20 that are behind the ring."""
    await world.append(numbered(50))
    await world.restart_ring()
    pending = {"states": 0, "read": 0}
    most = dict(pending)

    def counted(name: str) -> Any:
        call = getattr(world.store, name)

        async def counting(*arguments: Any, **named: Any) -> Any:
            pending[name] += 1
            most[name] = max(most[name], pending[name])
            try:
                return await call(*arguments, **named)
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
        resets = await asyncio.gather(*(consumer.next_chunk() for consumer in consumers[:20]))
        chunks = await asyncio.gather(*(consumer.next_chunk() for consumer in consumers))
    finally:
        for consumer in consumers:
            world.hub.disconnect(consumer)
    assert resets == [RESET] * 20
    assert [chunk.count(b"event: insert\n") for chunk in chunks] == [50] * 20 + [49] * 20
    assert most == {"states": IN_FLIGHT, "read": IN_FLIGHT}

"""The gate of intake, on a disk that the test fills and empties."""

import asyncio
import logging
from typing import cast

import pytest

from oplogd.errors import DiskFullError, StoreUnavailableError
from oplogd.ingest.counters import IngestCounters
from oplogd.ingest.gate import LOOK_SECONDS, SWEEP_SECONDS, Gate
from oplogd.ingest.ignored import IgnoredMembers
from oplogd.ingest.queue import IngestQueue
from oplogd.ingest.udp import UdpIngest
from oplogd.ingest.writer import Writer
from oplogd.store import Store
from oplogd.store.space import MIB, SpaceFigures, limits_of
from oplogd.topics.transactions.room import RecordRoom
from oplogd.watch.health import Health
from tests.kits.clock.virtual import VirtualClock
from tests.kits.models.operations import numbered
from tests.kits.processes.logged import DEADLINE
from tests.unit.ingest.writing import HUGE, FailingStore

GIB = 1 << 30
LIMITS = limits_of(GIB, None)
FREE = 500 * MIB


class FakeSpace:
    """A disk of 1 GiB."""

    name = "store oplog.db"

    def __init__(self) -> None:
        self.free = FREE
        self.in_file = 0
        self.reserve = LIMITS.reserve
        self.refused = False

    async def look(self) -> SpaceFigures:
        return SpaceFigures(self.free, self.in_file, self.reserve, self.refused, LIMITS)


class Bench:
    def __init__(self) -> None:
        self.space = FakeSpace()
        self.health = Health()
        self.clock = VirtualClock()
        self.sweeps = 0
        self.gate = Gate(self.space, self.health, self._sweep, self.clock.clock)

    async def look(self, free: int, in_file: int = 0) -> bool:
        """Return whether the gate is open with this space."""
        self.space.free, self.space.in_file = free, in_file
        await self.gate.look()
        return self.gate.is_open

    def _sweep(self) -> None:
        self.sweeps += 1


@pytest.mark.parametrize(
    ("total", "reserve", "expected"),
    [
        (24 * MIB, None, (3 * MIB, 3 * MIB // 4, 3 * MIB // 2)),
        (GIB, None, (128 * MIB, 32 * MIB, 64 * MIB)),
        (1 << 50, None, (128 * MIB, 32 * MIB, 64 * MIB)),
        (24 * MIB, 0, (3 * MIB, 3 * MIB // 4, 0)),
        (24 * MIB, MIB, (3 * MIB, 3 * MIB // 4, MIB)),
        (24 * MIB, GIB, (3 * MIB, 3 * MIB // 4, 6 * MIB)),
        (0, None, (0, 0, 0)),
    ],
)
def test_limits_follow_the_size_of_the_disk(
    total: int, reserve: int | None, expected: tuple[int, int, int]
) -> None:
    assert limits_of(total, reserve) == expected


async def test_intake_stops_below_the_room_that_is_needed_and_goes_on_a_little_above_it() -> None:
    bench = Bench()
    needed = LIMITS.needed
    assert await bench.look(needed)
    assert not await bench.look(needed - 1)
    assert not await bench.look(needed + needed // 8 - 1)
    assert await bench.look(needed + needed // 8)


async def test_after_the_reserve_was_used_intake_goes_on_when_it_fits_again() -> None:
    bench = Bench()
    wanted = LIMITS.needed + LIMITS.reserve
    assert not await bench.look(0)
    bench.space.reserve = 0
    assert not await bench.look(wanted - 1)
    assert await bench.look(wanted)
    assert await bench.look(LIMITS.needed)  # the missing reserve does not stop intake again


async def test_free_pages_of_the_file_count_except_for_the_room_of_the_log() -> None:
    bench = Bench()
    assert not await bench.look(LIMITS.log - 1, in_file=GIB)
    assert await bench.look(LIMITS.log, in_file=GIB)
    assert not await bench.look(LIMITS.log, in_file=LIMITS.needed - LIMITS.log - 1)


async def test_a_quarter_of_the_room_is_admitted_between_two_looks() -> None:
    bench = Bench()
    await bench.look(LIMITS.needed)
    most = LIMITS.needed // 2 // 4
    bench.gate.admit(0, most - 256)
    with pytest.raises(DiskFullError, match="too little free space for 257 bytes more"):
        bench.gate.admit(1, 1)
    bench.gate.admit(1, 0)  # an operation counts 256 bytes beside its own
    with pytest.raises(DiskFullError):
        bench.gate.admit(1, 0)
    assert bench.gate.is_open
    await bench.gate.look()
    bench.gate.admit(1, 0)


async def test_a_refusal_of_the_system_closes_the_gate_before_the_next_look() -> None:
    bench = Bench()
    assert await bench.look(FREE)
    bench.space.refused = True
    with pytest.raises(DiskFullError, match="look for a quota, or for too many files"):
        bench.gate.admit(1, 1)
    assert bench.health.trouble is None
    assert not await bench.look(FREE)
    assert "its disk is full" in (bench.health.trouble or "")
    bench.space.refused = False
    assert await bench.look(FREE)
    assert bench.health.trouble is None


async def test_an_episode_has_a_line_for_its_begin_and_one_for_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench()
    for free in (FREE, 0, MIB, 2 * MIB):
        await bench.look(free)
    lacking = LIMITS.needed + LIMITS.needed // 8
    assert f"{lacking - 2 * MIB:,} bytes more must become free" in (bench.health.trouble or "")
    await bench.look(FREE)
    first, last = caplog.messages
    assert first.startswith(f"disk: store oplog.db: its disk is full, {lacking:,} bytes more")
    assert last == "disk: the disk has room again; intake goes on"


async def test_topics_are_swept_at_once_and_then_regularly_while_the_gate_is_closed() -> None:
    bench = Bench()
    await bench.look(FREE)
    assert bench.sweeps == 0
    watch = asyncio.create_task(bench.gate.run())
    await asyncio.sleep(0)
    bench.space.free = 0
    for seconds in range(2 * int(SWEEP_SECONDS) + 1):
        bench.clock.move(LOOK_SECONDS)
        for _ in range(3):
            await asyncio.sleep(0)
        assert bench.sweeps == 1 + seconds // int(SWEEP_SECONDS)
    watch.cancel()


async def test_a_store_on_another_machine_has_no_gate() -> None:
    gate = Gate(None, Health())
    await gate.look()
    gate.admit(10**9, 10**12)
    await gate.opened()
    await gate.run()
    assert gate.members() is None


async def test_what_is_refused_takes_no_room_in_queues() -> None:
    bench = Bench()
    await bench.look(0)
    queue = IngestQueue(HUGE, HUGE, bench.gate.admit)
    room = RecordRoom(1, HUGE, bench.gate.admit)
    with pytest.raises(DiskFullError):
        queue.put(numbered(1))
    with pytest.raises(DiskFullError), room.taken(1, 1):
        pass
    assert (queue.count, queue.bytes) == (0, 0)
    await bench.look(FREE)
    queue.put(numbered(1))
    with room.taken(1, 1):
        pass


async def test_operations_by_udp_are_discarded_while_the_gate_is_closed() -> None:
    bench = Bench()
    counters, queue = IngestCounters(), IngestQueue(3, HUGE, bench.gate.admit)
    udp = UdpIngest([], queue, counters, IgnoredMembers(counters))
    await bench.look(0)
    udp._enqueue(numbered(2))
    assert counters.discarded == 2
    await bench.look(FREE)
    udp._enqueue(numbered(4))
    assert counters.discarded == 3


async def test_the_writer_tries_nothing_again_while_the_gate_is_closed() -> None:
    bench = Bench()
    store = FailingStore([1])
    store.error = StoreUnavailableError("the disk is full")
    queue = IngestQueue(HUGE, HUGE)
    await bench.look(FREE)
    queue.put(numbered(1))
    bench.space.refused = True
    writer = Writer(
        cast(Store, store),
        queue,
        IngestCounters(),
        bench.health,
        clock=bench.clock.clock,
        gate=bench.gate,
    )
    writing = asyncio.create_task(writer.run())
    for _ in range(20):
        bench.clock.move(60)
        for _ in range(5):
            await asyncio.sleep(0)
    assert store.tries == 1
    bench.space.refused = False
    await bench.look(FREE)
    async with asyncio.timeout(DEADLINE):
        await queue.emptied()
    assert store.tries == 2
    writing.cancel()

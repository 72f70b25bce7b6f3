"""Stalled consumers are cut off."""

from typing import Any

from oplogd.stream.connection import StreamConnection
from oplogd.stream.hub import END_GRACE_SECONDS, END_MOST_SECONDS, GONE_SPREAD_SECONDS, Hub
from oplogd.stream.ring.filters import Filter
from tests.kits.stream.worlds import World


class FakeOutlet:
    def __init__(self) -> None:
        self.is_full = False
        self.left = 100
        self.aborts: list[str] = []

    def unsent(self) -> int:
        return self.left

    def abort(self) -> None:
        self.aborts.append("aborted")


async def stalling(
    world: World, *, stall_timeout: float, ends_at: float
) -> tuple[Hub, FakeOutlet, Any]:
    hub = world.hub
    hub.stall_timeout = stall_timeout
    consumer = await hub.connect(None, Filter(), checkpoints=False, address="test")
    outlet: Any = FakeOutlet()
    StreamConnection(hub, consumer, outlet)
    consumer.ends_at = ends_at
    return hub, outlet, consumer


async def test_only_a_full_connection_of_which_no_byte_is_taken_is_stalled(world: World) -> None:
    hub, outlet, consumer = await stalling(world, stall_timeout=60, ends_at=float("inf"))
    hub.look(1000)
    hub.look(2000)  # nothing is written: silence is no stall
    outlet.is_full = True
    hub.look(2001)
    hub.look(2060)
    outlet.left -= 1  # one byte was taken
    hub.look(2061)
    hub.look(2120)
    consumer.last_write += 1  # there was room for a write, and then none again
    hub.look(2121)
    hub.look(2180)
    assert not outlet.aborts
    hub.look(2181)
    hub.look(2182)
    assert outlet.aborts == ["aborted"]
    hub.disconnect(consumer)


async def test_a_stalled_stream_is_cut_off_when_its_end_has_been_due_for_the_grace(
    world: World,
) -> None:
    hub, outlet, consumer = await stalling(world, stall_timeout=float("inf"), ends_at=1000)
    outlet.is_full = True
    hub.look(990)
    hub.look(1000)
    assert consumer.ending
    hub.look(1000 + END_GRACE_SECONDS - 0.1)
    assert not outlet.aborts
    hub.look(1000 + END_GRACE_SECONDS)
    assert outlet.aborts == ["aborted"]
    hub.disconnect(consumer)


async def test_an_overdue_stream_continues_while_its_consumer_takes_bytes(
    world: World,
) -> None:
    hub, outlet, consumer = await stalling(world, stall_timeout=float("inf"), ends_at=1000)
    outlet.is_full = True
    for second in range(1000, 1050):
        outlet.left -= 1
        hub.look(second)
    assert not outlet.aborts
    hub.disconnect(consumer)


async def test_a_stream_whose_pass_is_over_is_cut_off_although_its_consumer_takes_bytes(
    world: World,
) -> None:
    hub, outlet, consumer = await stalling(world, stall_timeout=float("inf"), ends_at=float("inf"))
    outlet.is_full = True
    begun = world.hub._clock.monotonic()
    hub.end_without(lambda _: False)
    assert begun <= consumer.ends_at <= begun + GONE_SPREAD_SECONDS
    for tenth in range(int(10 * END_MOST_SECONDS)):
        outlet.left -= 1
        hub.look(consumer.ends_at + tenth / 10)
    assert not outlet.aborts
    outlet.left -= 1
    hub.look(consumer.ends_at + END_MOST_SECONDS)
    assert outlet.aborts == ["aborted"]
    hub.disconnect(consumer)

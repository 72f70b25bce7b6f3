"""Stalled consumers are cut off."""

from typing import Any

from oplogd.stream.consumer import StreamConnection
from oplogd.stream.hub import END_GRACE_SECONDS, Hub
from oplogd.stream.ring.filters import Filter
from tests.kits.stream.worlds import World


class FakeTransport:
    def __init__(self) -> None:
        self.unsent = 100
        self.aborts: list[str] = []

    def abort(self) -> None:
        self.aborts.append("aborted")


async def stalling(
    world: World, *, stall_timeout: float, ends_at: float
) -> tuple[Hub, FakeTransport, Any]:
    hub = world.hub
    hub.stall_timeout = stall_timeout
    consumer = await hub.connect(None, Filter(), checkpoints=False, address="test")
    connection = FakeTransport()
    consumer.connection = StreamConnection(connection.abort, lambda: connection.unsent)
    consumer.ends_at = ends_at
    return hub, connection, consumer


async def test_only_a_write_that_waits_while_no_byte_is_taken_is_a_stall(world: World) -> None:
    hub, connection, consumer = await stalling(world, stall_timeout=60, ends_at=float("inf"))
    hub.look(1000)
    hub.look(2000)  # nothing is written: silence is no stall
    consumer.connection.writing = True
    hub.look(2001)
    hub.look(2060)
    connection.unsent -= 1  # one byte was taken
    hub.look(2061)
    hub.look(2120)
    consumer.last_write += 1  # that write is done, and the next one waits
    hub.look(2121)
    hub.look(2180)
    assert not connection.aborts
    hub.look(2181)
    hub.look(2182)
    assert connection.aborts == ["aborted"]
    hub.disconnect(consumer)


async def test_a_stalled_stream_is_cut_off_when_its_end_has_been_due_for_the_grace(
    world: World,
) -> None:
    hub, connection, consumer = await stalling(world, stall_timeout=float("inf"), ends_at=1000)
    consumer.connection.writing = True
    hub.look(990)
    hub.look(1000)
    assert consumer.ending
    hub.look(1000 + END_GRACE_SECONDS - 0.1)
    assert not connection.aborts
    hub.look(1000 + END_GRACE_SECONDS)
    assert connection.aborts == ["aborted"]
    hub.disconnect(consumer)


async def test_an_overdue_stream_continues_while_its_consumer_takes_bytes(
    world: World,
) -> None:
    hub, connection, consumer = await stalling(world, stall_timeout=float("inf"), ends_at=1000)
    consumer.connection.writing = True
    for second in range(1000, 1050):
        connection.unsent -= 1
        hub.look(second)
    assert not connection.aborts
    hub.disconnect(consumer)

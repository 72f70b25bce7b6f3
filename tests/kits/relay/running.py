"""Relays in a simulation, and the short words of their tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from oplog_relay import DatabaseSettings, Event, Limits, MeterRead, Relay, RelaySettings, Row, State
from tests.kits.relay.simulation import Process, Simulation
from tests.kits.relay.world import NOON, FakeLease, FakeOutbox, FakePublisher, Faults, Link, World

# Small, so that every limit is met.
LIMITS = Limits(
    poll=0.1,
    heartbeat=0.5,
    session=1.0,
    in_flight=12,
    mark=4,
    batch=3,
    shards=2,
    mark_backoff=0.05,
    io_error_backoff=0.1,
    request_timeout=0.8,
    queue_timeout=3.0,
    blocked_backoff=(0.2, 0.8),
    drain=1.0,
    meter=1.0,
)
# One millisecond each way, so that times can be told exactly.
STEADY = Faults(fast_s=(0.001, 0.001))
DEFAULTS = Limits()


class Node:
    """A process with a relay."""

    def __init__(self, world: World, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self.process = Process(world.simulation)  # type: ignore[abstract]
        self.link = Link(world, self.process)
        self.outbox = FakeOutbox(self.link)
        self.lease = FakeLease(self.link)
        self.publisher = FakePublisher(self.link, limits.request_timeout)
        self.events: list[Event] = []
        self.error: BaseException | None = None
        self.relay: Relay = Relay(
            RelaySettings("group", DatabaseSettings("sqlite://"), limits=limits),
            outbox=self.outbox,
            lease=self.lease,
            publisher=self.publisher,
            clock=world.simulation.clock,
        )
        self.lease.holder = self.relay.holder
        self.relay.on_event(self.events.append)
        self._tasks = [self.process.create_task(self._run())]

    async def _run(self) -> None:
        await self.relay.start()
        try:
            await self.relay.wait()
        except Exception as error:
            self.error = error

    def stop(self) -> None:
        self._tasks.append(self.process.create_task(self.relay.stop()))

    def kill(self) -> None:
        self.process.is_dead = True


@contextmanager
def steady_world() -> Iterator[World]:
    """Yield a world without faults for relays with default limits."""
    simulation = Simulation(Random(0))
    world = World(simulation, session=DEFAULTS.session)
    world.faults = STEADY
    yield world
    errors = [error for process in simulation.processes for error in process.errors]
    simulation.close()
    assert errors == []


def row(id: int, key: str = "", topic: str = "orders", fault: str = "") -> Row:
    return Row(id, NOON, topic, key or f"k{id}", "{}", fault=fault)


def commit(world: World, *rows: Row) -> None:
    for each in rows:
        world.commit(each)


def ids(world: World) -> list[int]:
    """Return the ids in the log."""
    return [id for _, id in world.log]


def run(world: World, seconds: float) -> None:
    world.simulation.run(lambda: False, seconds)


def until_empty(world: World, seconds: float = 10.0) -> None:
    assert world.simulation.run(lambda: not world.rows, seconds)


def kinds(node: Node) -> list[type[Event]]:
    """Return the classes of a relay's events, without readings of the meter."""
    return [type(event) for event in node.events if not isinstance(event, MeterRead)]


def stop(world: World, node: Node, seconds: float) -> None:
    node.stop()
    assert world.simulation.run(lambda: node.relay.state is State.STOPPED, seconds)

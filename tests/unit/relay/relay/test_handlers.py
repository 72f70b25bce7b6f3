"""Handlers of events that hang: they are bounded in time, and the lead goes to another relay."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest

from oplog_relay import Event, LeaderAcquired, LeaderFenced, LeaderRefreshed, LeaderRevoked, State
from tests.kits.relay.running import (
    DEFAULTS,
    Node,
    commit,
    ids,
    kinds,
    row,
    run,
    steady_world,
    stop,
    until_empty,
)
from tests.kits.relay.world import World


@pytest.fixture
def world() -> Iterator[World]:
    with steady_world() as world:
        yield world


class Hanging:
    """A handler that hangs at events of some classes, once for each in ``kinds``."""

    def __init__(self, *kinds: type[Event]) -> None:
        self.kinds = [*kinds]
        self.cancelled: list[type[Event]] = []

    async def __call__(self, event: Event) -> None:
        if type(event) in self.kinds:
            self.kinds.remove(type(event))
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.append(type(event))
                raise


def test_a_leader_whose_handler_hangs_hands_the_lead_over_and_its_log_names_the_handler(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    first = Node(world, DEFAULTS)
    hanging = Hanging(LeaderAcquired)
    first.relay.on_event(hanging)
    run(world, 0.5)
    second = Node(world, DEFAULTS)
    commit(world, row(1))
    run(world, 29.0)
    assert (world.holder, ids(world)) == (first.relay.holder, [])
    assert world.simulation.run(lambda: second.relay.is_leader, 1.0)
    until_empty(world)
    assert hanging.cancelled == [LeaderAcquired]
    assert kinds(first) == [LeaderAcquired, LeaderRevoked]
    assert not first.relay.is_leader
    told = [each for each in caplog.messages if "has not ended" in each]
    assert told == [
        "the handler tests.unit.relay.relay.test_handlers.Hanging of LeaderAcquired has not ended"
        " within 30 s: it is cancelled"
    ]


def test_a_relay_without_another_one_leads_again_after_a_session(world: World) -> None:
    node = Node(world, DEFAULTS)
    node.relay.on_event(Hanging(LeaderAcquired))
    commit(world, row(1))
    until_empty(world, 30.0 + DEFAULTS.session + 1.0)
    assert kinds(node) == [LeaderAcquired, LeaderRevoked, LeaderAcquired]
    assert node.publisher.violations == []


def test_a_handler_of_revoked_that_hangs_ends_a_stop_after_30_seconds(world: World) -> None:
    node = Node(world, DEFAULTS)
    node.relay.on_event(Hanging(LeaderRevoked))
    run(world, 0.5)
    node.stop()
    run(world, 29.0)
    assert world.holder == node.relay.holder
    assert world.simulation.run(lambda: node.relay.state is State.STOPPED, 2.0)
    assert node.error is None
    assert world.holder != node.relay.holder


def test_a_handler_that_swallows_its_cancellation_is_left_alone(world: World) -> None:
    node = Node(world, DEFAULTS)

    async def stay(event: Event) -> None:
        while isinstance(event, LeaderRevoked):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(20.0)
            event = LeaderRevoked(event.leader_id, event.term + 1)
            if event.term > 5:
                return

    node.relay.on_event(stay)
    run(world, 0.5)
    node.stop()
    assert world.simulation.run(lambda: node.relay.state is State.STOPPED, 33.0)
    assert world.holder is None


def test_a_handler_of_fenced_that_hangs_does_not_keep_the_relay_from_leading(world: World) -> None:
    node = Node(world, DEFAULTS)
    node.relay.on_event(Hanging(LeaderFenced))
    run(world, 0.5)
    node.process.is_cut = True
    run(world, DEFAULTS.session)
    assert kinds(node) == [LeaderAcquired, LeaderFenced]
    node.process.is_cut = False
    commit(world, row(1))
    until_empty(world, 40.0)
    assert kinds(node) == [LeaderAcquired, LeaderFenced, LeaderAcquired]


def test_a_leader_that_loses_its_lease_while_a_handler_hangs_is_fenced_and_sends_nothing(
    world: World,
) -> None:
    first = Node(world, DEFAULTS)
    first.relay.on_event(Hanging(LeaderAcquired))
    run(world, 0.5)
    second = Node(world, DEFAULTS)
    commit(world, row(1, "a"), row(2, "a"))
    first.process.is_cut = True
    assert world.simulation.run(lambda: second.relay.is_leader, DEFAULTS.session + 1.0)
    first.process.is_cut = False
    until_empty(world)
    run(world, 60.0)
    assert kinds(first) == [LeaderAcquired, LeaderFenced]
    assert world.holder == second.relay.holder
    assert first.relay.counters.requests == 0
    assert ids(world) == [1, 2]


def test_a_handler_of_refreshed_that_hangs_gives_the_lead_up(world: World) -> None:
    node = Node(world, DEFAULTS)
    hanging = Hanging(LeaderRefreshed)
    node.relay.on_event(hanging)
    run(world, 0.5)
    leader_id, term = node.relay.leader_id, node.relay.term
    world.poll(node.relay.holder, True, None)  # as if a request of before had arrived late
    commit(world, row(1))
    until_empty(world, 60.0)
    assert hanging.cancelled == [LeaderRefreshed]
    assert kinds(node) == [LeaderAcquired, LeaderRefreshed, LeaderRevoked, LeaderAcquired]
    assert node.relay.leader_id != leader_id
    assert node.relay.term > term
    stop(world, node, 5.0)

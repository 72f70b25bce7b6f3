"""Relays that stop."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from oplog_relay import (
    Event,
    LeaderAcquired,
    LeaderRevoked,
    State,
)
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


def test_a_stop_drains_resets_revokes_and_releases(world: World) -> None:
    node = Node(world, DEFAULTS)
    commit(world, *(row(id, f"k{id % 5}") for id in range(1, 401)))
    assert world.simulation.run(lambda: len(world.log) > 20, 5.0)
    stop(world, node, 1.0)
    assert kinds(node) == [LeaderAcquired, LeaderRevoked]
    assert world.holder is None
    # All that arrived is purged, and the other rows are free.
    assert {*world.rows} == {*range(1, 401)} - {*ids(world)}
    assert {owner for _, owner in world.rows.values()} == {None}
    assert node.outbox.is_disposed
    assert node.lease.is_closed
    assert node.publisher.is_closed
    assert (node.relay.is_leader, node.relay.in_flight, node.error) == (False, 0, None)


def test_a_handler_of_revoked_delays_the_hand_over_and_heartbeats_go_on(world: World) -> None:
    node = Node(world, DEFAULTS)
    run(world, 0.5)

    async def handle(event: Event) -> None:
        if isinstance(event, LeaderRevoked):
            await asyncio.sleep(20)

    node.relay.on_event(handle)
    node.stop()
    run(world, 19.0)
    assert world.holder == node.relay.holder
    assert world.holds(1)
    assert world.simulation.run(lambda: node.relay.state is State.STOPPED, 2.0)
    assert world.holder is None


def test_a_stop_ends_although_database_and_agent_are_away(world: World) -> None:
    node = Node(world, replace(DEFAULTS, drain=2.0))
    commit(world, *(row(id, f"k{id % 5}") for id in range(1, 401)))
    assert world.simulation.run(lambda: len(world.log) > 20, 5.0)
    node.process.is_cut = True
    stop(world, node, 2.0 + 4.0)
    assert node.error is None


def test_a_follower_stops_within_its_poll(world: World) -> None:
    Node(world, DEFAULTS)
    run(world, 0.5)
    second = Node(world, DEFAULTS)
    run(world, 0.5)
    stop(world, second, 0.005)
    assert second.events == []


def test_a_relay_that_stops_while_it_acquires_the_lease_releases_it(world: World) -> None:
    node = Node(world, DEFAULTS)
    assert world.simulation.run(lambda: world.calls == {"poll": 1}, 1.0)
    stop(world, node, 0.1)
    assert world.calls == {"poll": 1, "release": 1}
    assert world.holder is None


def test_a_handler_may_await_a_task_that_it_has_cancelled(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(world, DEFAULTS)
    later: list[Event] = []

    async def end_work(event: Event) -> None:
        if isinstance(event, LeaderAcquired | LeaderRevoked):
            work = asyncio.create_task(asyncio.sleep(60.0))
            work.cancel()
            await work

    node.relay.on_event(end_work)
    node.relay.on_event(later.append)
    commit(world, row(1))
    until_empty(world)
    stop(world, node, 1.0)
    assert [type(event) for event in later] == [LeaderAcquired, LeaderRevoked]
    assert caplog.text.count("has failed") == 2
    assert (node.error, world.holder) == (None, None)


def test_two_stops_end_together_and_a_handler_may_stop_its_relay(world: World) -> None:
    node = Node(world, DEFAULTS)

    async def stop_itself(event: Event) -> None:
        await node.relay.stop()

    node.relay.on_event(stop_itself)
    assert world.simulation.run(lambda: node.relay.state is State.STOPPED, 5.0)
    assert kinds(node) == [LeaderAcquired, LeaderRevoked]
    stop(world, node, 0.0)


def test_an_unstarted_relay_stops_and_does_not_start_any_more(world: World) -> None:
    node = Node(world, DEFAULTS)
    node.process.freeze(5.0)
    results: list[object] = []

    async def check() -> None:
        await node.relay.stop()
        await node.relay.wait()
        try:
            await node.relay.start()
        except RuntimeError as error:
            results.append(str(error))

    other = Node(world, DEFAULTS)
    task = other.process.create_task(check())
    assert world.simulation.run(task.done, 1.0)
    assert (results, node.relay.state) == (["a relay starts once"], State.STOPPED)

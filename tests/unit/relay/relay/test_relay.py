"""A relay that leads, in a simulated world: rows, events, errors of bindings."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from oplog_relay import (
    Event,
    LeaderAcquired,
    MeterRead,
    Outcome,
    Row,
    State,
)
from tests.kits.relay.running import (
    DEFAULTS,
    Node,
    commit,
    ids,
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


def test_a_relay_moves_rows_and_shows_itself_as_the_leader(world: World) -> None:
    node = Node(world, DEFAULTS)
    assert (node.relay.state, node.relay.is_leader) == (State.CREATED, False)
    commit(world, *map(row, range(1, 301)))
    until_empty(world)
    relay = node.relay
    assert sorted(ids(world)) == [*range(1, 301)]
    assert (relay.state, relay.is_leader, relay.term) == (State.RUNNING, True, 1)
    assert node.events == [LeaderAcquired(relay.leader_id, 1)]  # type: ignore[arg-type]
    run(world, 0.1)
    assert (relay.in_flight, relay.in_flight_keys, relay.counters.relayed) == (0, 0, 300)
    assert relay.counters.marked == 300


def test_one_of_two_leads_and_the_other_follows_at_once_after_a_clean_stop(world: World) -> None:
    first = Node(world, DEFAULTS)
    run(world, 1.0)
    second = Node(world, DEFAULTS)
    run(world, 1.0)
    assert (first.relay.is_leader, second.relay.is_leader) == (True, False)
    assert (second.relay.leader_id, second.relay.term) == (None, 0)
    stop(world, first, 1.0)
    stopped = world.simulation.now
    assert world.simulation.run(lambda: second.relay.is_leader, 1.0)
    assert world.simulation.now - stopped <= DEFAULTS.poll + 0.002
    assert second.relay.term == 2


def test_an_idle_leader_costs_one_mark_per_back_off_and_one_poll_per_pause(world: World) -> None:
    Node(world, DEFAULTS)
    run(world, 1.0)
    before = dict(world.calls)
    run(world, 4.0)
    cost = {name: count - before[name] for name, count in world.calls.items()}
    # A mark takes 2 ms and pauses for 10, a poll takes 2 ms and pauses for 100.
    assert cost == {"mark": 333, "poll": 40}


def test_marks_sends_and_purges_overlap(world: World) -> None:
    """A request takes 300 ms, and the rows in flight reach their bound meanwhile."""
    node = Node(world, replace(DEFAULTS, in_flight=200, shards=4))
    commit(world, *map(row, range(1, 1001)))
    slow = node.publisher.publish

    async def publish(topic: str, rows: list[Row], term: int) -> Outcome:
        await asyncio.sleep(0.3)
        return await slow(topic, rows, term)

    node.publisher.publish = publish  # type: ignore[assignment, method-assign]
    assert world.simulation.run(lambda: node.relay.in_flight == 200, 0.2)
    assert (node.relay.in_flight_keys, node.relay.counters.requests) == (200, 4)
    until_empty(world)
    assert sorted(ids(world)) == [*range(1, 1001)]


@pytest.mark.parametrize("name", ["mark", "purge", "publish", "poll"])
def test_an_error_of_a_binding_stops_the_relay_and_wait_raises_it(
    world: World, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(world, DEFAULTS)
    binding = {"publish": node.publisher, "poll": node.lease}.get(name, node.outbox)

    async def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    setattr(binding, name, fail)
    commit(world, row(1))
    assert world.simulation.run(lambda: node.error is not None, 2.0)
    assert isinstance(node.error, ZeroDivisionError)
    assert node.relay.state is State.STOPPED
    assert not node.relay.is_leader
    assert node.outbox.is_disposed
    assert "the relay stops because of an error" in caplog.text
    stop(world, node, 0.0)


def test_handlers_run_in_order_before_the_first_mark_and_may_fail(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(world, DEFAULTS)
    seen: list[tuple[str, int]] = []

    def fail(event: Event) -> None:
        raise ValueError("a handler's bug")

    async def slow(event: Event) -> None:
        await asyncio.sleep(1)
        seen.append((type(event).__name__, world.calls.get("mark", 0)))

    node.relay.on_event(fail)
    node.relay.on_event(slow)
    run(world, 1.5)
    assert seen == [("LeaderAcquired", 0)]
    assert world.calls["mark"] > 0
    assert "a handler of LeaderAcquired has failed" in caplog.text


def test_a_leader_reads_the_meter_and_leaves_a_note_with_the_lease(world: World) -> None:
    node = Node(world, DEFAULTS)
    world.refused.add(1)
    commit(world, row(1, "a"), row(2, "b"))
    run(world, 0.4)
    note = json.loads(world.note)
    assert [(each["id"], each["reason"]) for each in note["blocked"]] == [(1, "no such topic")]
    world.skip(1)
    run(world, 1.0)
    # Before the next reading of the meter.
    assert json.loads(world.note)["blocked_keys"] == 0
    world.refused.add(3)
    commit(world, row(3, "a"))
    run(world, DEFAULTS.meter - 1.0)
    [reading] = [event for event in node.events if isinstance(event, MeterRead)]
    assert reading == MeterRead(reading.rate, 1, 0, 0, 1, 0.0, 1)
    assert 0 < reading.rate <= 1 / DEFAULTS.meter
    note = json.loads(world.note)
    assert (note["relayed"], note["backlog"], note["blocked_keys"]) == (1, 1, 1)


def test_readings_of_the_meter_do_not_pile_up_behind_a_handler(world: World) -> None:
    node = Node(world, DEFAULTS)
    seen = []

    async def hang_once(event: Event) -> None:
        if isinstance(event, MeterRead):
            seen.append(event)
            if len(seen) == 1:
                await asyncio.sleep(28.5)

    node.relay.on_event(hang_once)
    run(world, 31.0)
    assert len(seen) == 1
    run(world, 3.0)
    # The first one, and one that waited.
    assert len(seen) == 2

"""Rows and relays that an agent refuses."""

import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.kits.relay.running import (
    DEFAULTS,
    Node,
    commit,
    ids,
    row,
    run,
    steady_world,
    until_empty,
)
from tests.kits.relay.world import World


@pytest.fixture
def world() -> Iterator[World]:
    with steady_world() as world:
        yield world


def test_a_poison_key_with_2000_rows_behind_it_delays_no_other_key(world: World) -> None:
    node = Node(world, DEFAULTS)
    world.refused.add(1)
    commit(world, *(row(id, "poison") for id in range(1, 2002)))
    commit(world, *(row(id, f"k{id % 50}") for id in range(2002, 3002)))
    assert world.simulation.run(lambda: len(world.log) == 1000, 5.0)
    # Before the poison row is tried for the second time.
    assert node.relay.counters.refused == 1
    assert node.relay.in_flight <= 1000
    blocked = node.relay.blocked
    assert [(each.id, each.key, each.attempts) for each in blocked] == [(1, "poison", 1)]
    world.refused.clear()
    until_empty(world)
    assert ids(world)[1000:] == [*range(1, 2002)]
    assert node.relay.blocked == ()
    assert node.relay.counters.refreshes == 0


def test_marking_stops_while_the_agent_refuses_too_many_keys(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("oplog_relay.leader.blocked.MAX_BLOCKED", 20)
    caplog.set_level(logging.ERROR, "oplog_relay")
    node = Node(world, replace(DEFAULTS, mark=5, in_flight=10))
    world.refused = {*range(1, 201)}
    commit(world, *map(row, range(1, 201)))
    run(world, 5.0)
    assert 20 <= len(node.relay.blocked) <= 20 + 10
    assert {each.attempts for each in node.relay.blocked} == {4}
    world.refused.clear()
    until_empty(world, 60.0)
    assert sorted(ids(world)) == [*range(1, 201)]


@pytest.mark.parametrize("is_tried", [False, True])
def test_a_key_goes_on_once_its_refused_row_is_skipped(world: World, is_tried: bool) -> None:
    node = Node(world, DEFAULTS)
    world.refused.add(1)
    commit(world, row(1, "a"), row(2, "a"), row(3, "a"))
    assert world.simulation.run(lambda: node.relay.counters.refused == 1 + is_tried, 5.0)
    world.skip(1)
    until_empty(world)
    assert ids(world) == [2, 3]
    assert node.relay.counters.refreshes == 0


def test_keys_that_become_free_together_hold_up_no_other_key(world: World) -> None:
    node = Node(world, DEFAULTS)
    world.refused = {*range(1, 81)}
    commit(world, *(row(id, f"a{id % 80}") for id in range(1, 161)))
    assert world.simulation.run(lambda: len(node.relay.blocked) == 80, 5.0)
    for id in range(1, 81):
        world.skip(id)
    assert world.simulation.run(lambda: len(node.relay.blocked) < 80, 5.0)
    commit(world, row(161, "b"))
    assert world.simulation.run(lambda: 161 in ids(world), 1.0)
    assert len(node.relay.blocked) > 40
    until_empty(world)
    assert sorted(ids(world)) == [*range(81, 162)]
    assert node.relay.blocked == ()


def test_r1_that_fails_once_is_sent_between_r0_and_r2(world: World) -> None:
    Node(world, DEFAULTS)
    world.refused.add(2)
    commit(world, row(1, "a"), row(2, "a"), row(3, "a"))
    assert world.simulation.run(lambda: len(world.log) == 1, 1.0)
    run(world, 0.2)
    world.refused.clear()
    until_empty(world)
    assert ids(world) == [1, 2, 3]


def test_a_row_with_a_fault_is_not_sent_and_named_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(world, DEFAULTS)
    commit(world, row(1, "a\udcff", fault="its headers are no JSON"), row(2, "b"))
    with caplog.at_level(logging.WARNING, "oplog_relay"):
        run(world, 5.0)
    assert (ids(world), node.relay.counters.refused) == ([2], 4)
    [record] = caplog.records
    assert record.getMessage() == (
        "row 1 of topic orders is refused and blocks its key a\\xff: its headers are no JSON;"
        " attempts: 1"
    )


def test_a_refused_relay_stops_sending_blocks_no_key_and_keeps_its_term(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    # Small requests, so that the rows take longer than a poll: none has waited too long then.
    limits = replace(DEFAULTS, mark_backoff=0.1, shards=2, batch=1)
    node = Node(world, limits)
    run(world, 0.5)
    world.forbids = True
    commit(world, *map(row, range(1, 201)))
    with caplog.at_level(logging.WARNING, "oplog_relay"):
        run(world, 40.0)
    # All shards once, then one request at a time, with pauses of 0.5, 1, 2, 4, 8 and 16 s.
    assert node.relay.counters.forbidden == limits.shards + 6
    assert [record.getMessage() for record in caplog.records] == [
        "sending stops: wrong password; it is tried again"
    ]
    assert (node.relay.blocked, node.relay.in_flight, node.relay.term) == ((), 200, 1)
    world.forbids = False
    until_empty(world, 40.0)
    assert (sorted(ids(world)), node.relay.term) == ([*range(1, 201)], 1)

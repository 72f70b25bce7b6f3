"""Rows that stand in the way: long queues of a key, locked rows, ids that are used again."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from oplog_relay import LeaderAcquired, LeaderRefreshed, MeterRead
from tests.kits.relay.running import (
    DEFAULTS,
    Node,
    commit,
    ids,
    kinds,
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


@pytest.mark.thorough
def test_a_row_behind_6000_rows_of_another_key_is_sent_within_a_second(world: World) -> None:
    node = Node(world, DEFAULTS)
    run(world, 0.5)
    commit(world, *(row(id, "hot") for id in range(1, 6001)), row(6001, "cold"))
    began = world.simulation.now
    assert world.simulation.run(lambda: 6001 in ids(world), 1.0)
    assert node.relay.in_flight < DEFAULTS.in_flight / 2
    sent = len(world.log)
    # The long queue goes on meanwhile: one row for each way to agent and database, and back.
    run(world, began + 2.0 - world.simulation.now)
    assert len(world.log) - sent > 200
    hot = [id for key, id in world.log if key == "hot"]
    assert hot == [*range(1, len(hot) + 1)]


def test_many_long_queues_leave_room_for_another_key(world: World) -> None:
    limits = replace(DEFAULTS, in_flight=100, mark=20)
    node = Node(world, limits)
    run(world, 0.5)
    commit(world, *(row(id, f"hot{id % 20}") for id in range(1, 2001)), row(2001, "cold"))
    assert world.simulation.run(lambda: 2001 in ids(world), 2.0)
    assert len(world.rows) > 500
    until_empty(world, 60.0)
    assert kinds(node) == [LeaderAcquired]


def test_rows_of_other_keys_pass_a_row_that_is_locked_and_those_behind_it_wait(
    world: World,
) -> None:
    node = Node(world, DEFAULTS)
    run(world, 0.5)
    world.locked = {1}
    commit(world, row(1, "a"), row(2, "a"), *(row(id, f"k{id % 9}") for id in range(3, 301)))
    assert world.simulation.run(lambda: {*world.rows} == {1, 2}, 5.0)
    run(world, 20.0)
    world.locked.clear()
    until_empty(world, 1.0)
    assert ids(world)[-2:] == [1, 2]
    assert kinds(node) == [LeaderAcquired]


def test_a_row_that_is_locked_once_it_was_sent_is_purged_later_and_its_key_waits(
    world: World,
) -> None:
    node = Node(world, DEFAULTS)
    commit(world, row(1, "a"), row(2, "a"))
    assert world.simulation.run(lambda: ids(world) == [1], 5.0)
    world.locked = {1}
    commit(world, *(row(id, f"k{id % 9}") for id in range(3, 301)))
    assert world.simulation.run(lambda: {*world.rows} == {1, 2}, 5.0)
    run(world, 0.1)
    assert node.relay.counters.relayed == 298
    world.locked.clear()
    until_empty(world, 1.0)
    assert ids(world)[-1] == 2
    assert sorted(ids(world)) == [*range(1, 301)]
    assert kinds(node) == [LeaderAcquired]


def test_a_stop_leaves_a_row_that_is_locked_and_tells_that_it_will_be_sent_again(
    world: World,
) -> None:
    node = Node(world, DEFAULTS)
    commit(world, row(1))
    assert world.simulation.run(lambda: ids(world) == [1], 5.0)
    world.locked = {1}
    run(world, 0.1)
    node.stop()
    run(world, 5.0)
    assert (node.relay.unfinished, [*world.rows]) == (1, [1])


def test_rows_with_the_ids_of_rows_in_flight_are_sent_and_not_purged_with_them(
    world: World,
) -> None:
    """As after TRUNCATE with RESTART IDENTITY: all new rows come behind all old ones."""
    node = Node(world, DEFAULTS)
    run(world, 0.5)
    node.link.hold()
    commit(world, *(row(id, f"k{id % 7}") for id in range(1, 101)))
    assert world.simulation.run(lambda: node.relay.in_flight == 100, 5.0)
    world.rows.clear()
    commit(world, *(row(id, f"k{id % 7}", "new") for id in range(1, 101)))
    run(world, 0.05)
    node.link.release()
    until_empty(world)
    arrived = [each.id for each in world.arrived if each.topic == "new"]
    assert sorted(arrived) == [*range(1, 101)]
    for key in range(7):
        topics = [each.topic for each in world.arrived if each.key == f"k{key}"]
        assert topics == sorted(topics, reverse=True)
    events = [each for each in node.events if not isinstance(each, MeterRead)]
    assert isinstance(events[-1], LeaderRefreshed)
    assert events[-1].reason.endswith(
        "twice: another relay marks this table, or its ids were restarted"
    )


def test_a_purge_that_arrives_late_leaves_a_new_row_with_the_id(world: World) -> None:
    node = Node(world, DEFAULTS)
    run(world, 0.5)
    commit(world, row(1))
    assert world.simulation.run(lambda: node.relay.counters.relayed == 1, 5.0)
    leader, (old,) = node.relay.leader_id, world.arrived
    assert leader is not None
    commit(world, row(1, topic="new"))
    assert world.purge(leader, [old._replace(mark=1)]).changed == 1
    until_empty(world)
    assert [each.topic for each in world.arrived] == ["orders", "new"]


def test_a_row_with_the_id_of_a_blocked_one_is_sent_in_the_order_of_its_key(world: World) -> None:
    Node(world, DEFAULTS)
    world.refused = {3}
    commit(world, row(3, "a"), row(4, "a"))
    run(world, 0.4)
    world.rows.clear()
    world.refused.clear()
    commit(world, *(row(id, "a", "new") for id in range(1, 6)))
    until_empty(world)
    assert ids(world) == [1, 2, 3, 4, 5]

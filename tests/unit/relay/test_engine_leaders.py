"""A leader that dies, stands still, is cut off or stops leaves every key in order.

The relays run on the clock of a simulation. ``e2e/test_leaders.py`` has real processes.
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from oplog_relay import (
    LeaderAcquired,
    LeaderFenced,
    LeaderRevoked,
    LeaseState,
    LeaseUnavailableError,
    Outcome,
    State,
    Verdict,
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

KEYS = 7
IN_FLIGHT = DEFAULTS.in_flight
# Longer than the four ways of two calls.
MOMENT = 0.01


class Pair(NamedTuple):
    """A leader and its standby. ``term`` of the leader."""

    world: World
    leader: Node
    standby: Node
    term: int


@pytest.fixture
def pair() -> Iterator[Pair]:
    with steady_world() as world:
        leader = Node(world, DEFAULTS)
        run(world, 0.5)
        standby = Node(world, DEFAULTS)
        run(world, 0.5)
        assert (leader.relay.is_leader, standby.relay.is_leader) == (True, False)
        yield Pair(world, leader, standby, leader.relay.term)
        assert leader.publisher.violations == standby.publisher.violations == []


def commit_rows(pair: Pair, first: int, last: int) -> None:
    commit(pair.world, *(row(id, f"k{id % KEYS}") for id in range(first, last + 1)))


def hold_all(pair: Pair) -> None:
    """Hold all that the leader sends, until as many rows are in flight as it allows."""
    pair.leader.link.hold()
    commit(pair.world, *map(row, range(1, IN_FLIGHT + 301)))
    assert pair.world.simulation.run(lambda: pair.leader.relay.in_flight == IN_FLIGHT, 5.0)


def hold_some(pair: Pair) -> None:
    """Commit rows, and hold what the leader sends in the middle of them."""
    commit_rows(pair, 1, 100)
    assert pair.world.simulation.run(lambda: len(pair.world.log) > 20, 5.0)
    pair.leader.link.hold()
    commit_rows(pair, 101, 200)
    assert pair.world.simulation.run(lambda: bool(pair.leader.link.held), 5.0)


def standby_leads_when_the_lease_is_over(pair: Pair, since: float) -> None:
    """Run until the standby leads: at its first poll after the end of a session, not later.

    ``since``: time at which the leader has polled for the last time, or a poll later.
    """
    simulation, pause = pair.world.simulation, DEFAULTS.poll + MOMENT
    assert simulation.run(lambda: pair.standby.relay.is_leader, 2 * DEFAULTS.session)
    assert -pause <= simulation.now - since - DEFAULTS.session <= pause
    assert pair.standby.relay.term == pair.term + 1


def late_requests_are_refused(pair: Pair) -> None:
    before = [*pair.world.log]
    answers = pair.leader.link.release()
    assert answers
    for answer in answers:
        assert isinstance(answer, Outcome)
        assert answer.verdict is Verdict.STALE
    assert pair.world.log == before


def every_key_is_in_order(world: World, last: int) -> None:
    """Assert that the rows 1 to ``last`` arrived. Repeats may follow their originals at once."""
    for number in range(KEYS):
        arrived = [id for key, id in world.log if key == f"k{number}"]
        expected = [id for id in range(1, last + 1) if id % KEYS == number]
        assert [id for id, _ in itertools.groupby(arrived)] == expected


def test_standby_of_a_killed_leader_sends_the_rows_in_flight_and_late_requests_are_refused(
    pair: Pair,
) -> None:
    hold_all(pair)
    pair.leader.kill()
    standby_leads_when_the_lease_is_over(pair, pair.world.simulation.now)
    until_empty(pair.world)
    late_requests_are_refused(pair)
    assert sorted(ids(pair.world)) == [*range(1, IN_FLIGHT + 301)]


def test_leader_that_stands_still_while_it_sends_is_fenced_and_reverses_nothing(
    pair: Pair,
) -> None:
    hold_some(pair)
    pair.leader.process.freeze(600.0)
    standby_leads_when_the_lease_is_over(pair, pair.world.simulation.now)
    commit_rows(pair, 201, 300)
    until_empty(pair.world)
    assert kinds(pair.leader) == [LeaderAcquired]
    pair.leader.process.thaw()
    assert pair.world.simulation.run(lambda: LeaderFenced in kinds(pair.leader), 1.0)
    late_requests_are_refused(pair)
    commit_rows(pair, 301, 350)
    until_empty(pair.world)
    every_key_is_in_order(pair.world, 350)
    for node in (pair.leader, pair.standby):
        stop(pair.world, node, 1.0)
    assert kinds(pair.leader) == [LeaderAcquired, LeaderFenced]
    assert kinds(pair.standby) == [LeaderAcquired, LeaderRevoked]


def test_leader_without_network_fences_itself_and_its_late_requests_are_refused(
    pair: Pair,
) -> None:
    world, leader, standby, _ = pair
    hold_some(pair)
    leader.process.is_cut = True
    cut = world.simulation.now
    # It notices at its next poll; before, it sends nothing.
    seconds = DEFAULTS.heartbeat + DEFAULTS.poll + MOMENT
    assert world.simulation.run(lambda: LeaderFenced in kinds(leader), seconds)
    assert isinstance(leader.events[-1], LeaderFenced)
    assert leader.events[-1].reason == "no answer about the lease for 5 s"
    standby_leads_when_the_lease_is_over(pair, cut)
    commit_rows(pair, 201, 300)
    until_empty(world)
    late_requests_are_refused(pair)
    every_key_is_in_order(world, 300)
    # It is a candidate again, and leads after the other one.
    leader.process.is_cut = False
    run(world, 1.0)
    assert not leader.relay.is_leader
    term = standby.relay.term
    standby.kill()
    again = [LeaderAcquired, LeaderFenced, LeaderAcquired]
    assert world.simulation.run(lambda: kinds(leader) == again, 2 * DEFAULTS.session)
    assert leader.relay.term > term


def test_clean_stop_sends_the_rows_in_flight_and_hands_over_at_once(pair: Pair) -> None:
    world, leader, standby, term = pair
    hold_all(pair)
    leader.stop()
    run(world, 1.0)
    assert leader.relay.state is not State.STOPPED
    assert {*leader.link.release()} == {Outcome(Verdict.ACCEPTED)}
    sent = ids(world)
    assert world.simulation.run(lambda: leader.relay.state is State.STOPPED, 1.0)
    assert ids(world) == sent
    assert {*world.rows} == {*range(1, IN_FLIGHT + 301)} - {*sent}
    stopped = world.simulation.now
    assert world.simulation.run(lambda: standby.relay.is_leader, 1.0)
    assert world.simulation.now - stopped <= DEFAULTS.poll + MOMENT
    assert standby.relay.term == term + 1
    until_empty(world)
    assert sorted(ids(world)) == [*range(1, IN_FLIGHT + 301)]
    assert (kinds(leader), kinds(standby)) == ([LeaderAcquired, LeaderRevoked], [LeaderAcquired])


def test_lost_answer_to_a_poll_changes_nothing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    poll = pair.leader.lease.poll
    left = 3

    async def lose(seconds: float, *, refresh: bool = False, note: str | None = None) -> LeaseState:
        nonlocal left
        state = await poll(seconds, refresh=refresh, note=note)
        left -= 1
        if left >= 0:
            raise LeaseUnavailableError("no answer")
        return state

    monkeypatch.setattr(pair.leader.lease, "poll", lose)
    assert pair.world.simulation.run(lambda: left == 0, 5.0)
    commit_rows(pair, 1, 100)
    until_empty(pair.world)
    every_key_is_in_order(pair.world, 100)
    assert len(pair.world.log) == 100
    assert pair.world.holds(pair.term)
    assert (kinds(pair.leader), kinds(pair.standby)) == ([LeaderAcquired], [])

"""A relay whose calls fail: new terms, fencing, a database that is unreachable."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from oplog_relay import (
    LeaderAcquired,
    LeaderFenced,
    LeaderRefreshed,
    LeaseState,
    OutboxError,
    Outcome,
    Purged,
    Row,
    Verdict,
)
from tests.kits.relay.running import (
    DEFAULTS,
    STEADY,
    Node,
    commit,
    ids,
    kinds,
    row,
    run,
    steady_world,
    until_empty,
)
from tests.kits.relay.world import FakeOutbox, World


@pytest.fixture
def world() -> Iterator[World]:
    with steady_world() as world:
        yield world


def test_a_lost_mark_is_followed_by_a_new_term_and_no_row_is_lost(world: World) -> None:
    node = Node(world, DEFAULTS)
    run(world, 0.5)
    leader_id = node.relay.leader_id
    world.faults = replace(STEADY, fail=1.0)
    commit(world, *map(row, range(1, 11)))
    run(world, 0.05)
    world.faults = STEADY
    until_empty(world)
    assert sorted({*ids(world)}) == [*range(1, 11)]
    event = node.events[-1]
    assert isinstance(event, LeaderRefreshed)
    assert (event.term, event.reason) == (node.relay.term, "mark failed: mark: no answer")
    assert node.relay.leader_id == event.leader_id != leader_id
    assert (node.relay.counters.refreshes, node.relay.counters.uncertain) == (1, 1)


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Outcome(Verdict.UNCERTAIN, "status 503"), "status 503"),
        (Outcome(Verdict.STALE, "term 1 is over"), "term 1 is over"),
    ],
)
def test_nothing_is_sent_between_an_uncertain_answer_and_the_new_term(
    world: World, outcome: Outcome, reason: str
) -> None:
    node = Node(world, DEFAULTS)
    terms: list[int] = []
    publish = node.publisher.publish

    async def fail_once(topic: str, rows: list[Row], term: int) -> Outcome:
        terms.append(term)
        return outcome if len(terms) == 1 else await publish(topic, rows, term)

    node.publisher.publish = fail_once  # type: ignore[assignment, method-assign]
    commit(world, row(1, "a"), row(2, "a"))
    until_empty(world)
    assert (terms, ids(world)) == ([1, 2, 2], [1, 2])
    assert node.events[-1] == LeaderRefreshed(node.relay.leader_id, 2, reason)  # type: ignore[arg-type]


def test_a_database_that_keeps_purged_rows_is_told_once(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a trigger or a policy of row security would do.
    monkeypatch.setattr(world, "purge", lambda _, rows: Purged(remaining=len(rows)))
    Node(world, DEFAULTS)
    commit(world, row(1, "a"), row(2, "b"), row(3, "a"))
    run(world, 1.0)
    assert sorted(ids(world)) == [1, 2, 3]
    told = [each.getMessage() for each in caplog.records if "the purge of" in each.getMessage()]
    assert len(told) == 1
    assert "in the table: a trigger or a policy of the database keeps them" in told[0]


def test_an_agent_says_how_long_to_wait_after_a_failure(world: World) -> None:
    node = Node(world, DEFAULTS)
    publish, times = node.publisher.publish, []

    async def fail_once(topic: str, rows: list[Row], term: int) -> Outcome:
        times.append(world.simulation.now)
        if len(times) == 1:
            return Outcome(Verdict.UNCERTAIN, "status 503", 3.0)
        return await publish(topic, rows, term)

    node.publisher.publish = fail_once  # type: ignore[assignment, method-assign]
    commit(world, row(1))
    until_empty(world)
    assert 3.0 <= times[1] - times[0] < 3.1


@pytest.mark.thorough
def test_failures_are_counted_until_a_minute_passes_without_one(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def mark(*_: object) -> list[Row]:
        raise OutboxError("away")

    node = Node(world, DEFAULTS)
    run(world, 1.0)
    for _ in range(2):
        node.events.clear()
        with monkeypatch.context() as patch:
            patch.setattr(FakeOutbox, "mark", mark)
            assert world.simulation.run(lambda: len(_failures(node)) == 5, 30.0)
        assert _failures(node) == [1, 2, 3, 4, 5]
        run(world, 70.0)
    told = [each for each in caplog.messages if each.startswith("a new term is needed")]
    assert [each.rpartition(" ")[2] for each in told] == ["1", "2", "4"] * 2


def _failures(node: Node) -> list[int]:
    return [each.failures for each in node.events if isinstance(each, LeaderRefreshed)]


def test_a_request_without_end_makes_a_new_term(world: World) -> None:
    node = Node(world, replace(DEFAULTS, queue_timeout=3.0))
    publish, terms = node.publisher.publish, []

    async def hang_once(topic: str, rows: list[Row], term: int) -> Outcome:
        terms.append(term)
        if len(terms) == 1:
            await asyncio.Event().wait()
        return await publish(topic, rows, term)

    node.publisher.publish = hang_once  # type: ignore[assignment, method-assign]
    commit(world, row(1))
    until_empty(world)
    assert terms == [1, 2]
    assert node.events[-1] == LeaderRefreshed(
        node.relay.leader_id,  # type: ignore[arg-type]
        2,
        "a row is in flight for more than 3 s",
    )


def test_a_leader_without_answers_fences_itself_after_a_heartbeat(world: World) -> None:
    node = Node(world, DEFAULTS)
    run(world, 1.0)
    leader_id = node.relay.leader_id
    polls: list[float] = []

    async def poll(seconds: float, **_: object) -> LeaseState:
        polls.append(world.simulation.now)
        return await asyncio.Future()

    node.lease.poll = poll  # type: ignore[method-assign]
    cut = world.simulation.now
    assert world.simulation.run(lambda: LeaderFenced in kinds(node), 10.0)
    assert 4.8 < world.simulation.now - cut <= 5.0
    # Each poll has half a heartbeat, so that another agent could be asked.
    assert len(polls) == 2
    marks = world.calls["mark"]
    commit(world, row(1))
    run(world, 3.0)
    assert (world.calls["mark"], ids(world)) == (marks, [])
    assert (node.relay.is_leader, node.relay.leader_id, node.relay.term) == (False, None, 0)
    event = node.events[-1]
    assert event == LeaderFenced(leader_id, 1, "no answer about the lease for 5 s")  # type: ignore[arg-type]


def test_a_poll_without_an_answer_is_told_as_a_time_out(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(world, DEFAULTS)

    async def hang(*_: object, **__: object) -> LeaseState:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(node.lease, "poll", hang)
    run(world, 10.0)
    assert caplog.messages == ["no agent answers about the lease: time-out"]


def test_a_leader_that_was_stopped_for_30_s_sends_nothing_with_its_old_term(world: World) -> None:
    first, second = Node(world, DEFAULTS), Node(world, DEFAULTS)
    run(world, 1.0)
    old, new = (first, second) if first.relay.is_leader else (second, first)
    commit(world, *(row(id, f"k{id % 7}") for id in range(1, 501)))
    assert world.simulation.run(lambda: len(world.log) > 100, 5.0)
    old.process.freeze(30.0)
    until_empty(world, 12.0)
    assert new.relay.is_leader
    sent = old.relay.counters.requests
    commit(world, row(501))
    run(world, 30.0)
    assert (old.relay.counters.requests, world.log[-1]) == (sent, ("k501", 501))
    assert kinds(old) == [LeaderAcquired, LeaderFenced]


def test_a_database_that_is_away_for_40_s_loses_no_row(world: World) -> None:
    node = Node(world, DEFAULTS)
    run(world, 1.0)
    commit(world, *(row(id, f"k{id % 7}") for id in range(1, 201)))
    assert world.simulation.run(lambda: len(world.log) > 50, 5.0)
    node.process.is_cut = True
    run(world, 40.0)
    assert not node.relay.is_leader
    node.process.is_cut = False
    until_empty(world)
    assert {*ids(world)} == {*range(1, 201)}

"""The turn to write, between processes."""

import asyncio
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from oplogd.shared import turn as turn_module
from oplogd.shared.bells import Bell, Bells
from oplogd.shared.role import Role
from oplogd.shared.turn import Turn, Turns
from tests.kits.processes.forks import Fork
from tests.kits.processes.logged import DEADLINE
from tests.kits.processes.suspend import suspend

Patch = pytest.MonkeyPatch

TURNS = 300
WORKERS = 3
HOUR = 3600.0


def turns_of(count: int = WORKERS, seconds: float = DEADLINE) -> Turns:
    return Turns(count, seconds)


def hold(turn: Turn) -> Fork:
    """Return a child that has the turn and keeps it."""

    def work(tell: Any) -> None:
        with turn:
            tell("held")
            signal.pause()

    child = Fork(work)
    assert child.told() == "held"
    return child


def test_no_wait_is_overtaken_twice_by_the_same_worker(monkeypatch: Patch) -> None:
    monkeypatch.setattr(turn_module, "PATIENCE_SECONDS", HOUR)  # bells alone wake, in their order
    turns, starts = turns_of(), Bells(WORKERS)

    def compete(number: int, tell: Any) -> None:
        turn = turns.each[number]
        tell("ready")
        starts.each[number].wait(DEADLINE)
        overtaken: Counter[tuple[int, int]] = Counter()
        for _ in range(TURNS):
            with turn:
                for other, row in enumerate(turns.memory.rows):
                    # A mark made before and written after this worker's look counts once.
                    if 0 < row[0] < turn.since:
                        overtaken[other, row[0]] += 1
        tell(max(overtaken.values(), default=0))

    with ExitStack() as stack:
        children = [
            stack.enter_context(Fork(partial(compete, number))) for number in range(WORKERS)
        ]
        assert [child.told() for child in children] == ["ready"] * WORKERS
        for bell in starts.each:
            bell.ring()
        assert max(child.told() for child in children) <= 1


def test_the_turn_of_a_killed_worker_is_free() -> None:
    turns = turns_of()
    with hold(turns.each[1]) as child:
        child.kill()
        with turns.each[0]:
            pass


def test_a_wait_for_a_suspended_worker_ends() -> None:
    turns = turns_of(seconds=0.05)
    waits: list[float] = []
    turns.each[0].observe = waits.append
    with hold(turns.each[1]) as child:
        suspend(child.pid)
        for _ in range(2):
            with pytest.raises(TimeoutError), turns.each[0]:
                pass
        assert waits == []
        assert turns.memory.rows[0][0] == 0  # it does not seem to wait any more
        child.kill()
        with turns.each[0]:
            pass
        assert len(waits) == 1


def test_a_worker_suspended_while_it_waits_holds_up_another_only_once(monkeypatch: Patch) -> None:
    turns, start = turns_of(), Bell()

    def wait(tell: Any) -> None:
        start.wait(DEADLINE)
        with turns.each[1]:
            tell("has the turn")
            signal.pause()

    with Fork(wait) as child:
        with turns.each[0]:
            start.ring()
            while not turns.memory.rows[1][0]:
                pass
            suspend(child.pid)
        with turns.each[2]:
            pass
        monkeypatch.setattr(turn_module, "PATIENCE_SECONDS", HOUR)
        for _ in range(TURNS):
            with turns.each[2]:
                pass


def test_a_worker_that_waits_and_is_awake_changes_its_mark(monkeypatch: Patch) -> None:
    """So it is not passed over again, however slow it is to take a free turn."""
    monkeypatch.setattr(turn_module, "PATIENCE_SECONDS", 0.001)
    turns = turns_of()
    marks = turns.memory.rows[0]
    with hold(turns.each[1]) as child, ThreadPoolExecutor(1) as threads:

        def take() -> None:
            with turns.each[0]:
                pass

        waiting = threads.submit(take)
        while not (first := marks[0]):
            pass
        while marks[0] == first:
            pass
        assert first - 1_000_000 < marks[0] < first  # the order stays
        child.kill()
        waiting.result(DEADLINE)


def test_another_worker_takes_over_a_role_at_the_death_of_its_holder() -> None:
    role = Role()

    def take(tell: Any) -> None:
        tell(role.take(1))
        signal.pause()

    with Fork(take) as child:
        assert child.told()
        assert not role.take(0)
        child.kill()
        assert role.take(0)
        assert role.take(0)
        with Fork(lambda tell: tell(role.take(1))) as late:
            assert not late.told()


async def test_a_worker_keeps_its_place_while_it_waits_in_the_loop(monkeypatch: Patch) -> None:
    monkeypatch.setattr(turn_module, "PATIENCE_SECONDS", HOUR)
    turns = turns_of()

    def hold_then_compete(tell: Any) -> None:
        with turns.each[1]:
            tell("held")
            while not turns.memory.rows[0][0]:
                pass
        with turns.each[1]:  # it comes later, so it waits for the other
            tell("again")

    waits: list[float] = []
    turns.each[0].observe = waits.append
    with Fork(hold_then_compete) as child:
        assert child.told() == "held"
        await turns.each[0].coming()
        assert waits == []
        with turns.each[0]:
            assert not child.has_told()
        assert child.told() == "again"
    assert len(waits) == 1


async def test_a_wait_in_the_loop_ends_with_the_patience_of_the_turn() -> None:
    turns = turns_of(seconds=0.05)
    with hold(turns.each[1]) as child:
        suspend(child.pid)
        await turns.each[0].coming()
        with pytest.raises(TimeoutError), turns.each[0]:
            pass


async def test_only_one_writer_of_a_worker_waits_in_the_loop() -> None:
    turns = turns_of()
    with hold(turns.each[1]) as child:
        first = asyncio.create_task(turns.each[0].coming())
        await asyncio.sleep(0)
        await turns.each[0].coming()
        assert not first.done()
        child.kill()
        await first


async def test_nothing_waits_in_the_loop_beside_a_writer_of_the_worker() -> None:
    turns = turns_of()
    with hold(turns.each[1]), turns.here:
        await turns.each[0].coming()

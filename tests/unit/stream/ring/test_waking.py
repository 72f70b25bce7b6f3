"""An operation that concerns thousands of views wakes their consumers in pieces."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from oplogd.model.event_id import Mark
from oplogd.model.operation import Operation
from oplogd.stream.follower import advance
from oplogd.stream.ring import ring as rings
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.ring import Ring
from tests.kits.clock.virtual import START_MS
from tests.kits.models.operations import entry, operation
from tests.unit.stream.rings import Sleeper, follow_on, make_ring

PARENTS = [f"p{number}" for number in range(20)]
PIECE = 12
OF_ALL = operation(parents=PARENTS)


@pytest.fixture(autouse=True)
def _few_views_per_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rings, "_MOST_VISITED", PIECE)


def wait(ring: Ring, *parents: str) -> Sleeper:
    sleeper = Sleeper()
    ring.view(Filter(parents=frozenset(parents))).waiting[sleeper] = None
    return sleeper


def waiting_for_one_each(ring: Ring) -> list[Sleeper]:
    """Return one consumer per view: each parent is in the filters of three views."""
    return [wait(ring, PARENTS[number % len(PARENTS)], f"own {number}") for number in range(3 * 20)]


def woken(sleepers: list[Sleeper]) -> int:
    assert {each.woken for each in sleepers} <= {0, 1}
    return sum(each.woken for each in sleepers)


def pieces(ring: Ring, sleepers: list[Sleeper]) -> Iterator[int]:
    """Yield how many are woken after each piece."""
    yield woken(sleepers)
    while ring.wake_more():
        yield woken(sleepers)
    yield woken(sleepers)


def test_consumers_are_woken_in_pieces_and_each_once() -> None:
    ring = make_ring()
    sleepers = waiting_for_one_each(ring)
    follow_on(ring, [OF_ALL])
    assert list(pieces(ring, sleepers)) == [12, 24, 36, 48, 60]
    assert not ring.wake_more()


def test_a_few_consumers_are_woken_at_once() -> None:
    ring = make_ring()
    sleepers = [wait(ring, "p0"), wait(ring, "p0", "other"), wait(ring, "p1")]
    follow_on(ring, [OF_ALL])
    assert woken(sleepers) == 3
    assert not ring.wake_more()


@pytest.mark.parametrize("committed", [False, True])
def test_any_entry_wakes_a_consumer_without_a_filter(committed: bool) -> None:
    ring, sleeper = make_ring(), Sleeper()
    ring.view(Filter(committed=committed)).waiting[sleeper] = None
    follow_on(ring, [OF_ALL])
    assert woken([sleeper]) == 1


def test_the_next_operation_does_not_forget_who_is_left() -> None:
    ring = make_ring()
    sleepers = waiting_for_one_each(ring)
    follow_on(ring, [OF_ALL])
    follow_on(ring, [operation(parents=["p0"])])
    while ring.wake_more():
        pass
    assert woken(sleepers) == 60


def test_a_consumer_that_leaves_meanwhile_is_not_woken() -> None:
    ring = make_ring()
    sleepers = waiting_for_one_each(ring)
    follow_on(ring, [OF_ALL])
    before = woken(sleepers)
    for view in list(ring.views.values()):
        view.waiting.clear()
        ring.release(view)
    while ring.wake_more():
        pass
    assert woken(sleepers) == before


def test_a_restart_wakes_all_and_leaves_no_piece() -> None:
    ring = make_ring()
    sleepers = waiting_for_one_each(ring)
    follow_on(ring, [OF_ALL])
    ring.restart(Mark(9, 9))
    assert woken(sleepers) == 60
    assert not ring.wake_more()


class Log:
    """A store with these operations for ``follow``."""

    def __init__(self, *operations: Operation) -> None:
        self.entries = [entry(offset, START_MS, op) for offset, op in enumerate(operations, 1)]

    async def follow(self, after: int, limit: int, seconds: float, at_ms: int | None = None) -> Any:
        return self.entries[after : after + limit]


async def test_other_work_runs_between_the_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oplogd.stream.follower._WORK_SECONDS", 0.0)
    ring = make_ring(head=Mark(0, START_MS))
    sleepers = waiting_for_one_each(ring)
    store: Any = Log(OF_ALL)
    feeding = asyncio.create_task(advance(store, ring, 0))
    seen = set()
    while not feeding.done():
        seen.add(woken(sleepers))
        await asyncio.sleep(0)
    await feeding
    assert seen == {0, 12, 24, 36, 48}

"""The waker wakes all, in their order, and fewer in a turn if they take long."""

import asyncio
from collections.abc import Callable

import pytest

from oplogd.stream.ring.waker import Waker
from tests.kits.clock.virtual import VirtualClock


class Sleeper:
    """Once woken it works for ``seconds``."""

    def __init__(
        self, woken: list["Sleeper"], work: Callable[[float], None] = lambda seconds: None
    ) -> None:
        self._woken = woken
        self._work = work
        self.seconds = 0.0

    def wake(self) -> None:
        self._woken.append(self)
        self._work(self.seconds)


async def turns(seconds: list[float], *, other: float = 0) -> list[int]:
    """Return the number of sleepers woken in each turn of the event loop.

    ``seconds``: that each works. ``other``: seconds of other work in each turn.
    """
    clock = VirtualClock()
    woken: list[Sleeper] = []
    waiting = [Sleeper(woken, clock.move) for _ in seconds]
    for sleeper, each in zip(waiting, seconds, strict=True):
        sleeper.seconds = each
    waker = Waker(clock.monotonic)
    waker.wake(waiting)
    assert not woken  # within the call
    counts = []
    while len(woken) < len(waiting):
        clock.move(other)
        before = len(woken)
        await asyncio.sleep(0)
        counts.append(len(woken) - before)
    assert woken == waiting
    return counts


async def test_quick_turns_wake_64() -> None:
    assert await turns([0.0001] * 200) == [64, 64, 64, 8]


async def test_a_turn_ends_when_it_has_taken_long() -> None:
    assert await turns([0.004] * 7 + [0.02] * 2 + [0.0001] * 70) == [3, 3, 2, 1, 64, 6]


async def test_long_other_work_does_not_keep_quick_consumers_waiting() -> None:
    assert await turns([0.0001] * 200, other=1.0) == [64, 64, 64, 8]


async def test_a_consumer_that_fails_does_not_keep_others_from_waking() -> None:
    woken: list[Sleeper] = []

    def fail(_seconds: float) -> None:
        raise KeyboardInterrupt

    waiting = [Sleeper(woken, fail), *(Sleeper(woken) for _ in range(3))]
    waker = Waker(VirtualClock().monotonic)
    turns: list[Callable[[], None]] = []
    loop = asyncio.get_running_loop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "call_soon", lambda turn: turns.append(turn))
        waker.wake(waiting)
        with pytest.raises(KeyboardInterrupt):
            turns.pop()()
        turns.pop()()
    assert (woken, turns) == (waiting, [])


async def test_a_consumer_that_is_already_due_is_not_woken_again() -> None:
    woken: list[Sleeper] = []
    waiting = [Sleeper(woken) for _ in range(300)]
    waker = Waker(VirtualClock().monotonic)
    for _ in range(10):
        waker.wake(waiting)
    for _ in range(10):
        await asyncio.sleep(0)
    assert woken[:300] == waiting
    assert len(woken) <= 300 + 64


async def test_consumers_that_become_due_meanwhile_are_woken_last() -> None:
    woken: list[Sleeper] = []
    first, late = [Sleeper(woken) for _ in range(100)], Sleeper(woken)
    waker = Waker(VirtualClock().monotonic)
    waker.wake(first)
    await asyncio.sleep(0)
    waker.wake([late])
    await asyncio.sleep(0)
    assert woken == [*first, late]

"""The waker wakes all, in their order, and fewer at a time if each takes long."""

import asyncio
from collections.abc import Callable

from oplogd.stream.ring.waker import Waker
from tests.kits.clock.virtual import VirtualClock


class Sleeper:
    """Once woken it works in the event loop for ``seconds``."""

    def __init__(
        self, woken: list["Sleeper"], work: Callable[[float], None] = lambda seconds: None
    ) -> None:
        self._woken = woken
        self._work = work
        self.seconds = 0.0

    def wake(self) -> None:
        self._woken.append(self)
        asyncio.get_running_loop().call_soon(lambda: self._work(self.seconds))


async def turns(sleepers: int, seconds: list[float], *, other: float = 0) -> list[int]:
    """Return the number woken in each turn of the event loop.

    ``seconds``: time that the sleepers of each turn take in total; the last item repeats.
    ``other``: seconds of other work in each turn.
    """
    clock = VirtualClock()
    woken: list[Sleeper] = []
    waiting = [Sleeper(woken, clock.move) for _ in range(sleepers)]
    waker = Waker(clock.monotonic)
    waker.wake(waiting)
    counts = [len(woken)]
    while True:
        woken[-1].seconds = seconds.pop(0) if len(seconds) > 1 else seconds[0]
        if len(woken) == sleepers:
            break
        clock.move(other)
        before = len(woken)
        await asyncio.sleep(0)
        counts.append(len(woken) - before)
    assert woken == waiting
    return counts


async def test_quick_turns_wake_64() -> None:
    assert await turns(200, [0.001]) == [64, 64, 64, 8]


async def test_turns_that_take_long_wake_fewer_until_they_are_quick_again() -> None:
    seconds = [*[0.02] * 8, 0.001]
    assert await turns(64 + 65 + 126 + 10, seconds) == [
        64, 32, 16, 8, 4, 2, 1, 1, 1, 2, 4, 8, 16, 32, 64, 10,
    ]  # fmt: skip


async def test_long_other_work_does_not_keep_quick_consumers_waiting() -> None:
    assert await turns(200, [0.001], other=1.0) == [64, 64, 64, 8]


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
    waker.wake([late])
    await asyncio.sleep(0)
    assert woken == [*first, late]

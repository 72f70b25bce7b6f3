"""Waking in turns: all are woken, in their order, and fewer at a time where each takes long."""

import asyncio
from collections.abc import Callable

import pytest

from oplogd.stream.alarm import Alarm


class Clock:
    """Time passes when somebody works."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        patch.setattr("oplogd.stream.alarm.time.perf_counter", lambda: self.now)

    def work(self, seconds: float) -> None:
        self.now += seconds


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


async def turns(
    monkeypatch: pytest.MonkeyPatch, sleepers: int, seconds: list[float], *, other: float = 0
) -> list[int]:
    """How many are woken in each turn of the event loop, where each turn's sleepers take so long in total.

    The last of ``seconds`` goes on. ``other``: seconds of other work in each turn.
    """
    clock = Clock(monkeypatch)
    woken: list[Sleeper] = []
    waiting = [Sleeper(woken, clock.work) for _ in range(sleepers)]
    alarm = Alarm()
    alarm.wake(waiting)
    counts = [len(woken)]
    while True:
        woken[-1].seconds = seconds.pop(0) if len(seconds) > 1 else seconds[0]
        if len(woken) == sleepers:
            break
        clock.work(other)
        before = len(woken)
        await asyncio.sleep(0)
        counts.append(len(woken) - before)
    assert woken == waiting
    return counts


async def test_quick_turns_wake_64(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await turns(monkeypatch, 200, [0.001]) == [64, 64, 64, 8]


async def test_turns_that_take_long_wake_fewer_until_they_are_quick_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = [*[0.02] * 8, 0.001]
    assert await turns(monkeypatch, 64 + 65 + 126 + 10, seconds) == [
        64, 32, 16, 8, 4, 2, 1, 1, 1, 2, 4, 8, 16, 32, 64, 10,
    ]  # fmt: skip


async def test_long_other_work_does_not_keep_quick_consumers_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await turns(monkeypatch, 200, [0.001], other=1.0) == [64, 64, 64, 8]


async def test_a_consumer_that_is_due_already_is_not_noted_again() -> None:
    woken: list[Sleeper] = []
    waiting = [Sleeper(woken) for _ in range(300)]
    alarm = Alarm()
    for _ in range(10):
        alarm.wake(waiting)
    for _ in range(10):
        await asyncio.sleep(0)
    assert woken[:300] == waiting
    assert len(woken) <= 300 + 64


async def test_those_that_come_meanwhile_are_woken_last() -> None:
    woken: list[Sleeper] = []
    first, late = [Sleeper(woken) for _ in range(100)], Sleeper(woken)
    alarm = Alarm()
    alarm.wake(first)
    alarm.wake([late])
    await asyncio.sleep(0)
    assert woken == [*first, late]

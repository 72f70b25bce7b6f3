"""Waking in turns: all are woken, in their order, and fewer at a time where each takes long."""

import asyncio

import pytest

from oplogd.stream.alarm import Alarm


class Sleeper:
    def __init__(self, woken: list["Sleeper"]) -> None:
        self._woken = woken

    def wake(self) -> None:
        self._woken.append(self)


async def turns(monkeypatch: pytest.MonkeyPatch, sleepers: int, seconds: list[float]) -> list[int]:
    """How many are woken in each turn of the event loop, where turns take so long; the last of ``seconds`` goes on."""
    clock = 0.0
    monkeypatch.setattr("oplogd.stream.alarm.time.perf_counter", lambda: clock)
    woken: list[Sleeper] = []
    waiting = [Sleeper(woken) for _ in range(sleepers)]
    alarm = Alarm()
    alarm.wake(waiting)
    counts = [len(woken)]
    while len(woken) < sleepers:
        clock += seconds.pop(0) if len(seconds) > 1 else seconds[0]
        before = len(woken)
        await asyncio.sleep(0)
        counts.append(len(woken) - before)
    assert woken == waiting
    return counts


async def test_quick_turns_wake_64(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await turns(monkeypatch, 200, [0.001]) == [64, 64, 64, 8]


async def test_turns_that_take_long_wake_fewer_until_they_are_quick_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [*[0.02] * 8, 0.001]
    assert await turns(monkeypatch, 64 + 65 + 126 + 10, seconds) == [
        64, 32, 16, 8, 4, 2, 1, 1, 1, 2, 4, 8, 16, 32, 64, 10,
    ]  # fmt: skip


async def test_those_that_come_meanwhile_are_woken_last() -> None:
    woken: list[Sleeper] = []
    first, late = [Sleeper(woken) for _ in range(100)], Sleeper(woken)
    alarm = Alarm()
    alarm.wake(first)
    alarm.wake([late])
    await asyncio.sleep(0)
    assert woken == [*first, late]

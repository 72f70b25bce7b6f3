"""Bells within one process."""

import asyncio
import os
import select
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from oplogd.shared import bells as module
from oplogd.shared.bells import Bell, Bells
from tests.kits.processes.logged import DEADLINE

Patch = pytest.MonkeyPatch


class Ear:
    """Counts what it hears."""

    def __init__(self) -> None:
        self.count = 0
        self._heard = asyncio.Event()

    def hear(self) -> None:
        self.count += 1
        self._heard.set()

    async def heard(self) -> None:
        async with asyncio.timeout(DEADLINE):
            await self._heard.wait()
        self._heard.clear()


@asynccontextmanager
async def listening(bell: Bell) -> AsyncIterator[Ear]:
    ear = Ear()
    task = asyncio.create_task(bell.listen(ear.hear))
    try:
        yield ear
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_all_other_workers_hear_a_ring_and_its_ringer_does_not() -> None:
    bells = Bells(3)
    async with listening(bells.each[0]) as own, listening(bells.each[1]) as one:
        async with listening(bells.each[2]) as other:
            bells.ring_others(0)
            await one.heard()
            await other.heard()
        assert own.count == 0


async def test_a_ring_may_be_taken_by_another_listener_of_the_process() -> None:
    """The event loop and a thread of a worker listen to one bell."""
    bell = Bell()

    class Beaten:
        def poll(self, _milliseconds: float) -> list[tuple[int, int]]:
            os.eventfd_read(bell._file)  # by the other one
            return [(bell._file, select.POLLIN)]

    bell.ring()
    bell._poll = cast(select.poll, Beaten())
    bell.wait(0)


async def test_rings_before_and_between_are_heard_once(monkeypatch: Patch) -> None:
    pauses: asyncio.Queue[float] = asyncio.Queue()
    resumed = asyncio.Event()

    async def sleep(seconds: float) -> None:
        pauses.put_nowait(seconds)
        await resumed.wait()
        resumed.clear()

    monkeypatch.setattr("oplogd.shared.bells.asyncio.sleep", sleep)
    bell = Bell()
    for _ in range(5):
        bell.ring()
    async with listening(bell) as ear:
        for times in range(1, 4):
            await ear.heard()
            assert (ear.count, await pauses.get()) == (times, module.PAUSE_SECONDS)
            for _ in range(1000):
                bell.ring()
            assert ear.count == times  # a flood costs nothing during the pause
            resumed.set()
    assert module.PAUSE_SECONDS <= 0.002


async def test_a_ring_that_no_one_heard_is_heard_by_the_next_listener() -> None:
    bell = Bell()
    async with listening(bell):
        pass
    bell.ring()
    async with listening(bell) as ear:
        await ear.heard()
    bell.ring()
    bell.wait(DEADLINE)
    bell.wait(0)  # there is none left

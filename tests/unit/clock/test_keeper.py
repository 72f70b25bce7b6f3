"""The task that looks at the clocks, and says how far a store is ahead."""

import asyncio
import logging

import pytest

from oplogd.clock.keeper import ClockKeeper
from oplogd.errors import StoreUnavailableError
from tests.kits.clock.virtual import VirtualClock


class KeptStore:
    """Counts the calls. Each answers with the present ``ahead``, or raises ``trouble``."""

    def __init__(self) -> None:
        self.kept = self.looked = 0
        self.ahead = 0
        self.trouble: Exception | None = None

    async def keep_clock(self) -> None:
        self.kept += 1
        if self.trouble is not None:
            raise self.trouble

    async def ahead_ms(self) -> int:
        self.looked += 1
        return self.ahead


async def passed(clock: VirtualClock, seconds: int) -> None:
    for _ in range(seconds):
        clock.move(1)
        for _ in range(5):
            await asyncio.sleep(0)


async def test_it_looks_each_second_and_tells_once_that_a_store_is_ahead(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    clock, store = VirtualClock(), KeptStore()
    keeper = ClockKeeper(store, clock.clock)
    task = asyncio.create_task(keeper.run())
    await passed(clock, 1)
    assert keeper.warning is None
    store.ahead = 3_600_000
    await passed(clock, 180)
    assert (store.kept, store.looked) == (181, 4)
    (line,) = caplog.records
    assert line.levelno == logging.WARNING
    assert line.getMessage() == keeper.warning
    assert "the store is ahead by 3600 s" in line.getMessage()
    assert "--new-epoch" in line.getMessage()
    store.ahead = 0
    await passed(clock, 60)
    assert keeper.warning is None
    assert caplog.messages[1:] == ["no time in the store is ahead of the clock any more"]
    task.cancel()


@pytest.mark.parametrize(
    ("trouble", "logged"), [(StoreUnavailableError("away"), 0), (ValueError("x"), 1)]
)
async def test_it_goes_on_after_trouble(
    caplog: pytest.LogCaptureFixture, trouble: Exception, logged: int
) -> None:
    clock, store = VirtualClock(), KeptStore()
    store.trouble = trouble
    task = asyncio.create_task(ClockKeeper(store, clock.clock).run())
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(caplog.records) == logged
    store.trouble = None
    await passed(clock, 9)
    assert (store.kept, store.looked) == (1, 0)
    await passed(clock, 3)
    assert (store.kept, store.looked) == (4, 1)
    task.cancel()

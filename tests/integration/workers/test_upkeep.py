"""The upkeep of the store: one worker does it, another takes over."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

from oplogd.config.settings import Settings
from oplogd.shared.role import TRY_SECONDS
from oplogd.store import Store
from oplogd.stream.feeds import Feeds
from oplogd.topics.keeper import FIRST_SECONDS, SECONDS
from oplogd.workers.upkeep import Upkeep
from oplogd.workers.workers import Worker, Workers
from tests.kits.clock.virtual import VirtualClock
from tests.kits.processes.forks import Fork
from tests.kits.processes.logged import DEADLINE

CLEANUP = 3600.0


class Side:
    """A worker with a store that only counts the calls of the upkeep."""

    def __init__(self, workers: Workers, number: int, kind: str = "sqlite") -> None:
        self.clock = VirtualClock()
        self.calls: Counter[str] = Counter()
        self._called = asyncio.Condition()
        store = SimpleNamespace(kind=kind, space=object())
        store.topics = SimpleNamespace(
            shrink=self._counts("shrink"), sweep=self._counts("sweep"), stats=None
        )
        store.transactions = SimpleNamespace(
            keep=self._counts("transactions"), retire=self._counts("retire"), stats=None
        )
        store.pointers = SimpleNamespace(keep=self._counts("pointers"), stats=None)
        settings = SimpleNamespace(topic_cleanup=CLEANUP, tombstone_retention=None)
        feeds = SimpleNamespace(is_followed=None)
        self.upkeep = Upkeep(
            cast(Settings, settings),
            cast(Store, store),
            cast(Feeds, feeds),
            self.clock.clock,
            Worker(workers, number),
        )

    def _counts(self, name: str) -> Callable[..., Any]:
        async def call(*_: object) -> int:
            async with self._called:
                self.calls[name] += 1
                self._called.notify_all()
            return 0

        return call

    async def called(self, name: str, times: int) -> None:
        """Wait until a method was called as often as this."""
        async with asyncio.timeout(DEADLINE), self._called:
            await self._called.wait_for(lambda: self.calls[name] >= times)
        assert self.calls[name] == times

    async def pass_(self, seconds: float) -> None:
        """Let time pass when all tasks wait for it."""
        for _ in range(100):
            await asyncio.sleep(0)
        self.clock.move(seconds)
        for _ in range(100):
            await asyncio.sleep(0)


@asynccontextmanager
async def running(*sides: Side) -> AsyncIterator[None]:
    tasks = [
        asyncio.create_task(work, name=name) for each in sides for name, work in each.upkeep.tasks()
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(end) for end in ends} == {asyncio.CancelledError}


async def test_one_worker_does_the_upkeep_for_all() -> None:
    workers = Workers(2)
    first, second = Side(workers, 0), Side(workers, 1)
    async with running(first, second):
        for _ in range(3):
            for side in (first, second):
                await side.pass_(SECONDS)
        await first.called("shrink", 3)
        assert second.calls == {}


async def test_each_worker_on_mongodb_tries_to_do_the_upkeep() -> None:
    workers = Workers(2)
    sides = [Side(workers, number, "mongodb") for number in range(2)]
    async with running(*sides):
        for side in sides:
            await side.pass_(SECONDS)
            await side.called("shrink", 1)


async def test_a_sweep_asked_for_at_any_worker_begins_at_once() -> None:
    workers = Workers(2)
    first, second = Side(workers, 0), Side(workers, 1)
    async with running(first, second):
        await first.pass_(FIRST_SECONDS)
        await first.called("sweep", 1)
        for times, side in enumerate((second, first, second), 2):
            side.upkeep.sweep_soon()
            await first.called("sweep", times)
        assert second.calls == {}


async def test_another_worker_takes_the_upkeep_over_and_hears_an_earlier_wish() -> None:
    workers = Workers(2)
    assert workers.store is not None
    role = workers.store.upkeep

    def hold(tell: Callable[[Any], None]) -> None:
        tell(role.take(0))
        signal.pause()

    with Fork(hold) as holder:
        assert holder.told()
        side = Side(workers, 1)
        async with running(side):
            await side.pass_(TRY_SECONDS)
            side.upkeep.sweep_soon()
            assert side.calls == {}
            holder.kill()
            await side.pass_(TRY_SECONDS)
            await side.called("sweep", 1)
            await side.pass_(SECONDS)
            await side.called("shrink", 1)

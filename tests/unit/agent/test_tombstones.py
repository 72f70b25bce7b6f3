"""The pace at which deleted states are purged."""

import asyncio
from typing import cast

import pytest

from oplogd.clock.guard import GuardedClock
from oplogd.store import Store
from oplogd.tombstones import purge_tombstones
from tests.kits.clock.virtual import START_MS, VirtualClock


class PurgedStore:
    """Notes the times up to which it was purged."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = GuardedClock(clock.clock)
        self.purged: list[int] = []

    async def locate(self) -> None: ...

    async def purge(self, before_ms: int) -> int:
        self.purged.append(before_ms)
        return 0


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("retention", "pause"), [(5.0, 1.0), (100.0, 10.0), (36_000.0, 3_600.0), (1e6, 3_600.0)]
)
async def test_it_is_ten_times_per_retention_at_most_each_second_and_at_least_each_hour(
    retention: float, pause: float
) -> None:
    clock = VirtualClock()
    store = PurgedStore(clock)
    task = asyncio.create_task(purge_tombstones(cast(Store, store), retention, clock.clock))
    await turns()
    assert store.purged == [START_MS - retention * 1000]
    for number in range(1, 4):
        clock.move(pause - 0.001)
        await turns()
        assert len(store.purged) == number
        clock.move(0.001)
        await turns()
        assert store.purged[number] == START_MS + (number * pause - retention) * 1000
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

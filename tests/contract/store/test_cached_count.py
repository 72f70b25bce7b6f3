"""A long count delays no call, and a failed one is made again."""

import asyncio

import pytest

from oplogd.errors import StoreUnavailableError
from oplogd.store import cached_count
from oplogd.store.cached_count import CachedCount
from tests.kits.processes.logged import DEADLINE


class Counting:
    def __init__(self) -> None:
        self.number = 7
        self.seconds = 0.0
        self.calls = 0
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def count(self) -> tuple[int, float]:
        self.calls += 1
        number = self.number
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return number, self.seconds


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a call wait for its count, also on a busy machine."""
    monkeypatch.setattr(cached_count, "COUNT_SECONDS", DEADLINE)


async def test_a_quick_count_is_made_at_each_call() -> None:
    counting = Counting()
    number = CachedCount(counting.count)
    assert await number.value() == 7
    counting.number = 8
    assert await number.value() == 8


async def test_while_a_count_takes_long_the_last_number_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cached_count, "COUNT_SECONDS", 0.001)
    counting = Counting()
    counting.gate.clear()
    number = CachedCount(counting.count)
    assert [await number.value() for _ in range(3)] == [None] * 3
    assert counting.calls == 1
    counting.gate.set()
    async with asyncio.timeout(DEADLINE):
        while await number.value() is None:
            await asyncio.sleep(0)
        counting.gate.clear()
        counting.number = 8
        assert await number.value() == 7
        counting.gate.set()
        while await number.value() != 8:
            await asyncio.sleep(0)


async def test_a_count_that_cost_much_is_not_made_again_soon() -> None:
    counting = Counting()
    counting.seconds = 1000.0
    number = CachedCount(counting.count)
    assert [await number.value() for _ in range(3)] == [7] * 3
    assert counting.calls == 1


async def test_a_count_that_failed_raises_and_is_made_again() -> None:
    counting = Counting()
    counting.error = StoreUnavailableError("away")
    number = CachedCount(counting.count)
    with pytest.raises(StoreUnavailableError, match="away"):
        await number.value()
    counting.error = None
    assert await number.value() == 7


async def test_a_count_under_way_is_given_up_at_the_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_count, "COUNT_SECONDS", 0.001)
    counting = Counting()
    counting.gate.clear()
    number = CachedCount(counting.count)
    assert await number.value() is None
    await number.close()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "count"]

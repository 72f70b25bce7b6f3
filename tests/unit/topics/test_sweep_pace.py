"""When expired messages are swept, by a clock that the test moves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from oplogd.errors import StoreUnavailableError
from oplogd.topics.keeper import FIRST_SECONDS, sweep_topics
from tests.kits.clock.virtual import VirtualClock
from tests.kits.topics.memory import MemoryTopics


class SweptTopics(MemoryTopics):
    """Counts the sweeps. They fail while ``failure`` is set."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock.now_ms)
        self.sweeps = 0
        self.failure: Exception | None = None

    async def sweep(self) -> int:
        self.sweeps += 1
        if self.failure is not None:
            raise self.failure
        return 0


@asynccontextmanager
async def swept(
    clock: VirtualClock, seconds: float, asked: asyncio.Event | None = None
) -> AsyncIterator[SweptTopics]:
    topics = SweptTopics(clock)
    task = asyncio.create_task(sweep_topics(topics, seconds, clock.clock, asked))
    await pass_(clock, 0)
    yield topics
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def pass_(clock: VirtualClock, seconds: float) -> None:
    """Let time pass, and the task do all that is due."""
    clock.move(seconds)
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("seconds", "first"), [(60.0, FIRST_SECONDS), (4.0, 4.0)])
async def test_the_first_sweep_is_soon_and_the_others_follow_at_equal_distances(
    seconds: float, first: float
) -> None:
    clock = VirtualClock()
    async with swept(clock, seconds) as topics:
        await pass_(clock, first - 0.001)
        assert topics.sweeps == 0
        await pass_(clock, 0.001)
        assert topics.sweeps == 1
        for number in range(2, 5):
            await pass_(clock, seconds - 0.001)
            assert topics.sweeps == number - 1
            await pass_(clock, 0.001)
            assert topics.sweeps == number


async def test_a_sweep_that_is_asked_for_begins_at_once_and_the_next_is_due_a_distance_later() -> (
    None
):
    clock, asked = VirtualClock(), asyncio.Event()
    async with swept(clock, 60.0, asked) as topics:
        for number in (1, 2):
            asked.set()
            await pass_(clock, 0)
            assert topics.sweeps == number
        await pass_(clock, 59.999)
        assert topics.sweeps == 2
        await pass_(clock, 0.001)
        assert topics.sweeps == 3


@pytest.mark.parametrize("failure", [StoreUnavailableError("away"), ValueError("broken")])
async def test_a_sweep_that_fails_is_logged_and_repeated(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    clock = VirtualClock()
    async with swept(clock, 60.0) as topics:
        topics.failure = failure
        await pass_(clock, FIRST_SECONDS)
        assert caplog.messages[0].startswith("cannot remove expired messages")
        topics.failure = None
        await pass_(clock, 60)
        assert topics.sweeps == 2
    assert len(caplog.messages) == 1


async def test_a_failure_that_repeats_is_logged_once_until_a_sweep_succeeds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = VirtualClock()
    async with swept(clock, 10.0) as topics:
        for text in ("full", "full", "full", "away", "", "away"):
            topics.failure = StoreUnavailableError(text) if text else None
            await pass_(clock, 10)
        assert topics.sweeps == 6
    assert [each.rpartition(" ")[2] for each in caplog.messages] == ["full", "away", "away"]

"""When idle groups are looked for, by a clock that the test moves."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from oplogd.errors import StoreUnavailableError
from oplogd.topics.transactions.idle import FIRST_SECONDS, retire_groups
from tests.kits.clock.virtual import VirtualClock
from tests.kits.topics.memory import MemoryTopics
from tests.kits.topics.memory_transactions import MemoryTransactions


class Watched(MemoryTransactions):
    """``answers``: of the calls. ``spared``: logs that a call must leave alone."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(MemoryTopics(clock.now_ms))
        self.answers: list[int | Exception] = []
        self.spared: list[list[int]] = []

    async def retire(self, is_followed: Callable[[int], bool]) -> int:
        self.spared.append([log for log in range(5) if is_followed(log)])
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_the_search_is_repeated_whatever_happens(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = VirtualClock()
    transactions = Watched(clock)
    transactions.answers = [0, StoreUnavailableError("away"), ValueError("a fault"), 3]
    task = asyncio.create_task(
        retire_groups(transactions, lambda log: log == 2, 3_600, clock.clock)
    )
    counts = []
    for seconds in (0, FIRST_SECONDS - 1, 1, 3_600, 3_600, 3_600):
        await asyncio.sleep(0)
        clock.move(seconds)
        for _ in range(5):
            await asyncio.sleep(0)
        counts.append(len(transactions.spared))
    task.cancel()
    assert counts == [0, 0, 1, 2, 3, 4]
    assert transactions.spared == [[2]] * 4
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("WARNING", "cannot delete the logs of idle groups: away"),
        ("ERROR", "cannot delete the logs of idle groups"),
        ("INFO", "deleted the commit logs of 3 idle groups of transactions"),
    ]

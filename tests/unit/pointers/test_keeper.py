"""The keeper of pointers goes on whatever the store does, beside that of transactions."""

import asyncio
import logging
from typing import Any

import pytest

from oplogd.errors import StoreUnavailableError
from oplogd.topics.keeper import keep
from tests.kits.processes.logged import DEADLINE


class Part:
    """A part of a store. Each call of ``keep`` takes the next answer; then all are taken."""

    def __init__(self, *answers: int | Exception) -> None:
        self._answers = [*answers]
        self.taken = asyncio.Event()

    async def keep(self) -> int:
        if not self._answers:
            self.taken.set()
            await asyncio.Event().wait()
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def stats(self) -> None:
        """Answer always."""


def test_a_failure_of_one_keeper_is_logged_once_and_stops_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        away = StoreUnavailableError("store x: away")
        pointers: Any = Part(away, away, 2, ValueError("broken"), 0)
        transactions: Any = Part(0, 0, 0, 0, 0)
        tasks = [
            asyncio.create_task(keep(part.keep, part.stats, name, name, 0))
            for name, part in (("pointers", pointers), ("transactions", transactions))
        ]
        async with asyncio.timeout(DEADLINE):
            await pointers.taken.wait()
            await transactions.taken.wait()
        for task in tasks:
            assert not task.done()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    with caplog.at_level(logging.INFO):
        asyncio.run(work())
    logged = [(each.name, each.getMessage()) for each in caplog.records if "oplogd" in each.name]
    assert {name for name, _ in logged} == {"oplogd.pointers"}
    away, over, fault, trouble, end = (message for _, message in logged)
    assert away == "cannot look after pointers: store x: away"
    assert over.startswith("cannot look after pointers: over, 2 times")
    assert fault == "the store failed"
    assert trouble == "cannot look after pointers: ValueError('broken')"
    assert end.startswith("cannot look after pointers: over, 1 time")

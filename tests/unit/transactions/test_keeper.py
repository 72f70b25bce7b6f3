"""The keeper of transactions goes on whatever the store does, and logs each trouble once."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from oplogd.errors import StoreUnavailableError
from oplogd.topics.keeper import keep

AWAY = StoreUnavailableError("store x: away")


class Answers:
    """Answers calls of ``keep`` one after the other, then cancels the keeper.

    ``hangs``: so many calls of ``stats`` fail.
    """

    def __init__(self, answers: Sequence[int | Exception], hangs: int = 0) -> None:
        self.left = [*answers]
        self.hangs = hangs
        self.keeper: asyncio.Task[None]

    async def stats(self) -> None:
        self.hangs -= 1
        if self.hangs >= 0:
            raise AWAY

    async def keep(self) -> int:
        if not self.left:
            self.keeper.cancel()
            await asyncio.Event().wait()
        answer = self.left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def logged(
    caplog: pytest.LogCaptureFixture, *answers: int | Exception, hangs: int = 0
) -> list[str]:
    """Run the keeper over these answers. Return its warnings and errors."""

    async def work() -> None:
        store: Any = Answers(answers, hangs)
        store.keeper = asyncio.create_task(
            keep(store.keep, store.stats, "transactions", "transactions", 0)
        )
        with pytest.raises(asyncio.CancelledError):
            await store.keeper
        assert store.left == []

    with caplog.at_level(logging.INFO):
        asyncio.run(work())
    return [record.getMessage() for record in caplog.records if record.name.startswith("oplogd")]


def test_a_keeper_without_trouble_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert logged(caplog, 0, 3, 0) == []


def test_a_store_that_is_away_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    first, end = logged(caplog, 0, AWAY, AWAY, AWAY, 0, 0)
    assert first == "cannot look after transactions: store x: away"
    assert end.startswith("cannot look after transactions: over, 3 times")


def test_work_of_another_agent_is_no_sign_that_the_store_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, end = logged(caplog, AWAY, 0, 0, 0, 0, hangs=3)
    assert first == "cannot look after transactions: store x: away"
    assert end.startswith("cannot look after transactions: over, 4 times")


def test_a_fault_is_logged_once_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    first, second, end = logged(caplog, ValueError("broken"), ValueError("broken"), 0)
    assert first == "the store failed"
    assert second == "cannot look after transactions: ValueError('broken')"
    assert end.startswith("cannot look after transactions: over, 2 times")
    assert caplog.records[0].exc_info is not None

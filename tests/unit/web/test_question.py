"""A store that hangs delays /status once, and a fault in a figure is logged once."""

import asyncio
from typing import Any

import pytest

from oplogd.clock import SYSTEM
from oplogd.errors import StoreUnavailableError
from oplogd.web.figures.question import DecidedFigures, Question


class Store:
    """Answers, raises ``error``, or hangs until ``gate`` is set."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def stats(self) -> tuple[int, int]:
        self.calls += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return self.calls, 0


async def test_a_question_without_an_answer_is_not_asked_again_until_it_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store()
    question = Question(store.stats)
    assert await question.answer() == (1, 0)
    store.gate.clear()
    monkeypatch.setattr(question, "_seconds", 0.0)
    for _ in range(3):
        with pytest.raises(StoreUnavailableError, match="did not answer within 2 s"):
            await question.answer()
    assert store.calls == 2
    store.gate.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await question.answer() == (3, 0), "a new answer, not the late one"


async def test_after_a_failure_the_next_answer_has_less_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float | None] = []
    wait = asyncio.wait

    async def noting(calls: Any, *, timeout: float | None = None) -> Any:
        waits.append(timeout)
        return await wait(calls, timeout=timeout)

    monkeypatch.setattr(asyncio, "wait", noting)
    store = Store()
    question = Question(store.stats)
    store.error = StoreUnavailableError("away")
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match="away"):
            await question.answer()
    store.error = None
    await question.answer()
    await question.answer()
    assert waits == [2.0, 0.25, 0.25, 2.0]


async def test_a_fault_in_the_figures_of_transactions_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    store = Store()
    transactions: Any = store
    figures = DecidedFigures(transactions, "transactions", "oldest_open_seconds", SYSTEM)
    store.error = ValueError("broken")
    unknown = {"open": None, "oldest_open_seconds": None}
    assert await figures.members() == await figures.members() == unknown
    store.error = StoreUnavailableError("away")
    assert await figures.members() == unknown
    store.error = None
    assert await figures.members() == {"open": 4, "oldest_open_seconds": 0}
    fault, begin, end = caplog.messages
    assert fault == "the store failed"
    assert begin == "/status lacks the figures of open transactions: ValueError('broken')"
    assert end.startswith("/status lacks the figures of open transactions: over, 2 times")


async def test_the_time_for_which_the_process_was_stopped_is_no_lack_of_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When the process goes on, its timers are due before the answers of its threads are read."""
    store = Store()
    store.gate.clear()
    asked, wait = Question(store.stats), asyncio.wait

    async def stopped(calls: Any, *, timeout: float | None = None) -> Any:
        """Return when the time is over; the answer comes behind that."""
        done = await wait(calls, timeout=0)
        store.gate.set()
        return done

    monkeypatch.setattr(asyncio, "wait", stopped)
    assert await asked.answer() == (1, 0)

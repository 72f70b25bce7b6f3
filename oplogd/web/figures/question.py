"""Questions to the store for /status, with a bounded wait. Figures of transactions and pointers."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from oplogd.clock import Clock
from oplogd.errors import StoreUnavailableError
from oplogd.host.logs import Episode
from oplogd.store.pointers import Pointers
from oplogd.store.transactions import Transactions

# Longest wait for an answer, and for an answer after a failure.
STORE_TIMEOUT_SECONDS = 2.0
AGAIN_SECONDS = 0.25
# If the process was stopped meanwhile, its timers end before it reads answers.
_GRACE_SECONDS = 0.05

_T = TypeVar("_T")

logger = logging.getLogger("oplogd.http")


class Question(Generic[_T]):
    """A question to the store. It is not repeated while a call is unanswered."""

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, _T]]) -> None:
        self._ask = ask
        self._seconds = STORE_TIMEOUT_SECONDS
        self._unanswered: asyncio.Task[_T] | None = None

    async def answer(self) -> _T:
        """Return the answer. Raises StoreUnavailableError and the errors of the question.

        After a failure the wait is at most AGAIN_SECONDS. While an earlier call is unanswered,
        there is no wait.
        """
        if self._unanswered is not None and not self._unanswered.done():
            raise _no_answer()
        call = asyncio.create_task(self._ask(), name="question to the store")
        try:
            await asyncio.wait({call}, timeout=self._seconds)
            if not call.done():
                await asyncio.wait({call}, timeout=_GRACE_SECONDS)
        except asyncio.CancelledError:
            call.cancel()
            raise
        if not call.done():
            self._seconds = AGAIN_SECONDS
            self._unanswered = call
            call.add_done_callback(lambda task: task.cancelled() or task.exception())
            raise _no_answer()
        self._seconds = AGAIN_SECONDS if call.exception() else STORE_TIMEOUT_SECONDS
        return call.result()


def _no_answer() -> StoreUnavailableError:
    return StoreUnavailableError(f"the store did not answer within {STORE_TIMEOUT_SECONDS:g} s")


class DecidedFigures:
    """Reads the figures of the open transactions or pointers. Each topic of a pointer is counted.

    ``name``: the plural for the log. ``age``: the member with the age of the oldest open one, in
    seconds. A fault in a figure is logged and leaves /status complete.
    """

    def __init__(self, part: Transactions | Pointers, name: str, age: str, clock: Clock) -> None:
        self._age = age
        self._clock = clock
        self._stats = Question[tuple[int, int]](part.stats)
        self._fault = Episode(logger, f"/status lacks the figures of open {name}")

    async def members(self) -> dict[str, Any]:
        """Return ``open`` and the age. They are None if they are unknown."""
        count, age = await self._open()
        return {"open": count, self._age: age}

    async def _open(self) -> tuple[int | None, float | None]:
        try:
            count, oldest_ms = await self._stats.answer()
        except StoreUnavailableError:  # the member ``store`` gives the reason
            return None, None
        except Exception as error:
            if not self._fault.active:
                logger.error("the store failed", exc_info=error)
            self._fault.occurred(detail=repr(error))
            return None, None
        self._fault.end()
        return count, max(0, self._clock.now_ms() - oldest_ms) / 1000 if oldest_ms else 0

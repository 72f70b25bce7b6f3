"""Questions to the store for /status, with a bounded wait."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from oplogd.errors import StoreUnavailableError

# Longest wait for an answer, and for an answer after a failure.
STORE_TIMEOUT_SECONDS = 2.0
AGAIN_SECONDS = 0.25
# If the process was stopped meanwhile, its timers end before it reads answers.
_GRACE_SECONDS = 0.05

_T = TypeVar("_T")


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

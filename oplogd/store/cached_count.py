"""Caches a number."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

# How long a call waits for a count.
COUNT_SECONDS = 0.2

_QUICK_SECONDS = 0.01
_T = TypeVar("_T")


class CachedCount(Generic[_T]):
    """The last result of ``count``, which returns a number and its cost in seconds.

    A count of 10 ms or longer runs at most 2 % of the time. One longer than COUNT_SECONDS continues
    in the background; until its end the previous number is returned.
    """

    def __init__(self, count: Callable[[], Awaitable[tuple[_T, float]]]) -> None:
        self._count = count
        self._value: _T | None = None
        self._counted = 0.0
        self._valid_until = 0.0
        self._counting: asyncio.Task[None] | None = None

    async def value(self) -> _T | None:
        """Return the last number, None before the first. Raises the errors of ``count``."""
        called = time.monotonic()
        while self._counted < called and called >= self._valid_until:
            left = called + COUNT_SECONDS - time.monotonic()
            if left <= 0:
                break
            if self._counting is None:
                self._counting = asyncio.create_task(self._run(), name="count")
                self._counting.add_done_callback(lambda task: task.cancelled() or task.exception())
            counting = self._counting
            await asyncio.wait({counting}, timeout=left)
            if counting.done():
                counting.result()
        return self._value

    async def close(self) -> None:
        """Cancel a running count."""
        if self._counting is not None:
            self._counting.cancel()
            await asyncio.gather(self._counting, return_exceptions=True)

    async def _run(self) -> None:
        started = time.monotonic()
        try:
            self._value, cost = await self._count()
        finally:
            self._counting = None
        self._counted = started
        self._valid_until = time.monotonic() + 50 * cost if cost > _QUICK_SECONDS else 0.0

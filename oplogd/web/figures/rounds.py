"""Questions to the other workers, shared by the requests that come at the same time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Rounds(Generic[_T]):
    """Does a work for all callers, one round at a time.

    A round serves only calls from before its begin. Calls during a round share the next one. So
    frequent requests cost the other workers no more than one question at a time.
    """

    def __init__(self, work: Callable[[], Awaitable[_T]]) -> None:
        self._work = work
        self._current: asyncio.Task[_T] | None = None
        self._next: asyncio.Task[_T] | None = None

    async def __call__(self) -> _T:
        """Return the result of the next round. Raises the errors of the work."""
        if self._next is None:
            self._next = asyncio.create_task(self._round(self._current), name="round")
        return await asyncio.shield(self._next)

    async def _round(self, before: "asyncio.Task[_T] | None") -> _T:
        if before is not None:
            await asyncio.wait({before})
        self._current, self._next = self._next, None
        try:
            return await self._work()
        finally:
            self._current = None  # or its result would stay in memory

"""Costly checks of passwords: few at a time, in threads, and each password once."""

import asyncio
from collections.abc import Callable
from functools import partial

from oplogd.web.access.caller import Caller
from oplogd.web.access.carried import Given
from oplogd.web.access.credentials import Credentials
from oplogd.web.http.problem import Problem

# Each takes 50 ms of a core and 16 MiB.
_AT_A_TIME = 2
# All principals may come at once.
_MAX_WAITING = 1_024


class Checks:
    """Runs checks. One password that several requests carry is checked once."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(_AT_A_TIME)
        self._running: dict[tuple[Credentials, bytes], asyncio.Task[Caller | None]] = {}

    async def run(
        self, credentials: Credentials, attempt: bytes, given: Given, allow: Callable[[], None]
    ) -> Caller | None:
        """Return the client with a password, None if it is wrong.

        ``attempt``: stands for the password. ``allow``: raises if it may not be checked now. It is
        called right before the check, because guesses may have failed since the request came.
        Raises Problem 503 if too many wait.
        """

        async def check() -> Caller | None:
            async with self._turns:
                allow()
                caller = await asyncio.to_thread(credentials.check, given.user, given.password)
            credentials.keep(attempt, caller)
            return caller

        allow()
        key = credentials, attempt
        task = self._running.get(key)
        if task is None:
            if len(self._running) >= _MAX_WAITING:
                raise Problem(503, "too many passwords wait for their check", {"Retry-After": "1"})
            task = self._running[key] = asyncio.create_task(check(), name="check of a password")
            task.add_done_callback(partial(self._ended, key))
        return await asyncio.shield(task)

    def _ended(self, key: tuple[Credentials, bytes], task: "asyncio.Task[Caller | None]") -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # else asyncio logs it if all clients have gone

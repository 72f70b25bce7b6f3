"""Breaks in long work, so that the event loop can do other work."""

import asyncio
import time

_WORK_SECONDS = 0.005


class Pace:
    """Call ``rest`` after each piece of work.

    It gives way to the event loop once some milliseconds have passed.
    """

    def __init__(self) -> None:
        self._until = time.perf_counter() + _WORK_SECONDS

    async def rest(self) -> None:
        if time.perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = time.perf_counter() + _WORK_SECONDS

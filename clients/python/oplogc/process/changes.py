"""Wakes tasks that wait for a condition."""

import asyncio
from collections.abc import Callable


class Changes:
    """The changes of an object in one event loop."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Let all waiting tasks look at their conditions."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait_for(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait up to ``timeout`` seconds (None: for ever). Return whether the condition holds."""
        try:
            async with asyncio.timeout(timeout):
                while not condition():
                    await self._event.wait()
        except TimeoutError:
            return condition()
        return True

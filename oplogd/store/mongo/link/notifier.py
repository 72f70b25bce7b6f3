"""Waking tasks waiting for a change. No I/O."""

import asyncio
import contextlib


class Notifier:
    """Wakes any number of waiters.

    Call ``listen``, look at the state, then ``wait``: no notification in between is missed.
    """

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()

    def listen(self) -> asyncio.Event:
        """Return the event that the next notification sets."""
        return self._event


async def wait(event: asyncio.Event, seconds: float) -> bool:
    """Wait for the event, at most ``seconds``. Return whether it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()

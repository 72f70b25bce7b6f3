"""Waking those who wait for entries. No I/O."""

import asyncio
import contextlib


class Bell:
    """``listen`` first, look, then ``wait``: a ring in between is not missed, and any number may listen."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()

    def listen(self) -> asyncio.Event:
        return self._event


async def wait(event: asyncio.Event, seconds: float) -> bool:
    """Whether it rang within the time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()

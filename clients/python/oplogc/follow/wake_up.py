"""Wakes the waiting task of a consumer, from any thread."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class WakeUp:
    """One task at a time waits. Any thread may wake it."""

    def __init__(self) -> None:
        self._waiting: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    @contextmanager
    def waiting(self) -> Iterator[asyncio.Event]:
        """Yield an event for ``wake`` to set. Raise RuntimeError if another task waits already."""
        if self._waiting is not None and self._waiting[0].is_running():
            raise RuntimeError(
                "this consumer is being iterated already: iterate from one task at a time"
            )
        woken = asyncio.Event()
        self._waiting = (asyncio.get_running_loop(), woken)
        try:
            yield woken
        finally:
            self._waiting = None

    def wake(self) -> None:
        """Wake the waiting task, if there is one."""
        waiting = self._waiting
        if waiting is None:
            return
        loop, woken = waiting
        try:
            loop.call_soon_threadsafe(woken.set)
        except RuntimeError:  # the loop has ended meanwhile
            return


def check_no_loop(instead: str) -> None:
    """Raise RuntimeError if an event loop runs in this thread: blocking would stop it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"an event loop runs in this thread: use {instead}")

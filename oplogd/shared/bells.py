"""Bells: a process wakes another one. They need Linux."""

import asyncio
import contextlib
import os
import select
import weakref
from collections.abc import Callable

# Rings within this time are heard together, so that a flood of them costs little.
PAUSE_SECONDS = 0.001


class Bell:
    """Many processes may ring, one listens. A ring that no one has heard yet stays."""

    def __init__(self) -> None:
        self._file = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        weakref.finalize(self, os.close, self._file).atexit = False
        self._poll = select.poll()
        self._poll.register(self._file, select.POLLIN)

    def ring(self) -> None:
        """Ring. Any thread may call it."""
        os.eventfd_write(self._file, 1)

    def wait(self, seconds: float) -> None:
        """Wait in a thread until the bell rings, at most ``seconds``."""
        if self._poll.poll(seconds * 1000):
            self._clear()

    async def rung(self, seconds: float) -> None:
        """Wait in the event loop until the bell rings, at most ``seconds``."""
        loop = asyncio.get_running_loop()
        heard = loop.create_future()
        loop.add_reader(self._file, _resolve, heard)
        late = loop.call_later(seconds, _resolve, heard)
        try:
            await heard
        finally:
            late.cancel()
            loop.remove_reader(self._file)
        self._clear()

    async def listen(self, heard: Callable[[], None]) -> None:
        """Call ``heard`` in the event loop after rings, once per PAUSE_SECONDS, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            rung = loop.create_future()
            loop.add_reader(self._file, _resolve, rung)
            try:
                await rung
            finally:
                loop.remove_reader(self._file)
            self._clear()
            heard()
            await asyncio.sleep(PAUSE_SECONDS)

    def _clear(self) -> None:
        """Take the rings. Another thread of this process may have taken them just before."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._file)


class Bells:
    """A bell for each of ``count`` workers."""

    def __init__(self, count: int) -> None:
        self.each = [Bell() for _ in range(count)]

    def ring_others(self, number: int) -> None:
        """Ring the bells of all workers but this one. Any thread may call it."""
        for other, bell in enumerate(self.each):
            if other != number:
                bell.ring()


def _resolve(rung: asyncio.Future[None]) -> None:
    if not rung.done():
        rung.set_result(None)

"""Ends the process: signals, a deadline, and an exit that no hanging thread can delay."""

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Coroutine
from types import FrameType
from typing import Any, NoReturn

from oplog_kit.signals import ending_signals

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
# The deadline or a second signal came before everything was stored and all streams had ended.
EXIT_UNWRITTEN = 3

# How long the process may outlive the deadline if its event loop or a thread hangs.
_GRACE_SECONDS = 0.5


class Stop:
    """A stop that takes at most ``seconds``. Create it in the running event loop."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        # Set by the first signal.
        self.asked = asyncio.Event()
        # The exit code if the deadline ends the process.
        self.code = EXIT_UNWRITTEN
        self._forced = asyncio.Event()
        self._ended = False
        self._loop = asyncio.get_running_loop()
        self._timed = False

    def listen(self) -> None:
        """Handle the signals."""
        for number in ending_signals():
            signal.signal(number, self._receive)

    async def within(self, work: Coroutine[Any, Any, None]) -> str | None:
        """Start the deadline and do the work. Return None, or the reason for ending it early.

        Raises the exceptions of the work. Soon after the deadline a thread ends the process,
        whatever else hangs.
        """
        watchdog = threading.Timer(self.seconds + _GRACE_SECONDS, lambda: os._exit(self.code))
        watchdog.daemon = True
        watchdog.start()
        if self._timed and sys.platform != "win32":
            signal.setitimer(signal.ITIMER_REAL, 0)
        self._timed = True  # the watchdog has replaced the timer
        working = asyncio.create_task(work, name="stop")
        forced = asyncio.create_task(self._forced.wait(), name="second signal")
        await asyncio.wait(
            {working, forced}, timeout=self.seconds, return_when=asyncio.FIRST_COMPLETED
        )
        self._ended = True
        if working.done():
            forced.cancel()
            working.result()
            return None
        return (
            "a second signal"
            if forced.done()
            else f"--shutdown-timeout of {self.seconds:g} s is over"
        )

    def _receive(self, number: int, frame: FrameType | None) -> None:
        """Pass a signal to the event loop and start a timer.

        The timer works even if a blocking call holds up the loop, such as a write to a full pipe.
        """
        if not self._timed and sys.platform != "win32":
            self._timed = True
            signal.signal(signal.SIGALRM, lambda *_: os._exit(self.code))
            signal.setitimer(signal.ITIMER_REAL, self.seconds + 2 * _GRACE_SECONDS)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.ask)

    def ask(self) -> None:
        """Ask for the stop. The second time, end it at once."""
        if self._ended:
            leave(self.code)
        if self.asked.is_set():
            self._forced.set()
        self.asked.set()


def leave(code: int) -> NoReturn:
    """End the process without waiting for threads: one may hang in the store."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)

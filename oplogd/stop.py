"""How the process ends: the signals, the deadline, and an exit that no hanging thread can hold up."""

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Coroutine
from typing import Any, NoReturn

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNWRITTEN = 3
"""Stopped by the deadline or a second signal before all was stored or all streams had ended."""

_GRACE_SECONDS = 0.5
"""How long the process may outlive the deadline if its event loop or a thread hangs."""

_SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP")


class Stop:
    """A stop that takes at most ``seconds``. Create it in the running event loop."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.asked = asyncio.Event()
        """Set by the first signal."""
        self.code = EXIT_UNWRITTEN
        """The exit code if the process still lives after the deadline."""
        self._forced = asyncio.Event()
        self._ended = False

    def listen(self) -> None:
        """Handle the signals from now on. A signal that is ignored (SIGHUP under ``nohup``) stays ignored."""
        loop = asyncio.get_running_loop()
        for name in _SIGNALS:
            number = getattr(signal, name, None)
            if number is None or signal.getsignal(number) is signal.SIG_IGN:
                continue
            with contextlib.suppress(NotImplementedError):  # Windows
                loop.add_signal_handler(number, self._on_signal)

    async def within(self, work: Coroutine[Any, Any, None]) -> str | None:
        """Start the deadline and do the work. Return None when it is done, else the reason why it was cut short.

        Raises the exceptions of the work. After the deadline a thread ends the process, whatever else hangs.
        """
        watchdog = threading.Timer(self.seconds + _GRACE_SECONDS, lambda: os._exit(self.code))
        watchdog.daemon = True
        watchdog.start()
        working = asyncio.create_task(work, name="stop")
        forced = asyncio.create_task(self._forced.wait(), name="second signal")
        await asyncio.wait({working, forced}, timeout=self.seconds, return_when=asyncio.FIRST_COMPLETED)
        self._ended = True
        if working.done():
            forced.cancel()
            working.result()
            return None
        return "a second signal" if forced.done() else f"--shutdown-timeout of {self.seconds:g} s is over"

    def _on_signal(self) -> None:
        if self._ended:
            leave(self.code)
        if self.asked.is_set():
            self._forced.set()
        self.asked.set()


def leave(code: int) -> NoReturn:
    """End the process now, without waiting for threads: one may hang in the store."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)

"""Signals before the agent can stop in order. Imports almost nothing: it runs before all else."""

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

_SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP")
EXIT_OK = 0


def leave_at_signals() -> None:
    """End the process with code 0 at a signal: nothing was received yet.

    ``Stop.listen`` replaces the handlers. A signal that is ignored (SIGHUP under ``nohup``) stays
    ignored.
    """
    _handle(lambda number, frame: os._exit(EXIT_OK))


def fail_at_signals() -> None:
    """Let a signal end the process as it ends others, for work that must not seem complete."""
    _handle(signal.SIG_DFL)


def _handle(handler: signal.Handlers | Callable[[int, FrameType | None], object]) -> None:
    if sys.platform == "win32":
        return
    for name in _SIGNALS:
        number = getattr(signal, name)
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)

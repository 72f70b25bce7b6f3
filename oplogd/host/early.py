"""Signals before the agent can stop in order. Imports almost nothing: it runs before all else."""

import os
import signal
from collections.abc import Callable
from types import FrameType

from oplog_kit.signals import ending_signals

EXIT_OK = 0


def leave_at_signals() -> None:
    """End the process with code 0 at a signal: nothing was received yet.

    ``Stop.listen`` replaces the handlers.
    """
    _handle(lambda number, frame: os._exit(EXIT_OK))


def fail_at_signals() -> None:
    """Let a signal end the process as it ends others, for work that must not seem complete."""
    _handle(signal.SIG_DFL)


def _handle(handler: signal.Handlers | Callable[[int, FrameType | None], object]) -> None:
    for number in ending_signals():
        signal.signal(number, handler)

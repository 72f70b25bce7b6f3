"""The signals that end a process. Imports little: the agent handles them before all else."""

import signal
import sys


def ending_signals() -> list[signal.Signals]:
    """Return the signals that end a process.

    An ignored signal (SIGHUP under ``nohup``) stays ignored.
    """
    if sys.platform == "win32":
        return []
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    return [each for each in numbers if signal.getsignal(each) is not signal.SIG_IGN]

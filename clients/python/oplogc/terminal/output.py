"""Output of the commands of this package on a terminal or in a pipe."""

import asyncio
import contextlib
import os
import signal
import stat
import sys
from datetime import datetime
from typing import Any

from oplogc.follow.following import Following

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2


def as_time(time: datetime) -> str:
    """Return a time in UTC with milliseconds, as ``2026-01-31T12:00:00.000Z``."""
    return time.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def stop_when_asked(consumer: Following[Any]) -> None:
    """Stop the consumer at a signal, and when the reader closes the pipe."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError):  # not on Windows
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, consumer.stop)
    with contextlib.suppress(OSError, ValueError, NotImplementedError):
        mode = os.fstat(sys.stdout.fileno()).st_mode
        if stat.S_ISFIFO(mode):
            loop.add_reader(sys.stdout.fileno(), consumer.stop)


def ended_without_stdout(program: str, error: OSError) -> int:
    """Return the exit code after stdout failed. A reader that closed the pipe is no failure."""
    # Otherwise Python would fail at exit because it cannot flush.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return EXIT_OK
    print(f"{program}: cannot write to stdout: {error.strerror}", file=sys.stderr)
    return EXIT_FAILED

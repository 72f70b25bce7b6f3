"""Output of the commands of this package on a terminal or in a pipe."""

import asyncio
import contextlib
import os
import signal
import stat
import sys
from collections.abc import Callable
from datetime import datetime

from oplogc.follow.following import Following
from oplogc.follow.format import E

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2


def as_time(time: datetime) -> str:
    """Return a time in UTC with milliseconds, as ``2026-01-31T12:00:00.000Z``."""
    return time.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


async def follow(
    consumer: Following[E], show: Callable[[E], None], counted: type, count: int | None
) -> None:
    """Show events until ``count`` of type ``counted``, a signal, or the end of the reader."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError):  # not on Windows
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, consumer.stop)
    with contextlib.suppress(OSError, ValueError, NotImplementedError):
        if stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode):
            loop.add_reader(sys.stdout.fileno(), consumer.stop)
    async with consumer:
        async for event in consumer:
            show(event)
            consumer.ack(event)
            if count is not None and isinstance(event, counted):
                count -= 1
                if not count:
                    return


def ended_without_stdout(program: str, error: OSError) -> int:
    """Return the exit code after stdout failed. A reader that closed the pipe is no failure."""
    # Otherwise Python would fail at exit because it cannot flush.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return EXIT_OK
    print(f"{program}: cannot write to stdout: {error.strerror}", file=sys.stderr)
    return EXIT_FAILED

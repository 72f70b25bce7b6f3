"""Runs a pipe as a process: with its signals, its progress and its status."""

import asyncio
import logging
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Protocol

from oplog_kit import logs
from oplog_kit.ending import Ending
from oplog_pipe.model.exits import PROGRAM
from oplog_pipe.model.status import PipeStatus
from oplog_pipe.watch.listen import listening
from oplog_pipe.watch.progress import show_progress
from oplogc import __version__

logger = logging.getLogger("oplog_pipe")


class Runnable(Protocol):
    async def run(self, stop: asyncio.Event) -> int:
        """Run until ``stop``, and return the exit code."""

    def status(self) -> PipeStatus: ...


def run_process(
    pipe: Runnable,
    listen: str | None,
    log_format: logs.Format,
    last_words: str,
    ended: Callable[[Ending], None],
) -> int:
    """Run a pipe until a signal, and return the exit code.

    ``listen``: address of its status. On a terminal the progress takes the place of the log's.
    ``last_words``: logged at a second signal. ``ended``: called in the event loop at the end.
    Raises ConfigError.
    """
    ending = Ending(logger, last_words)
    terminal = sys.stderr if log_format == "text" and sys.stderr.isatty() else None

    async def main() -> None:
        ending.listen(asyncio.get_running_loop())
        logger.info("%s %s", PROGRAM, __version__)
        running = True
        with ExitStack() as stack:
            if listen is not None:
                address = stack.enter_context(listening(listen, pipe.status, lambda: running))
                logger.info("status at http://%s/status", address)
            progress = asyncio.create_task(show_progress(pipe.status, terminal), name="progress")
            try:
                ending.code = await pipe.run(ending.asked)
            finally:
                running = False
                progress.cancel()
                await asyncio.wait([progress])
        logger.info("stopped%s", f" with exit code {ending.code}" if ending.code else "")
        ended(ending)

    asyncio.run(main())
    return ending.code

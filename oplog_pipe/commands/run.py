"""``oplog-pipe run``: a pipe as a process."""

import asyncio
import dataclasses
import logging
import sys
from contextlib import ExitStack
from typing import TextIO

import click

from oplog_kit import logs
from oplog_kit.command.options import listen_option, log_options
from oplog_kit.ending import Ending
from oplog_pipe.commands.options import settings_option
from oplog_pipe.model.exits import PROGRAM
from oplog_pipe.model.settings import PipeSettings
from oplog_pipe.pipe import Pipe
from oplog_pipe.watch.listen import listening
from oplog_pipe.watch.progress import show_progress
from oplogc import __version__

# Seconds that threads may outlive the pipe.
_THREADS = 2.0
logger = logging.getLogger("oplog_pipe")


@click.command()
@settings_option()
@click.option(
    "--one-at-a-time", is_flag=True, help="Write each message alone, to find one that fails."
)
@listen_option(
    "--listen", "Serve /status, /live and /metrics here, instead of at listen of the file."
)
@log_options()
def run(
    settings: PipeSettings,
    one_at_a_time: bool,
    listen: str | None,
    log_format: logs.Format,
    debug: bool,
) -> int:
    """Follow sources and write to sinks until SIGTERM or Ctrl-C.

    A signal ends the sources; the sinks go on to the end of the commit log, for `shutdown_timeout`
    of the file at most; a second signal ends the pipe at once. Exit code: 0 stopped by a signal,
    1 a source refuses, or the commit log cannot be read or written, 2 a wrong setting, 4 a sink or
    a transform did not take messages, 5 messages of a topic are gone. The next start writes again
    what was not acknowledged.
    """
    logs.configure(log_format, debug)
    if listen is not None:
        settings = dataclasses.replace(settings, listen=listen)
    ending = Ending(logger, "stopped by a second signal: some messages will be written again")
    pipe = Pipe(settings, one_at_a_time=one_at_a_time)
    terminal = sys.stderr if log_format == "text" and sys.stderr.isatty() else None
    asyncio.run(_pipe(pipe, settings.listen, terminal, ending))
    return ending.code


async def _pipe(pipe: Pipe, listen: str | None, terminal: TextIO | None, ending: Ending) -> None:
    """``terminal``: shows the progress instead of the log. Raises ConfigError."""
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
    ending.within(0.0 if pipe.hangs else _THREADS)

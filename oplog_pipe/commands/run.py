"""``oplog-pipe run``: a pipe as a process."""

import dataclasses

import click

from oplog_kit import logs
from oplog_kit.command.options import listen_option, log_options
from oplog_pipe.commands.options import settings_option
from oplog_pipe.commands.running import run_process
from oplog_pipe.model.settings import PipeSettings
from oplog_pipe.pipe import Pipe

# Seconds that threads may outlive the pipe.
_THREADS = 2.0


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
    pipe = Pipe(settings, one_at_a_time=one_at_a_time)
    return run_process(
        pipe,
        settings.listen,
        log_format,
        "stopped by a second signal: some messages will be written again",
        lambda ending: ending.within(0.0 if pipe.hangs else _THREADS),
    )

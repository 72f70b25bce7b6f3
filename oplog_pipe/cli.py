"""The command ``oplog-pipe``: its errors and its exit codes."""

from collections.abc import Sequence

import click

from oplog_kit.command.run import run_command
from oplog_pipe.errors import ConfigError, GapError, PipeError, SinkError
from oplog_pipe.model.exits import EXIT_FAILED, EXIT_GAP, EXIT_SINK, EXIT_USAGE, PROGRAM


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code."""
    return run_command(
        PROGRAM,
        _command,
        argv,
        extra="pipe",
        loggers=("oplog_pipe", "oplogc", "psycopg", "pymongo"),
        code_of=_code_of,
    )


def _command() -> click.Command:
    from oplog_pipe.commands.group import command

    return command


def _code_of(error: Exception) -> int | None:
    for kind, code in (
        (ConfigError, EXIT_USAGE),
        (SinkError, EXIT_SINK),
        (GapError, EXIT_GAP),
        (PipeError, EXIT_FAILED),
    ):
        if isinstance(error, kind):
            return code
    return None

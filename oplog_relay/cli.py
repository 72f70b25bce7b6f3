"""The command ``oplog-relay``: its errors and its exit codes."""

from collections.abc import Sequence

import click

from oplog_kit.command.run import run_command
from oplog_relay.model.errors import ConfigError, RelayError
from oplog_relay.model.exits import EXIT_FAILED, EXIT_USAGE, PROGRAM


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code."""
    return run_command(
        PROGRAM,
        _command,
        argv,
        extra="relay",
        loggers=("oplog_relay", "psycopg"),
        code_of=_code_of,
    )


def _command() -> click.Command:
    from oplog_relay.commands.group import command

    return command


def _code_of(error: Exception) -> int | None:
    if isinstance(error, ConfigError):
        return EXIT_USAGE
    return EXIT_FAILED if isinstance(error, RelayError) else None

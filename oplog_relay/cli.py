"""The command ``oplog-relay``."""

from collections.abc import Sequence

from oplog_kit.command.run import run_command
from oplog_relay.model.exits import PROGRAM


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code."""
    return run_command(
        PROGRAM,
        "oplog_relay.commands.group",
        argv,
        extra="relay",
        loggers=("oplog_relay", "psycopg"),
        exits={},
    )

"""The command ``oplog-pipe``."""

from collections.abc import Sequence

from oplog_kit.command.run import run_command
from oplog_pipe.errors import GapError, SinkError
from oplog_pipe.model.exits import EXIT_GAP, EXIT_SINK, PROGRAM


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code."""
    return run_command(
        PROGRAM,
        "oplog_pipe.commands.group",
        argv,
        extra="pipe",
        loggers=("oplog_pipe", "oplogc", "psycopg", "pymongo"),
        exits={SinkError: EXIT_SINK, GapError: EXIT_GAP},
    )

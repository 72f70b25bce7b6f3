"""Options and values of all subcommands."""

from collections.abc import Callable
from typing import Any

import click

from oplog_kit.command.options import ParamType as ParamType
from oplog_kit.command.options import Settings
from oplog_pipe.config import load

# Seconds that a command waits for one answer of an agent.
PATIENCE = 10.0


def settings_option() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option ``-f``. The command gets ``settings``."""
    return click.option(
        "-f", "--file", "settings",
        type=Settings(load), required=True, metavar="PATH",
        help="File with the settings of the pipe.",
    )  # fmt: skip

"""Options, values and exit codes of all subcommands."""

import re
from collections.abc import Callable
from typing import Any

import click

from oplog_kit.command.options import ParamType, Settings
from oplog_relay.config.file import load

# Seconds that a command waits for one answer of an agent.
PATIENCE = 10.0


class Positive(ParamType):
    """Reads a whole number of at least 1, up to that of a bigint."""

    name = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if not (re.fullmatch(r"[0-9]{1,19}", text, re.ASCII) and 0 < int(text) < 2**63):
            self.fail(f"{value!r} is not a whole number of at least 1", param, ctx)
        return int(text)


def settings_option(required: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option ``-f``. The command gets ``settings``."""
    return click.option(
        "-f", "--file", "settings",
        type=Settings(load), required=required, metavar="PATH",
        help="File with the settings of the relay.",
    )  # fmt: skip

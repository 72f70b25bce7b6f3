"""What the subcommands share: options, values, exit codes."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from oplog_relay.config import load
from oplog_relay.settings import RelaySettings

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # not generic at run time in older versions of click

# Seconds that a command waits for one answer of an agent.
PATIENCE = 10.0

_UNITS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


class Settings(ParamType):
    """Reads the settings from a file."""

    name = "PATH"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> RelaySettings:
        """Raises ConfigError."""
        return value if isinstance(value, RelaySettings) else load(Path(value))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


class Duration(ParamType):
    """Reads a duration in seconds: ``100ms``, ``1.5s``, ``2m``, ``3``."""

    name = "DURATION"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h|)", str(value), re.ASCII)
        if match is None:
            self.fail(f"{value!r} is not a duration such as 100ms, 1.5s or 2m", param, ctx)
        return float(match[1]) * _UNITS[match[2]]


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
        type=Settings(), required=required, metavar="PATH",
        help="File with the settings of the relay.",
    )  # fmt: skip

"""Options that the commands share."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from oplog_kit import logs

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # not generic at run time in older versions of click

_UNITS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


class Settings(ParamType):
    """Reads the settings from a file, with ``load``."""

    name = "PATH"

    def __init__(self, load: Callable[[Path], Any]) -> None:
        self._load = load

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Raises the errors of ``load``."""
        return self._load(Path(value)) if isinstance(value, str) else value

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


def log_options() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the options of a command that logs. The command gets ``log_format`` and ``debug``."""
    log_format = click.option(
        "--log-format",
        type=click.Choice(logs.FORMATS),
        default="text",
        show_default=True,
        help="Format of the log, which goes to stderr.",
    )
    debug = click.option("--debug", is_flag=True, help="Log more, and tracebacks of failures.")
    return lambda command: log_format(debug(command))

"""Options that the commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from oplog_kit import logs, units

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # not generic at run time in older versions of click


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
    """Reads a duration in seconds."""

    name = "DURATION"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            return units.duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


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

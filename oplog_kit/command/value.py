"""The values of options and arguments."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # not generic at run time in older versions of click


class Value(ParamType):
    """Reads a value with ``convert``, which raises ValueError for an unusable text.

    ``name``: shown in the help. A shell completes ``choices``, or the name of a file for ``PATH``.
    """

    def __init__(
        self, name: str, convert: Callable[[str], Any] = str, choices: Sequence[str] = ()
    ) -> None:
        self.name = name
        self._convert = convert
        self._choices = choices

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._convert(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        if self.name == "PATH":
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(each) for each in self._choices if each.startswith(incomplete)]

"""Options of click with conversions, and with variables from the mapping in the context."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # not generic at run time in older versions of click


class Converted(ParamType):
    """Reads a value with a function, which may raise ValueError. Completes choices and files."""

    def __init__(
        self, metavar: str, convert: Callable[[str], Any], choices: tuple[str, ...] = ()
    ) -> None:
        self.name = metavar
        self._convert = convert
        self._choices = choices

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):  # a default
            return value
        try:
            return self._convert(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        if self.name in ("PATH", "FILE"):
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(each) for each in self._choices if each.startswith(incomplete)]


class VariableOption(click.Option):
    """Reads its variable from the mapping in the context. An empty variable is not set."""

    def value_from_envvar(self, ctx: click.Context) -> Any:
        names = _variables(self, ctx)
        if not names:
            return None
        value = ctx.obj[names[0]]
        return [value] if self.multiple else value


def _variables(param: click.Parameter, ctx: click.Context) -> list[str]:
    """Return the variables of an option, without unset ones."""
    names = [param.envvar] if isinstance(param.envvar, str) else list(param.envvar or ())
    return [name for name in names if (ctx.obj or {}).get(name)]


def source_of(param: click.Parameter, ctx: click.Context) -> str:
    """Return the name of the flag, of the variable or of the argument with a value."""
    if ctx.get_parameter_source(param.name or "") is ParameterSource.ENVIRONMENT:
        return _variables(param, ctx)[0]
    return param.opts[0] if isinstance(param, click.Option) else param.make_metavar(ctx)


def was_given(name: str, ctx: click.Context) -> bool:
    """Return whether the flag or the variable of an option was given."""
    given = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    return ctx.get_parameter_source(name) in given

"""A command that reads a table of flags with click: variables, help, completion and refusals."""

import dataclasses
import os
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, Generic, NoReturn, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import shell_complete

from oplog_kit.command.flags import Flag, flags_of
from oplog_kit.command.given import Given
from oplog_kit.command.value import Value
from oplog_kit.wording import near

EXIT_USAGE = 2

# A Service named oplogd sets these in the pods of its namespace: see "Environment variables" in the
# documentation of Kubernetes' Services. The value must fit, too: OPLOGD_PORT=8042 is a mistake.
_SERVICE_LINK = re.compile(
    r"[A-Z0-9_]+_(SERVICE_HOST=[0-9a-fA-F.:]+|SERVICE_PORT(_[A-Z0-9_]+)?=\d{1,5}"
    r"|PORT(_\d{1,5}_(TCP|UDP|SCTP))?=(tcp|udp|sctp)://\S+:\d{1,5}"
    r"|PORT_\d{1,5}_(TCP|UDP|SCTP)_(PROTO=(tcp|udp|sctp)|PORT=\d{1,5}|ADDR=[0-9a-fA-F.:]+))",
    re.ASCII,
)

S = TypeVar("S")


class SettingsCommand(click.Command, Generic[S]):
    """A command that reads `settings`, a table.

    `check` raises click.UsageError if settings do not fit together. `argument` names the positional
    arguments in the help; they fill the field `arguments`. None: the command takes none.
    """

    def __init__(
        self,
        name: str,
        settings: type[S],
        check: Callable[[Given], None],
        *,
        version: str,
        about: str,
        notes: str,
        argument: str | None = None,
    ) -> None:
        self._settings = settings
        self._check = check
        self._about = about
        self._notes = notes
        self._usage = f"{name} [FLAG ...]" + (f" {argument} ..." if argument else "")
        self.flags = flags_of(settings)
        options: list[click.Parameter] = [_FlagOption(flag) for flag in self.flags]
        if argument:
            options.append(click.Argument(["arguments"], nargs=-1, type=Value("PATH")))
        super().__init__(
            name,
            params=options,
            context_settings={
                "help_option_names": ["-h", "--help"],
                "allow_extra_args": True,  # `parse` refuses them in its own words
            },
        )
        click.version_option(version, prog_name=name, message="%(prog)s %(version)s")(self)

    def complete(self, environ: Mapping[str, str]) -> None:
        """If a shell asks for completions, answer it and raise SystemExit."""
        name = self.name or ""
        variable = f"_{name}_complete".replace("-", "_").upper()
        if instruction := environ.get(variable):
            try:
                code = shell_complete(self, {}, name, variable, instruction)
            except OSError as error:
                self._end_without_stdout(error)
            raise SystemExit(code)

    def parse(self, argv: Sequence[str], environ: Mapping[str, str]) -> S:
        """Read each setting from its flag, else its variable, else its default.

        `argv` is without the program's name. Raises SystemExit: 2 after one sentence on stderr for
        a bad setting, 0 after --help and --version, 1 if stdout takes neither.
        """
        try:
            with self.make_context(self.name, list(argv), obj=environ) as context:
                given = self._given(context)
                _refuse_unknown_variables(environ, self.flags)
                self._check(given)
                if given.arguments:
                    given.values["arguments"] = given.arguments
                return self._settings(**given.values)
        except click.exceptions.Exit as ended:
            raise SystemExit(ended.exit_code) from None
        except click.UsageError as error:
            self.refuse(_sentence(error, self.flags))
        except OSError as error:  # of stdout, while --help or --version prints
            self._end_without_stdout(error)

    def _end_without_stdout(self, error: OSError) -> NoReturn:
        """Exit with 0 if the reader closed the pipe, else with 1 after one sentence."""
        # Otherwise Python would fail at exit because it cannot flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise SystemExit(0)
        print(f"{self.name}: cannot write to stdout: {error.strerror}", file=sys.stderr)
        raise SystemExit(1)

    def refuse(self, sentence: str) -> NoReturn:
        print(f"{self.name}: {sentence}", file=sys.stderr)
        raise SystemExit(EXIT_USAGE)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            _refuse_flags_as_values(self.flags, args)
        return super().parse_args(ctx, args)

    def _given(self, context: click.Context) -> Given:
        if context.args:
            # A secret may follow: name only the first argument, and of that no value and no URL.
            name = re.split("=|://|@", context.args[0], maxsplit=1)[0]
            raise click.UsageError(f"unknown argument {name}")
        given: dict[str, Any] = {}
        sources: dict[str, str] = {}
        for field in dataclasses.fields(self._settings):  # type: ignore[arg-type]  # a dataclass
            chosen = [
                (flag, source)
                for flag in field.metadata.get("flags", ())
                if (source := _source(context, flag)) is not None
            ]
            if len(chosen) > 1:
                raise click.UsageError(f"{chosen[0][1]} and {chosen[1][1]} exclude each other")
            for flag, source in chosen:
                sources[flag.name] = source
                text = context.params[_parameter_name(flag)]
                try:
                    given[field.name] = (
                        tuple(map(flag.convert, text)) if flag.repeats else flag.convert(text)
                    )
                except ValueError as error:
                    raise click.UsageError(f"{source}: {error}") from None
        return Given(given, sources, tuple(context.params.get("arguments", ())))

    def get_help(self, ctx: click.Context) -> str:
        width = min(ctx.make_formatter().width, 78)
        blocks = [f"Usage: {self._usage}", _wrapped(self._about, width)]
        for subject, flags in groupby(self.flags, lambda flag: flag.subject):
            blocks.append("\n".join([f"{subject}:", *(_help_entry(flag, width) for flag in flags)]))
        others = (
            ("-h, --help", "Print this and exit."),
            ("--version", "Print the version and exit."),
        )
        blocks.append("\n".join(["Help:", *(_entry(name, text, width) for name, text in others)]))
        blocks += [_wrapped(paragraph, width) for paragraph in self._notes.split("\n\n")]
        return "\n\n".join(blocks)


class _FlagOption(click.Option):
    """Reads its variable from the mapping in the context, not from the process."""

    def __init__(self, flag: Flag) -> None:
        switch: dict[str, Any] = {"is_flag": True, "flag_value": "true"}
        super().__init__(
            [flag.name],
            envvar=flag.variable,
            metavar=flag.metavar,
            help=flag.help,
            type=Value(flag.metavar or "switch", choices=flag.choices),
            multiple=flag.repeats,
            **(switch if flag.metavar is None else {}),
        )
        self.flag = flag

    def consume_value(
        self, ctx: click.Context, opts: Mapping[str, Any]
    ) -> tuple[Any, ParameterSource]:
        given = opts.get(self.name)
        if self.flag.empty_is_unset and given is not None:
            rest = [name for name in opts if name != self.name]
            kept = [each for each in given if each] if self.flag.repeats else given
            opts = {name: opts[name] for name in rest} | ({self.name: kept} if kept else {})
        return super().consume_value(ctx, opts)

    def value_from_envvar(self, ctx: click.Context) -> Any:
        environ: Mapping[str, str] = ctx.obj or {}
        text = environ.get(self.flag.variable)
        if not text:
            return None
        if not self.flag.repeats:
            return text
        lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
        if self.flag.empty_is_unset:
            lines = [line for line in lines if line]
        if not lines:
            raise click.UsageError(f"{self.flag.variable}: has blank lines only")
        return lines


def _refuse_flags_as_values(flags: Sequence[Flag], args: Sequence[str]) -> None:
    """Raise click.BadOptionUsage if a flag follows a flag that needs a value.

    click would take the second flag as the value: `--password --debug` would set the password. A
    value such as `- a` or `-1` is no flag.
    """
    takes_value = {flag.name for flag in flags if flag.metavar is not None}
    rest = iter(args)
    for arg in rest:
        if arg == "--":
            return
        if arg in takes_value:
            value = next(rest, "")
            if re.match(r"-[^\d.\s][^\s=]*(=|$)", value):
                raise click.BadOptionUsage(arg, "requires an argument")


def _refuse_unknown_variables(environ: Mapping[str, str], flags: Sequence[Flag]) -> None:
    """Raise click.UsageError for a variable with the program's prefix and without a flag.

    Empty variables count as not set. Variables of Kubernetes' service links are ignored.
    """
    known = {flag.variable: flag for flag in flags}
    prefix = f"{flags[0].program}_".replace("-", "_").upper()
    for name in sorted(environ):
        if not name.startswith(prefix) or name in known or not environ[name]:
            continue
        if not _SERVICE_LINK.fullmatch(f"{name}={environ[name]}"):
            raise click.UsageError(f"unknown variable {name}{near(name, known)}")


def _sentence(error: click.UsageError, flags: Sequence[Flag]) -> str:
    """Return click's error in one sentence with the flag or the variable, and no secret."""
    if isinstance(error, click.NoSuchOption):
        names = [*(flag.name for flag in flags), "--version"]
        return f"unknown argument {error.option_name}{near(error.option_name, names)}"
    if isinstance(error, click.BadOptionUsage):
        switches = [flag.name for flag in flags if flag.metavar is None]
        if error.option_name in (*switches, "-h", "--help", "--version"):
            return f"{error.option_name}: takes no value"
        return f"{error.option_name}: needs a value (--flag=VALUE if it begins with -)"
    return error.format_message()


def _parameter_name(flag: Flag) -> str:
    return flag.name[2:].replace("-", "_")


def _source(context: click.Context, flag: Flag) -> str | None:
    """Return the flag or the variable that gave the value. None: neither."""
    source = context.get_parameter_source(_parameter_name(flag))
    if source is ParameterSource.COMMANDLINE:
        return flag.name
    return flag.variable if source is ParameterSource.ENVIRONMENT else None


def _help_entry(flag: Flag, width: int) -> str:
    default = "" if flag.default is None or flag.metavar is None else f" Default: {flag.default}."
    name = f"{flag.name} {flag.metavar}" if flag.metavar else flag.name
    return _entry(name, f"{flag.help}{default} Variable: {flag.variable}.", width)


def _entry(name: str, text: str, width: int) -> str:
    return f"  {name}\n{textwrap.indent(_wrapped(text, width - 6), '      ')}"


def _wrapped(text: str, width: int) -> str:
    """Wrap text, and break no flag in two."""
    return textwrap.fill(text, width, break_on_hyphens=False, break_long_words=False)

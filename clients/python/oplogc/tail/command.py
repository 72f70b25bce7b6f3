"""The command line of ``oplog-tail``: click reads the table of flags."""

import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NoReturn

import click
from click.core import ParameterSource
from click.shell_completion import shell_complete

from oplogc import __version__
from oplogc.http.address import shown_text
from oplogc.tail.settings import FLAGS, TailFlag, TailSettings
from oplogc.terminal.options import Converted, VariableOption, source_of, was_given
from oplogc.terminal.output import EXIT_USAGE
from oplogc.terminal.values import DEFAULT_URL, agent_url
from oplogc.terminal.variables import near, unknown_variable

PROGRAM = "oplog-tail"
_VARIABLES = {"OPLOG_TAIL_URL", *(flag.variable for flag in FLAGS)}

_ABOUT = (
    "Follow the operations of an oplog agent. URL is http://HOST:PORT, https://HOST or HOST:PORT."
)
_NOTES = """\
URL comes from the command line, else from OPLOG_TAIL_URL, else from OPLOG_URL, else it is \
http://localhost:8042. Other values come from the flag, else from the variable. \
OPLOG_PASSWORD is used if no other password and no token is given. An empty variable is not set. \
An unknown variable that begins with OPLOG_TAIL_ is refused.

TIME is a duration before now (90s, 10m, 12h, 7d), RFC 3339 (2026-01-31T12:00:00Z) or \
milliseconds since 1970. ID is an event id, 0 for a replication of all objects, milliseconds \
since 1970 or RFC 3339.

A line shows the time, the event, the object with its parents, and the id in brackets. With --json \
a line is an object: event_id, event and, for an operation, timestamp, parents, type, id and ref \
if sent.

oplog-tail reconnects by itself and resumes at its position. Operations go to stdout, notices to \
stderr.

Exit codes: 0 ended by Ctrl-C, SIGTERM, --count, or a reader that closed the pipe; 1 the agent \
refuses, for example a wrong password, or the state file cannot be used; 2 a bad setting."""
_EXAMPLES = """\
Examples:
  oplog-tail
  oplog-tail agent:8042 --types video,user --since 10m
  oplog-tail --replicate --json | jq -r .id
  oplog-tail --state-file videos.state --types video --count 100"""


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> TailSettings:
    """Read each setting from its flag, else its variable, else its default.

    Raises SystemExit: 2 after one sentence on stderr for a bad setting, 0 after --help, --version
    and a completion.
    """
    command = _command()
    if instruction := environ.get("_OPLOG_TAIL_COMPLETE"):
        raise SystemExit(shell_complete(command, {}, PROGRAM, "_OPLOG_TAIL_COMPLETE", instruction))
    try:
        with command.make_context(PROGRAM, _arguments(argv), obj=environ) as context:
            return _settings(context, environ)
    except click.exceptions.Exit as ended:
        raise SystemExit(ended.exit_code) from None
    except click.UsageError as error:
        refuse(_sentence(error))


def refuse(sentence: str) -> NoReturn:
    print(f"{PROGRAM}: {sentence}", file=sys.stderr)
    raise SystemExit(EXIT_USAGE)


def _settings(context: click.Context, environ: Mapping[str, str]) -> TailSettings:
    if context.args:
        name = shown_text(context.args[0]).partition("=")[0]
        raise click.UsageError(f"unknown argument {name}")
    if unknown := unknown_variable(environ, "OPLOG_TAIL_", _VARIABLES):
        raise click.UsageError(unknown)
    options = {option.name: option for option in context.command.params}
    given = {name: value for name, value in context.params.items() if was_given(name, context)}
    sources = {name: source_of(options[name], context) for name in given}
    for group in (("from", "since", "replicate"), ("password", "password_file", "token_file")):
        names = [sources[name] for name in group if given.get(name)]
        if len(names) > 1:
            raise click.UsageError(f"{names[0]} and {names[1]} exclude each other")
    replicate = "0" if given.pop("replicate", False) else None
    from_, since = given.pop("from", None), given.pop("since", None)
    passwords = [given.pop("password", None), given.pop("password_file", None)]
    if "token_file" not in given:
        passwords.append(environ.get("OPLOG_PASSWORD"))
    url = given.pop("url", "") or environ.get("OPLOG_TAIL_URL") or environ.get("OPLOG_URL")
    for name in {"types", "parents", "ids", "events"} & given.keys():
        given[name] = _names(sources[name], given[name])
    return TailSettings(
        url=agent_url(url or DEFAULT_URL),
        start=from_ or since or replicate,
        password=next(filter(None, passwords), None),
        **given,
    )


def _names(source: str, values: Sequence[str]) -> tuple[str, ...]:
    """Split a single value at its commas. Of several values each is one name."""
    names = tuple(values[0].split(",")) if len(values) == 1 else tuple(values)
    if not all(names):
        raise click.UsageError(f"{source}: give names, none of them empty")
    return names


def _command() -> "_Command":
    command = _Command(
        PROGRAM,
        params=[*map(_Option, FLAGS), click.Argument(["url"], required=False)],
        context_settings={"help_option_names": ["-h", "--help"], "allow_extra_args": True},
    )
    click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")(command)
    return command


class _Option(VariableOption):
    def __init__(self, flag: TailFlag) -> None:
        switch: dict[str, Any] = {"is_flag": True, "flag_value": "true"}
        super().__init__(
            [flag.field, flag.name, *([flag.short] if flag.short else [])],
            envvar=flag.variable,
            help=flag.help,
            type=Converted(flag.metavar or "switch", flag.convert, flag.choices),
            multiple=flag.repeats,
            **(switch if flag.metavar is None else {}),
        )
        self._empty_is_unset = flag.empty_is_unset

    def consume_value(
        self, ctx: click.Context, opts: Mapping[str, Any]
    ) -> tuple[Any, ParameterSource]:
        if self._empty_is_unset and opts.get(self.name) == "":
            opts = {name: value for name, value in opts.items() if name != self.name}
        return super().consume_value(ctx, opts)


class _Command(click.Command):
    def get_help(self, ctx: click.Context) -> str:
        width = min(ctx.make_formatter().width, 78)
        blocks = ["Usage: oplog-tail [FLAG ...] [URL]", *_paragraphs(_ABOUT, width)]
        for subject, flags in groupby(FLAGS, lambda flag: flag.subject):
            blocks.append("\n".join([f"{subject}:", *(_entry(flag, width) for flag in flags)]))
        blocks.append(
            "Help:\n  -h, --help\n      Print this and exit.\n"
            "  --version\n      Print the version and exit."
        )
        return "\n\n".join([*blocks, *_paragraphs(_NOTES, width), _EXAMPLES])


def _entry(flag: TailFlag, width: int) -> str:
    names = f"{flag.short}, {flag.name}" if flag.short else flag.name
    (text,) = _paragraphs(f"{flag.help} Variable: {flag.variable}.", width - 6)
    return f"  {names} {flag.metavar or ''}".rstrip() + "\n" + textwrap.indent(text, "      ")


def _paragraphs(text: str, width: int) -> Iterator[str]:
    """Wrap each paragraph, and break no flag in two."""
    for paragraph in text.split("\n\n"):
        yield textwrap.fill(paragraph, width, break_on_hyphens=False, break_long_words=False)


# -t VALUE, -tVALUE, -t=VALUE, -qt VALUE: switches, then a flag with a value, then the value.
_SHORT = re.compile(
    "-[{}]*([{}])(.*)".format(
        "h" + "".join(flag.short[1] for flag in FLAGS if flag.short and not flag.metavar),
        "".join(flag.short[1] for flag in FLAGS if flag.short and flag.metavar),
    ),
    re.DOTALL,
)


def _arguments(argv: Sequence[str]) -> list[str]:
    """Return the arguments for click, which would take the = of -t=VALUE as a part of the value.

    Raises click.BadOptionUsage if a flag stands in place of a value: click would take it.
    """
    names = {flag.name for flag in FLAGS if flag.metavar}
    arguments: list[str] = []
    rest = iter(argv)
    for arg in rest:
        if arg == "--":
            return [*arguments, arg, *rest]
        short = _SHORT.fullmatch(arg)
        if short and short[2].startswith("="):
            arguments += [arg[: short.start(2)], short[2][1:]]
            continue
        arguments.append(arg)
        if arg in names or (short and not short[2]):
            value = next(rest, None)
            if value is None:
                break
            if re.match(r"-[^\d.\s][^\s=]*(=|$)", value):
                raise click.BadOptionUsage(f"-{short[1]}" if short else arg, "requires an argument")
            arguments.append(value)
    return arguments


def _sentence(error: click.UsageError) -> str:
    """Return click's error in one sentence with the name of the flag, and no secret."""
    if isinstance(error, click.BadParameter) and error.param is not None and error.ctx is not None:
        return f"{source_of(error.param, error.ctx)}: {error.message}"
    if isinstance(error, click.NoSuchOption):
        known = {flag.name for flag in FLAGS} | {"--help", "--version"}
        return f"unknown argument {error.option_name}{near(error.option_name, known)}"
    if isinstance(error, click.BadOptionUsage):
        takes_value = any(
            flag.metavar and error.option_name in (flag.name, flag.short) for flag in FLAGS
        )
        if takes_value:
            return f"{error.option_name}: needs a value (--flag=VALUE if it begins with -)"
        return f"{error.option_name}: takes no value"
    return error.format_message()

"""Options of all subcommands: the agent, its passwords, the topic, the output."""

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, get_args

import click
from click.core import ParameterSource

from oplogc.ctl.options.connection import BACKOFF, PREFIX, AgentConnection, Failed, usage_errors
from oplogc.ctl.options.values import listed
from oplogc.terminal.options import Converted, VariableOption, source_of
from oplogc.terminal.values import (
    DEFAULT_URL,
    agent_url,
    duration,
    given_text,
    password_in_file,
    token_in_file,
)
from oplogc.topics import Isolation, NotAllowed
from oplogc.topics.calls.agents import ClientOptions
from oplogc.topics.calls.call import MAX_LIST
from oplogc.topics.calls.topics import READ_COMMITTED, check_isolation
from oplogc.topics.messages.names import topic_name
from oplogc.wire.shard import check_shard

# The end of the first of several addresses. No part of a password ends so.
_SECOND_ADDRESS = re.compile(r"[,;\s]\s*(https?://|[^\s/@?#,;]+:[0-9]{1,5}/?([,;\s]|$))")


def given_flag(*names: str) -> str:
    """Return the first of these options given to the command, by its name there. Empty: none."""
    ctx = click.get_current_context()
    given = (
        source_of(param, ctx)
        for name in names
        for param in ctx.command.params
        if param.name == name and ctx.get_parameter_source(name) is not ParameterSource.DEFAULT
    )
    return next(given, "")


class _OptionValue(Converted):
    """Refuses a flag in place of a value."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if ctx and value in {name for each in ctx.command.params for name in each.opts}:
            self.fail("needs a value", param, ctx)
        return super().convert(value, param, ctx)


class Option(VariableOption):
    """A flag before the command counts unless it is given behind it, too."""

    def consume_value(
        self, ctx: click.Context, opts: Mapping[str, Any]
    ) -> tuple[Any, ParameterSource]:
        value, source = super().consume_value(ctx, opts)
        before = f"{PREFIX}{self.name}"
        if source is ParameterSource.COMMANDLINE:
            if ctx.parent is None:
                ctx.meta[before] = value
        elif before in ctx.meta:
            return ctx.meta[before], ParameterSource.COMMANDLINE
        return value, source


def option(
    usage: str,
    convert: Callable[[str], Any],
    help: str,
    choices: tuple[str, ...] = (),
    **more: Any,
) -> Callable[[Any], Any]:
    """Return the decorator of an option. ``usage``: its names and the name of its value."""
    *names, metavar = usage.split()
    return click.option(
        *names,
        cls=Option,
        type=_OptionValue(metavar, convert, choices),
        metavar=metavar,
        help=help,
        show_default="default" in more,
        show_envvar="envvar" in more,
        **more,
    )


def limit(entries: str) -> Callable[[Any], Any]:
    """Return the decorator of the option for the number of entries to list."""
    text = f"Print at most N {entries}, {MAX_LIST:,} at most."
    return option("--limit -n N", listed, text, default="100")


def topic_text(text: str) -> str:
    """Return the whole name of a topic. Raise ValueError."""
    return str(topic_name(text))


named = click.argument("topic", metavar="TOPIC", type=Converted("TOPIC", topic_text))


def _url(text: str) -> str:
    if _SECOND_ADDRESS.search(given_text(text).strip()):
        raise ValueError("takes one address, such as http://localhost:8042")
    return agent_url(text)


_FLAGS: tuple[Callable[[Any], Any], ...] = (
    option(
    "--url URL", _url, "Agent: http://HOST:PORT, https://HOST or HOST:PORT.",
        envvar=["OPLOGCTL_URL", "OPLOG_URL"], default=DEFAULT_URL,
    ),
    option(
    "--password-file PATH", password_in_file,
        "File with the agent's password for reading. The password itself may be in"
        " OPLOGCTL_PASSWORD or OPLOG_PASSWORD.",
        envvar="OPLOGCTL_PASSWORD_FILE",
    ),
    option(
    "--ingest-password-file PATH", password_in_file,
        "File with the agent's password for writing. The password itself may be in"
        " OPLOGCTL_INGEST_PASSWORD. Not set: the one for reading.",
        envvar="OPLOGCTL_INGEST_PASSWORD_FILE",
    ),
    option(
    "--token-file PATH", token_in_file,
        "File with a token, to be sent instead of passwords. It is read again at each connection of"
        " a stream, and when the agent refuses the token.",
        envvar="OPLOGCTL_TOKEN_FILE",
    ),
    option(
    "--proxy URL", given_text,
        "HTTP proxy. Not set: the proxy of HTTP_PROXY or HTTPS_PROXY.",
        envvar="OPLOGCTL_PROXY",
    ),
    option(
    "--retry-for DURATION", duration,
        "How long to try while the agent is unreachable or busy. `follow` tries for ever.",
        envvar="OPLOGCTL_RETRY_FOR", default="10s",
    ),
)  # fmt: skip


_OF_FLAGS = ("URL", "PASSWORD_FILE", "INGEST_PASSWORD_FILE", "PROXY", "RETRY_FOR")
VARIABLES = tuple(PREFIX + name for name in (*_OF_FLAGS, "PASSWORD", "INGEST_PASSWORD"))


def before_command(group: click.Command) -> click.Command:
    """Add the options of the connection to a group, whose commands then read them."""
    for flag in _FLAGS:
        given = flag(lambda: None).__click_params__[0]
        group.params.append(
            Option(
                given.opts,
                type=Converted(given.metavar, str),  # the command converts it
                metavar=given.metavar,
                expose_value=False,
                help=given.help,
            )
        )
    return group


_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, an object per line.")

isolation = option(
    "--isolation ISOLATION",
    check_isolation,
    "read_committed: records of a transaction together, at its commit. read_uncommitted: when they"
    " are written.",
    choices=get_args(Isolation),
    default=READ_COMMITTED,
)

shard = option(
    "--shard I/N",
    check_shard,
    "Print only messages of shard I of N, such as 3/8. All messages of a key are in the same shard."
    " N is 256 at most. Not set: all messages.",
)


def connected(
    writes: bool, opens_topics: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add --json and the options of the connection.

    ``writes``: whether the command needs the password for writing. The command gets an
    ``AgentConnection`` first. ``opens_topics``: it gets ``Topics``, closed after it.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def call(
            url: str,
            password_file: str | None,
            ingest_password_file: str | None,
            token_file: Callable[[], str] | None,
            proxy: str | None,
            retry_for: float,
            **rest: Any,
        ) -> Any:
            password = _password("", password_file)
            if token_file is None:
                password = password or _environ().get("OPLOG_PASSWORD") or None
            ingest_password = _password("INGEST_", ingest_password_file)
            retry_for = max(retry_for, 0.001)
            with usage_errors():
                options = ClientOptions(
                    (url,),
                    password,
                    ingest_password,
                    proxy,
                    retry_for=retry_for,
                    backoff=BACKOFF,
                    token=token_file,
                )
            agent = AgentConnection(options)
            try:
                if not opens_topics:
                    return command(agent, **rest)
                with agent.topics() as topics:
                    return command(topics, **rest)
            except NotAllowed as error:
                if error.status != 401:
                    raise
                raise Failed(agent.password_problem(writes)) from None

        for flag in reversed((_as_json, *_FLAGS)):
            flag(call)
        return call

    return decorate


on_topics = functools.partial(connected, opens_topics=True)


def _environ() -> Mapping[str, str]:
    return click.get_current_context().obj or {}


def _password(kind: str, from_file: str | None) -> str | None:
    """Return a password from its file or its variable. Raise click.UsageError for both."""
    variable = f"{PREFIX}{kind}PASSWORD"
    given = _environ().get(variable)
    if from_file and given:
        flag = f"--{kind.lower().replace('_', '-')}password-file"
        raise click.UsageError(f"{variable} and {flag} exclude each other")
    return from_file or given or None

"""Options of all subcommands: the agent, its passwords, the topic, the output."""

import asyncio
import functools
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import urlsplit

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from oplogc.ctl.options import values
from oplogc.http.address import shown
from oplogc.http.answers import Answer
from oplogc.http.client import NoAnswer
from oplogc.tail.settings import DEFAULT_URL, agent_url, password_in_file
from oplogc.topics import Isolation, NotAllowed, TopicConsumer, Topics
from oplogc.topics.calls.agents import Agents, Options
from oplogc.topics.calls.call import Call
from oplogc.topics.calls.topics import READ_UNCOMMITTED, check_isolation, refusal
from oplogc.topics.messages.names import topic_name

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # not generic at run time in older versions of click

PREFIX = "OPLOGCTL_"
BACKOFF = (0.5, 5.0)
# Words of httpx.
_HUNG_UP = "disconnected without sending a response"
# What follows on the first of several addresses. No part of a password ends so.
_SECOND_ADDRESS = re.compile(r"[,;\s]\s*(https?://|[^\s/@?#,;]+:[0-9]{1,5}/?([,;\s]|$))")


class Converted(ParamType):
    """Reads a value with a function that raises ValueError. Completes choices and files."""

    def __init__(
        self, metavar: str, convert: Callable[[str], Any], choices: tuple[str, ...] = ()
    ) -> None:
        self.name = metavar
        self._convert = convert
        self._choices = choices

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):  # a default
            return value
        flags = {name for each in ctx.command.params for name in each.opts} if ctx else set()
        if isinstance(param, click.Option) and value in flags:
            self.fail("needs a value", param, ctx)
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


def source_of(param: click.Parameter, ctx: click.Context) -> str:
    """Return the name of the flag, of the variable or of the argument that gave a value."""
    if ctx.get_parameter_source(param.name or "") is ParameterSource.ENVIRONMENT:
        names = [param.envvar] if isinstance(param.envvar, str) else list(param.envvar or ())
        return next((name for name in names if (ctx.obj or {}).get(name)), names[0])
    return param.opts[0] if isinstance(param, click.Option) else param.make_metavar(ctx)


def given_flag(*names: str) -> str:
    """Return the first of these options of the command that was given, as it was; empty: none."""
    ctx = click.get_current_context()
    given = (
        source_of(param, ctx)
        for name in names
        for param in ctx.command.params
        if param.name == name and ctx.get_parameter_source(name) is not ParameterSource.DEFAULT
    )
    return next(given, "")


class Option(click.Option):
    """Reads its variable from the mapping in the context. An empty variable is not set.

    A flag that was given before the command counts unless it is given behind it, too.
    """

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

    def value_from_envvar(self, ctx: click.Context) -> Any:
        names = [self.envvar] if isinstance(self.envvar, str) else list(self.envvar or ())
        environ = ctx.obj or {}
        return next((environ[name] for name in names if environ.get(name)), None)


def option(
    *names: str, metavar: str, convert: Callable[[str], Any], **more: Any
) -> Callable[[Any], Any]:
    choices = more.pop("choices", ())
    kind = Converted(metavar, convert, choices)
    return click.option(*names, cls=Option, type=kind, metavar=metavar, **more)


def named(metavar: str = "TOPIC", **more: Any) -> Callable[[Any], Any]:
    """Add the argument with the name of a topic."""

    def checked(text: str) -> str:
        return str(topic_name(text))

    return click.argument("topic", metavar=metavar, type=Converted(metavar, checked), **more)


@dataclass(frozen=True)
class Connection:
    """The agent of one run, and its passwords."""

    url: str
    retry_for: float
    proxy: str | None
    password: str | None = field(repr=False)
    ingest_password: str | None = field(repr=False)

    def topics(self) -> Topics:
        """Raises click.UsageError for a bad address."""
        try:
            return Topics(
                self.url,
                password=self.password,
                ingest_password=self.ingest_password,
                proxy=self.proxy,
                retry_for=self.retry_for,
                backoff=BACKOFF,
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from None

    def password_problem(self, writes: bool) -> str:
        """Return a sentence on a password that is wrong or missing."""
        chosen = (self.ingest_password or self.password) if writes else self.password
        if chosen or urlsplit(self.url).password:
            return "wrong password: the agent refuses it (HTTP 401)"
        kind = "ingest-password" if writes else "password"
        variable = f"{PREFIX}{kind.upper().replace('-', '_')}"
        return f"the agent needs a password: give --{kind}-file or {variable} (HTTP 401)"

    def ask(self, call: Call) -> Answer:
        """Return the answer of the agent to a request that succeeds; tried as ``--retry-for`` says.

        Raises click.UsageError for a bad address, UnavailableError, RefusedError.
        """

        async def ask(agents: Agents) -> Answer:
            answer, _ = await agents.ask(call)
            if (error := refusal(call, answer)) is not None:
                raise error
            return answer

        return self._with_agents(ask)

    def ask_once(self, call: Call) -> Answer:
        """Return the answer, whatever it is. Raises click.UsageError for a bad address, Failed."""

        async def ask(agents: Agents) -> Answer:
            answer, to = await agents.ask_once(call)
            if isinstance(answer, NoAnswer):
                reason = answer.reason
                if to.url.scheme == "http" and _HUNG_UP in reason:
                    reason = f"{reason.rstrip('.')}; does it speak TLS? Then give https://"
                raise Failed(f"{shown(to.url)}: {reason}")
            return answer

        return self._with_agents(ask)

    def _with_agents(self, ask: Callable[[Agents], Awaitable[Answer]]) -> Answer:
        async def run() -> Answer:
            passwords = (self.password, self.ingest_password)
            options = Options(
                (self.url,), *passwords, self.proxy, retry_for=self.retry_for, backoff=BACKOFF
            )
            agents = Agents(options)
            try:
                return await ask(agents)
            finally:
                await agents.aclose()

        try:
            return asyncio.run(run())
        except ValueError as error:
            raise click.UsageError(str(error)) from None

    def stream(self, topic: str, **options: Any) -> TopicConsumer:
        """Raises click.UsageError for a bad address, StateFileError."""
        try:
            return TopicConsumer(
                self.url, topic, password=self.password, proxy=self.proxy, **options
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from None


def _text(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


def _url(text: str) -> str:
    if _SECOND_ADDRESS.search(_text(text).strip()):
        raise ValueError("takes one address, such as http://localhost:8042")
    return agent_url(text)


_FLAGS: tuple[Callable[[Any], Any], ...] = (
    option(
        "--url", metavar="URL", convert=_url,
        envvar=["OPLOGCTL_URL", "OPLOG_URL"], show_envvar=True, default=DEFAULT_URL,
        show_default=True,
        help="Agent: http://HOST:PORT, https://HOST or HOST:PORT.",
    ),
    option(
        "--password-file", metavar="PATH", convert=password_in_file,
        envvar="OPLOGCTL_PASSWORD_FILE", show_envvar=True,
        help="File with the agent's password for reading. The password itself may be in"
        " OPLOGCTL_PASSWORD or OPLOG_PASSWORD.",
    ),
    option(
        "--ingest-password-file", metavar="PATH", convert=password_in_file,
        envvar="OPLOGCTL_INGEST_PASSWORD_FILE", show_envvar=True,
        help="File with the agent's password for writing. The password itself may be in"
        " OPLOGCTL_INGEST_PASSWORD. Not set: the one for reading.",
    ),
    option(
        "--proxy", metavar="URL", convert=_text, envvar="OPLOGCTL_PROXY", show_envvar=True,
        help="HTTP proxy. Not set: the proxy of HTTP_PROXY or HTTPS_PROXY.",
    ),
    option(
        "--retry-for", metavar="DURATION", convert=values.duration, default="10s",
        show_default=True, envvar="OPLOGCTL_RETRY_FOR", show_envvar=True,
        help="How long to try while the agent is unreachable or busy. `follow` tries for ever.",
    ),
)  # fmt: skip


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


VARIABLES = (
    "OPLOGCTL_URL",
    "OPLOGCTL_PASSWORD",
    "OPLOGCTL_PASSWORD_FILE",
    "OPLOGCTL_INGEST_PASSWORD",
    "OPLOGCTL_INGEST_PASSWORD_FILE",
    "OPLOGCTL_PROXY",
    "OPLOGCTL_RETRY_FOR",
)

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, an object per line.")

isolation = option(
    "--isolation",
    metavar="ISOLATION",
    convert=check_isolation,
    choices=get_args(Isolation),
    default=READ_UNCOMMITTED,
    show_default=True,
    help="read_uncommitted: records of a transaction when they are written. read_committed: at its"
    " commit, together.",
)


class Failed(Exception):
    """A sentence that ends the command with code 1."""


def connected(writes: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options of the connection; the command gets a ``Connection`` first.

    ``writes``: whether the command needs the password for writing.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def call(
            url: str,
            password_file: str | None,
            ingest_password_file: str | None,
            proxy: str | None,
            retry_for: int,
            **rest: Any,
        ) -> Any:
            password = _password("", password_file) or _environ().get("OPLOG_PASSWORD") or None
            ingest_password = _password("INGEST_", ingest_password_file)
            connection = Connection(url, max(retry_for, 0.001), proxy, password, ingest_password)
            try:
                return command(connection, **rest)
            except NotAllowed as error:
                if error.status != 401:
                    raise
                raise Failed(connection.password_problem(writes)) from None

        for flag in reversed(_FLAGS):
            flag(call)
        return call

    return decorate


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

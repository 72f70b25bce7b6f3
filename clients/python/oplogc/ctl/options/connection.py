"""The agent of one run of ``oplogctl``."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import click

from oplogc.http.address import shown
from oplogc.http.answers import Answer
from oplogc.http.client import NoAnswer
from oplogc.topics import TopicConsumer, Topics
from oplogc.topics.calls.agents import Agents, ClientOptions
from oplogc.topics.calls.call import Call

PREFIX = "OPLOGCTL_"
BACKOFF = (0.5, 5.0)
# Words of httpx.
_HUNG_UP = "disconnected without sending a response"


class Failed(Exception):
    """A sentence at the end of a command with code 1."""


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn a ValueError, as for a bad address, into click.UsageError."""
    try:
        yield
    except ValueError as error:
        raise click.UsageError(str(error)) from None


@dataclass(frozen=True)
class AgentConnection:
    """The agent of one run."""

    options: ClientOptions

    @usage_errors()
    def topics(self) -> Topics:
        """Raises click.UsageError for a bad address."""
        return Topics._of(self.options)

    @usage_errors()
    def stream(self, topic: str, **options: Any) -> TopicConsumer:
        """Raises click.UsageError for a bad address, StateFileError."""
        given = self.options
        return TopicConsumer(
            given.urls,
            topic,
            password=given.password,
            token=given.token,
            proxy=given.proxy,
            **options,
        )

    def password_problem(self, writes: bool) -> str:
        """Return a sentence on a refused token, or a wrong or missing password."""
        given = self.options
        if given.token is not None:
            return "the token was refused by the agent (HTTP 401): look at --token-file"
        chosen = (given.ingest_password or given.password) if writes else given.password
        if chosen or urlsplit(given.urls[0]).password:
            return "wrong password: the agent refuses it (HTTP 401)"
        kind = "ingest-password" if writes else "password"
        variable = f"{PREFIX}{kind.upper().replace('-', '_')}"
        return f"the agent needs a password: give --{kind}-file or {variable} (HTTP 401)"

    def ask(self, call: Call[Any]) -> None:
        """Send a request. Raises click.UsageError, UnavailableError and RefusedError."""
        self._with_agents(lambda agents: agents.confirmed(call))

    def ask_once(self, call: Call[Any]) -> Answer:
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

    @usage_errors()
    def _with_agents(self, ask: Callable[[Agents], Awaitable[Answer]]) -> Answer:
        async def run() -> Answer:
            agents = Agents(self.options)
            try:
                return await ask(agents)
            finally:
                await agents.aclose()

        return asyncio.run(run())

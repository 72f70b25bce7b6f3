"""Requests to the agents of the settings, and the meaning of their refusals."""

import asyncio
import ssl

import httpx

from oplog_kit import tls
from oplog_relay.model.errors import ConfigError
from oplog_relay.model.settings import AgentSettings
from oplogc.http.address import Endpoint, base_endpoint, below
from oplogc.http.answers import Answer
from oplogc.http.client import Http, NoAnswer

# An idle connection is closed before the agent does so, after 5 s: a request at that moment would
# have no answer, and the relay would have to take a new term.
_IDLE_SECONDS = 3.0
_PROBLEM = "application/problem+json"


class AgentCalls:
    """Requests to agents. ``present``: index of the present one. Raises ConfigError.

    ``timeout``: seconds for a request. ``connections``: left open between requests.
    """

    def __init__(self, settings: AgentSettings, timeout: float, connections: int) -> None:
        if not settings.urls:
            raise ConfigError("agents.urls: give the address of an agent")
        try:
            self._bases = [base_endpoint(url, settings.password) for url in settings.urls]
        except ValueError as error:
            raise ConfigError(f"agents.urls: {error}") from None
        self._http = Http(
            None,
            timeout,
            verify=tls_context(settings),
            limits=httpx.Limits(
                max_keepalive_connections=connections, keepalive_expiry=_IDLE_SECONDS
            ),
        )
        self.present = 0

    @property
    def count(self) -> int:
        return len(self._bases)

    def endpoint(self, agent: int, path: str) -> Endpoint:
        return below(self._bases[agent], path)

    async def ask(
        self,
        method: str,
        to: Endpoint,
        body: bytes | None,
        headers: dict[str, str],
        seconds: float | None = None,
    ) -> Answer | NoAnswer:
        """Send a request once. ``seconds``: a bound below the time-out of every request."""
        try:
            async with asyncio.timeout(seconds):
                return await self._http.ask(method, to, body, headers)
        except TimeoutError:
            return NoAnswer(f"no answer within {seconds:.3g} s")

    def move_on(self, agent: int) -> None:
        """Make the next agent the present one, unless another request has done so."""
        if self.present == agent:
            self.present = (agent + 1) % len(self._bases)

    async def close(self) -> None:
        await self._http.aclose()


def is_problem(answer: Answer) -> bool:
    """Return whether an agent gives the reason of its refusal, not a server before it."""
    return answer.headers.get("content-type", "").partition(";")[0].strip() == _PROBLEM


def refusal(answer: Answer) -> str:
    """Return the sentence for an answer with a remedy in the settings."""
    if answer.status in (401, 403):
        setting = "agents.password (OPLOG_RELAY_PASSWORD)"
        return f"{answer.url}: {answer.sentence()}; look at {setting}"
    if 300 <= answer.status < 400:
        hint = f" to {answer.location}" if answer.location else ""
        return f"agents.urls: {answer.url} redirects{hint}; give the address of an agent"
    if is_problem(answer):
        return f"{answer.url}: {answer.sentence()}"
    return f"agents.urls: {answer.url} is no agent (HTTP {answer.status})"


def tls_context(settings: AgentSettings) -> ssl.SSLContext | bool:
    """Return the TLS context; True: the usual one. Raises ConfigError with the setting's name."""
    try:
        return tls.tls_context(settings.ca_file, settings.cert_file, settings.key_file, "agents.")
    except ValueError as error:
        raise ConfigError(str(error)) from None

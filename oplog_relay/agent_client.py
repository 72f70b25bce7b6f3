"""Requests to the agents of the settings, and the meaning of their refusals."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from oplog_relay.errors import ConfigError
from oplog_relay.settings import AgentSettings
from oplogc.address import Endpoint, base_endpoint, below
from oplogc.answers import Answer
from oplogc.http_client import Http, NoAnswer

# An idle connection is closed before the agent does so, after 5 s: a request that meets this would
# have no answer, and the relay would have to take a new term.
_IDLE_SECONDS = 3.0
_PROBLEM = "application/problem+json"


class AgentClient:
    """Sends requests to the present agent. ``move_on`` makes the next one the present one.

    ``timeout``: seconds for a request. ``connections``: kept open between requests. Raises
    ConfigError.
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
    """Return the sentence for an answer that asks for a change of the settings."""
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
    """Return the TLS context of the connections; True: the usual one.

    Raises ConfigError, which names the setting.
    """
    if settings.key_file and not settings.cert_file:
        raise ConfigError("agents.cert_file: is missing; key_file is its private key")
    if not settings.ca_file and not settings.cert_file:
        return True
    with _readable("ca_file", settings.ca_file, "certificates in PEM"):
        # Without a file: as httpx does by itself, from SSL_CERT_FILE or the usual authorities.
        context = (
            ssl.create_default_context(cafile=settings.ca_file)
            if settings.ca_file
            else httpx.create_ssl_context()
        )
    if settings.key_file:
        with _readable("key_file", settings.key_file, "a private key"), open(settings.key_file):
            pass
    if settings.cert_file:
        wanted = "a certificate and its private key in PEM, without a pass phrase"
        with _readable("cert_file", settings.cert_file, wanted):
            # Without the last argument OpenSSL asks for a pass phrase at the terminal.
            context.load_cert_chain(settings.cert_file, settings.key_file, lambda: "")
    return context


@contextmanager
def _readable(setting: str, path: str | None, wanted: str) -> Iterator[None]:
    place, file = (f"agents.{setting}", repr(path)) if path else ("SSL_CERT_FILE", "its file")
    try:
        yield
    except ssl.SSLError:
        raise ConfigError(f"{place}: {file} does not hold {wanted}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{place}: cannot read {file}: {reason}") from None

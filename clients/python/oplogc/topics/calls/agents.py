"""The agents of one store: requests to one of them, tried again at the next."""

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import Any, TypeVar

from oplogc.http.address import Endpoint, base_endpoint, below, check_proxy, shown
from oplogc.http.answers import AGENT, Answer, no_token
from oplogc.http.backoff import BACKOFF, Backoff
from oplogc.http.client import Http, NoAnswer
from oplogc.http.token import Token, token_source
from oplogc.topics.calls.call import Call
from oplogc.topics.calls.consumers import refusal
from oplogc.wire.errors import UnavailableError

HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
_MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""A poll has some 1 MB, up to six times as much in JSON. A long list of topics may have more."""
logger = logging.getLogger("oplogc")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The agents of one store, and the arguments of ``AsyncTopics``. Raises ValueError."""

    urls: tuple[str, ...]
    password: str | None = field(repr=False)
    ingest_password: str | None = field(repr=False)
    proxy: str | None = None
    timeout: float = 30.0
    retry_for: float = 60.0
    backoff: tuple[float, float] = BACKOFF
    batch_size: int = 1000
    max_buffered: int = 100_000
    max_buffered_bytes: int = 64 * 1024 * 1024
    token: Token | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_proxy(self.proxy)
        if not (self.timeout > 0 and self.retry_for > 0):
            raise ValueError("timeout and retry_for: give seconds, more than 0")
        if self.batch_size < 1:
            raise ValueError("batch_size must be at least 1")
        Backoff(*self.backoff)


class Agents:
    """Sends requests to one agent as long as it answers, else to the next. Raises ValueError."""

    def __init__(self, options: ClientOptions) -> None:
        self.options = options
        writing = options.ingest_password or options.password
        token = token_source(
            options.token, password=options.password, ingest_password=options.ingest_password
        )
        self._reading = [base_endpoint(url, options.password, token) for url in options.urls]
        self._writing = [base_endpoint(url, writing, token) for url in options.urls]
        self._http = Http(options.proxy, options.timeout, _MAX_ANSWER_BYTES, AGENT)
        self._current = 0

    async def aclose(self) -> None:
        """Close the connections. A later request opens others."""
        await self._http.aclose()

    async def ask_once(
        self, call: Call[Any], until: float | None = None
    ) -> tuple[Answer | NoAnswer, Endpoint]:
        """Send a request once. Return the answer, and the address asked.

        If the agent is unreachable or busy, the next request goes to the next agent. ``until``:
        ``time.monotonic()`` after which the answer is not awaited. Raises the errors of a token
        function, as all requests do.
        """
        agent = self._current
        to = below((self._writing if call.writes else self._reading)[agent], call.path)
        if call.query:
            to = to._replace(url=to.url.copy_merge_params(call.query))
        headers = {**HEADERS, **call.headers}
        answer: Answer | NoAnswer
        limit = asyncio.timeout(None if until is None else until - time.monotonic())
        try:
            async with limit:
                answer = await self._http.ask(call.method, to, call.body, headers)
        except TimeoutError:
            if not limit.expired():
                raise
            answer = NoAnswer("no answer in time")
        is_away = isinstance(answer, NoAnswer) or answer.passes
        if self._current == agent and is_away:
            self._current = (agent + 1) % len(self._reading)
        return answer, to

    async def ask_each(self, call: Call[Any]) -> tuple[Answer | NoAnswer, bool]:
        """Ask each agent, until one is neither unreachable nor busy. Return as ``ask``."""
        lost = False
        for _ in self._reading:
            answer, to = await self.ask_once(call)
            if isinstance(answer, NoAnswer):
                lost |= answer.sent
                answer = answer._replace(reason=f"{shown(to.url)}: {answer.reason}")
            elif answer.passes:
                lost |= answer.status >= 500
            else:
                break
        return answer, lost

    async def fetch(self, call: Call[_T], until: float | None = None, first: int = 0) -> _T:
        """Return the content of the answer. Raises as ``confirmed``."""
        return call.read(await self.confirmed(call, until, first))

    async def confirmed(
        self, call: Call[Any], until: float | None = None, first: int = 0
    ) -> Answer:
        """Return the answer, see ``ask``. ``first``: see ``refusal``. Raises OplogError."""
        answer, _ = await self.ask(call, until)
        if (error := refusal(call, answer, first)) is not None:
            raise error
        return answer

    async def ask(
        self, call: Call[Any], until: float | None = None, repeat: bool = True
    ) -> tuple[Answer, bool]:
        """Return the answer, and whether an earlier attempt may have been carried out.

        ``until``: ``time.monotonic()`` after which nothing is tried or awaited. None: a request is
        tried for ``retry_for`` seconds. A pause follows when all agents were asked. If not
        ``repeat``, an attempt perhaps carried out is the last one. Raises UnavailableError.
        """
        backoff = Backoff(*self.options.backoff)
        end = time.monotonic() + self.options.retry_for if until is None else until
        attempts = 0
        asked_to_wait = 0.0
        lost = False
        logged = ""
        while True:
            try:
                answer, to = await self.ask_once(call, until)
            except Exception as error:  # of a token function
                if lost:
                    raise UnavailableError(no_token(error)) from error
                raise
            if isinstance(answer, NoAnswer):
                lost |= answer.sent
                reason = answer.reason
            elif answer.passes:
                lost |= answer.status >= 500
                reason = answer.sentence()
                asked_to_wait = max(asked_to_wait, answer.retry_after)
            else:
                return answer, lost
            attempts += 1
            pause = 0.0
            if attempts % len(self._reading) == 0:
                pause, asked_to_wait = backoff.next(asked_to_wait), 0.0
            if time.monotonic() + pause > end or (lost and not repeat):
                raise UnavailableError(f"{shown(to.url)}: {reason}", lost)
            if reason != logged:
                logger.warning("%s: %s; trying again in %.1f s", shown(to.url), reason, pause)
            logged = reason
            await asyncio.sleep(pause)

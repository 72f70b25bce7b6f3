"""The agents of one store: requests to one of them, tried again at the next."""

import asyncio
import logging
import time
from collections.abc import Sequence

from oplogc.http.address import Endpoint, agent_urls, base_endpoint, below, shown
from oplogc.http.answers import Answer
from oplogc.http.backoff import Backoff
from oplogc.http.client import Http, NoAnswer
from oplogc.topics.calls.topics import Call
from oplogc.wire.errors import UnavailableError

HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
logger = logging.getLogger("oplogc")


class Agents:
    """Sends requests to one agent as long as it answers, else to the next one.

    ``urls``: one, or several of agents on the same store. ``retry_for``: seconds that a request is
    tried in total. Raises ValueError.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        password: str | None,
        ingest_password: str | None,
        http: Http,
        backoff: tuple[float, float],
        retry_for: float,
    ) -> None:
        self.urls = agent_urls(urls)
        Backoff(*backoff)  # raises ValueError
        self._reading = [base_endpoint(url, password) for url in self.urls]
        self._writing = [base_endpoint(url, ingest_password or password) for url in self.urls]
        self._http = http
        self._backoff = backoff
        self.retry_for = retry_for
        self._current = 0

    async def ask_once(
        self, call: Call, until: float | None = None
    ) -> tuple[Answer | NoAnswer, Endpoint]:
        """Send a request once. Return the answer, and the address that was asked.

        If the agent is unreachable or busy, the next request goes to the next agent. ``until``:
        ``time.monotonic()`` after which the answer is not awaited; None: as long as one attempt
        may take.
        """
        agent = self._current
        to = below((self._writing if call.writes else self._reading)[agent], call.path)
        if call.query:
            to = to._replace(url=to.url.copy_merge_params(call.query))
        headers = {**HEADERS, **call.headers}
        answer: Answer | NoAnswer
        try:
            async with asyncio.timeout(None if until is None else until - time.monotonic()):
                answer = await self._http.ask(call.method, to, call.body, headers)
        except TimeoutError:
            answer = NoAnswer("no answer in time")
        if self._current == agent and _is_away(answer):
            self._current = (agent + 1) % len(self.urls)
        return answer, to

    async def ask_each(self, call: Call) -> tuple[Answer | NoAnswer, bool]:
        """Send a request to each agent, until one of them is neither unreachable nor busy.

        Return the last answer, and whether one that is unreachable or busy may have carried it out.
        """
        lost = False
        for _ in self.urls:
            answer, to = await self.ask_once(call)
            if isinstance(answer, NoAnswer):
                lost |= answer.sent
                answer = answer._replace(reason=f"{shown(to.url)}: {answer.reason}")
            elif answer.passes:
                lost |= answer.status >= 500
            else:
                break
        return answer, lost

    async def ask(
        self, call: Call, until: float | None = None, repeat: bool = True
    ) -> tuple[Answer, bool]:
        """Return the answer, and whether an earlier attempt may have been carried out.

        ``until``: ``time.monotonic()`` after which nothing is tried or awaited; None: a request is
        tried for ``retry_for`` seconds. There is a pause after all agents were asked. If not
        ``repeat``, nothing is tried after an attempt that may have been carried out. Raises
        UnavailableError.
        """
        backoff = Backoff(*self._backoff)
        end = time.monotonic() + self.retry_for if until is None else until
        attempts = 0
        asked_to_wait = 0.0
        lost = False
        told = ""
        while True:
            answer, to = await self.ask_once(call, until)
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
            if attempts % len(self.urls) == 0:
                pause, asked_to_wait = backoff.next(asked_to_wait), 0.0
            if time.monotonic() + pause > end or (lost and not repeat):
                raise UnavailableError(f"{shown(to.url)}: {reason}", lost)
            if reason != told:
                logger.warning("%s: %s; trying again in %.1f s", shown(to.url), reason, pause)
            told = reason
            await asyncio.sleep(pause)


def _is_away(answer: Answer | NoAnswer) -> bool:
    return isinstance(answer, NoAnswer) or answer.passes

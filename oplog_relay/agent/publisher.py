"""Publishes rows over HTTP."""

from collections.abc import Sequence
from functools import lru_cache

from oplog_relay.agent.client import AgentCalls, is_problem, refusal
from oplog_relay.agent.encode import EncodeError, encode, topic_of
from oplog_relay.model.bindings import Outcome, Verdict
from oplog_relay.model.row import Row
from oplog_relay.model.settings import RelaySettings
from oplogc.http.address import Endpoint, shown
from oplogc.http.answers import Answer
from oplogc.http.client import NoAnswer

LEASE = "Oplog-Lease"
_HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "identity"}


class HttpPublisher:
    """Implements ``Publisher``. Raises ConfigError for an unusable address or file."""

    def __init__(self, settings: RelaySettings) -> None:
        limits = settings.limits
        self._name = settings.name
        self._client = AgentCalls(settings.agents, limits.request_timeout, limits.shards)
        self._endpoint = lru_cache(1024)(self._client.endpoint)

    async def publish(self, topic: str, rows: Sequence[Row], term: int) -> Outcome:
        try:
            name = topic_of(topic)
            body = encode(name, rows)
        except EncodeError as error:
            return Outcome(Verdict.REFUSED, str(error))
        agent = self._client.present
        to = self._endpoint(agent, f"{name.path}/publish")
        headers = {**_HEADERS, LEASE: f"{self._name}; term={term}"}
        done = False
        try:
            outcome = outcome_of(await self._client.ask("POST", to, body, headers), to)
            done = outcome.verdict not in (Verdict.UNCERTAIN, Verdict.FORBIDDEN)
        finally:
            if not done:  # also after a cancellation: the agent did not answer in time
                self._client.move_on(agent)
        return outcome

    async def close(self) -> None:
        await self._client.close()


def outcome_of(answer: Answer | NoAnswer, to: Endpoint) -> Outcome:
    """Return the meaning of the answer to a publish. ``to``: its address."""
    if isinstance(answer, NoAnswer):
        return Outcome(Verdict.UNCERTAIN, f"{shown(to.url)}: {answer.reason}")
    if answer.passes:
        reason = f"{answer.url}: {answer.sentence()}"
        return Outcome(Verdict.UNCERTAIN, reason, answer.retry_after)
    if answer.status == 200 and not answer.body:
        return Outcome(Verdict.ACCEPTED)
    # A server before the agent may refuse a large request, too: nothing of it was stored.
    if answer.status == 413 or (answer.status in (400, 404) and is_problem(answer)):
        return Outcome(Verdict.REFUSED, answer.sentence())
    if answer.status == 412 and is_problem(answer):
        return Outcome(Verdict.STALE, answer.sentence())
    return Outcome(Verdict.FORBIDDEN, refusal(answer))

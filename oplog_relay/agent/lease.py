"""A lease over HTTP."""

import json
import logging
import time
from typing import Any

from oplog_relay.agent.client import AgentCalls, is_problem, refusal
from oplog_relay.model.bindings import LeaseState
from oplog_relay.model.errors import LeaseUnavailableError
from oplog_relay.model.settings import RelaySettings
from oplogc.http.address import shown
from oplogc.http.answers import Answer
from oplogc.http.client import NoAnswer

MAX_NOTE_BYTES = 8192
_HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
logger = logging.getLogger("oplog_relay")


class HttpLease:
    """Implements ``LeaseClient``. Raises ConfigError for an unusable address or file."""

    def __init__(self, settings: RelaySettings, holder: str) -> None:
        self._path = f"/v1/leases/{settings.name}"
        self._holder = holder
        self._ttl_ms = round(settings.limits.session * 1000)
        self._client = AgentCalls(settings.agents, settings.limits.request_timeout, 1)
        # The leader the log has named, while another relay leads.
        self._named: str | None = None

    async def poll(
        self, seconds: float, *, refresh: bool = False, note: str | None = None
    ) -> LeaseState:
        asked: dict[str, Any] = {"holder": self._holder, "ttl_ms": self._ttl_ms}
        if refresh:
            asked["refresh"] = True
        # A refused note must not cost the lead.
        if note is not None and len(note.encode()) <= MAX_NOTE_BYTES:
            asked["note"] = note
        state = await self._ask("POST", asked, seconds)
        assert state is not None
        if state.is_leader:
            self._named = None
        elif state.holder and state.holder != self._named:
            self._named = state.holder
            logger.info("waiting: %s leads", state.holder)
        return state

    async def release(self, seconds: float, term: int) -> None:
        await self._ask("DELETE", {"holder": self._holder, "term": term}, seconds)

    async def look(self, seconds: float) -> LeaseState | None:
        """Return the lease without changing it; None if no relay has ever held it.

        Raises LeaseUnavailableError.
        """
        return await self._ask("GET", None, seconds)

    async def look_at_note(self, seconds: float) -> str:
        state = await self.look(seconds)
        return state.note if state is not None and state.is_held else ""

    async def close(self) -> None:
        await self._client.close()

    async def _ask(
        self, method: str, asked: dict[str, Any] | None, seconds: float
    ) -> LeaseState | None:
        """Ask each agent once, from the present one on. Return the first good answer.

        The agents share the seconds equally. Raises LeaseUnavailableError.
        """
        body = None if asked is None else json.dumps(asked).encode()
        end = time.monotonic() + seconds
        reason = ""
        for left in range(self._client.count, 0, -1):
            agent = self._client.present
            to = self._client.endpoint(agent, self._path)
            part = max(end - time.monotonic(), 0.0) / left
            try:
                answer = await self._client.ask(method, to, body, _HEADERS, part)
                if isinstance(answer, NoAnswer):
                    raise LeaseUnavailableError(f"{shown(to.url)}: {answer.reason}")
                state = state_of(method, answer, self._holder)
            except BaseException as error:  # also a cancellation: there was no answer in time
                self._client.move_on(agent)
                if not isinstance(error, LeaseUnavailableError):
                    raise
                reason = str(error)
            else:
                if reason:
                    logger.warning("%s; the lease is asked for at %s", reason, shown(to.url))
                return state
        raise LeaseUnavailableError(reason)


def state_of(method: str, answer: Answer, holder: str) -> LeaseState | None:
    """Return the lease as an agent shows it, None if there is none, or none of this holder.

    Raises LeaseUnavailableError.
    """
    if answer.status == 200:
        try:
            return _state(method, answer.json(), holder)
        except (ValueError, TypeError, KeyError):
            fault = f"agents.urls: {answer.url} is no agent with leases"
            raise LeaseUnavailableError(fault) from None
    if answer.passes:
        raise LeaseUnavailableError(f"{answer.url}: {answer.sentence()}")
    if method != "POST" and answer.status in (404, 409) and is_problem(answer):
        return None
    raise LeaseUnavailableError(refusal(answer))


def _state(method: str, given: Any, holder: str) -> LeaseState:
    of, term, expires_in_ms = given["holder"], given["term"], given["expires_in_ms"]
    note = given.get("note") or ""
    if not isinstance(of, str | None) or type(term) is not int or not isinstance(note, str):
        raise TypeError("a lease has a holder, a term and a note")
    leads = given["leader"] if method == "POST" else of == holder
    if type(leads) is not bool:
        raise TypeError("leader must be true or false")
    return LeaseState(leads, of, term, float(expires_in_ms) / 1000, note)

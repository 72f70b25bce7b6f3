"""The lease over HTTP: requests, the meaning of answers, and several agents."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from oplog_relay.agent.client import AgentCalls
from oplog_relay.agent.lease import HttpLease
from oplog_relay.model.bindings import LeaseState
from oplog_relay.model.errors import LeaseUnavailableError
from oplog_relay.model.settings import RelaySettings
from oplogc.http.client import NoAnswer
from tests.integration.relay.http_agents import nobody, problem, respond, settings_of
from tests.kits.agents.agent import DEADLINE
from tests.kits.servers.scripted import End, ScriptedServer

PATH = "/v1/leases/orders"
BUSY = problem("503 Service Unavailable", "the store is unreachable")
HELD = {"leader": True, "holder": "me", "term": 7, "expires_in_ms": 9500}


def ok(**members: Any) -> bytes:
    return respond("200 OK", {**HELD, **members}, media_type="application/json")


@asynccontextmanager
async def lease(settings: RelaySettings) -> AsyncIterator[HttpLease]:
    made = HttpLease(settings, "me")
    try:
        yield made
    finally:
        await made.close()


async def test_a_poll_names_the_holder_and_the_session_and_what_is_asked_for() -> None:
    with ScriptedServer([ok()]) as agent:
        async with lease(settings_of(agent.url, password="pw", session=12.5)) as made:
            assert await made.poll(DEADLINE) == LeaseState(True, "me", 7, 9.5)
            await made.poll(DEADLINE, refresh=True, note='{"host":"ä"}')
            await made.poll(DEADLINE, note="ä" * 4096)
            await made.poll(DEADLINE, note="ä" * 4096 + "a")
            await made.poll(DEADLINE, note="")
    assert {head.split("\r\n")[0] for head in agent.heads} == {f"POST {PATH} HTTP/1.1"}
    assert all("Authorization: Basic OnB3" in head for head in agent.heads)
    assert all("Content-Type: application/json" in head for head in agent.heads)
    least = {"holder": "me", "ttl_ms": 12500}
    assert list(map(json.loads, agent.bodies)) == [
        least,
        {**least, "refresh": True, "note": '{"host":"ä"}'},
        {**least, "note": "ä" * 4096},
        least,  # an agent would refuse a longer note, and the relay would lose the lead
        {**least, "note": ""},
    ]


async def test_a_lease_of_another_holder_is_no_failure() -> None:
    with ScriptedServer([ok(leader=False, holder="other"), ok(leader=False, holder=None)]) as agent:
        async with lease(settings_of(agent.url)) as made:
            assert await made.poll(DEADLINE) == LeaseState(False, "other", 7, 9.5)
            assert await made.poll(DEADLINE) == LeaseState(False, None, 7, 9.5)


async def test_a_relay_that_waits_names_each_leader_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "oplog_relay")
    a, b, nobody = (ok(leader=False, holder=holder) for holder in ("a:1", "b:2", None))
    with ScriptedServer([a, a, nobody, a, b, ok(), b]) as agent:
        async with lease(settings_of(agent.url)) as made:
            for _ in range(7):
                await made.poll(DEADLINE)
    told = [each.getMessage() for each in caplog.records if each.name == "oplog_relay"]
    assert told == [f"waiting: {holder} leads" for holder in ("a:1", "b:2", "b:2")]


@pytest.mark.parametrize(
    "answer",
    [
        ok(),
        problem("404 Not Found", "nobody ever held it"),
        problem("409 Conflict", "other holds it with term 8"),
    ],
)
async def test_a_release_is_done_whoever_holds_the_lease_now(answer: bytes) -> None:
    with ScriptedServer([answer]) as agent:
        async with lease(settings_of(agent.url)) as made:
            await made.release(DEADLINE, 7)
    assert agent.heads[0].startswith(f"DELETE {PATH} ")
    assert json.loads(agent.bodies[0]) == {"holder": "me", "term": 7}


async def test_a_look_changes_nothing_and_shows_the_note() -> None:
    shown = {"name": "orders", "holder": "me", "term": 7, "expires_in_ms": 0, "note": "text"}
    of_other, of_nobody = ({**shown, "holder": holder} for holder in ("other", None))
    answers = [respond("200 OK", each) for each in (shown, of_other, of_nobody)]
    with ScriptedServer([*answers, problem("404 Not Found", "nobody")]) as agent:
        async with lease(settings_of(agent.url)) as made:
            assert [await made.look(DEADLINE) for _ in range(4)] == [
                LeaseState(True, "me", 7, 0, "text"),
                LeaseState(False, "other", 7, 0, "text"),
                LeaseState(False, None, 7, 0, "text"),
                None,
            ]
    assert all(head.startswith(f"GET {PATH} ") for head in agent.heads)
    assert agent.bodies == [b""] * 4


NO_LEASES = "agents.urls: LEASE is no agent with leases"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (BUSY, "LEASE: the store is unreachable (HTTP 503)"),
        (problem("429 Slow", "too many"), "LEASE: too many (HTTP 429)"),
        (
            problem("401 Unauthorized", "wrong password"),
            "LEASE: wrong password (HTTP 401); look at agents.password (OPLOG_RELAY_PASSWORD)",
        ),
        (problem("400 Bad Request", "holder: bad"), "LEASE: holder: bad (HTTP 400)"),
        (problem("404 Not Found", "nothing there"), "LEASE: nothing there (HTTP 404)"),
        (respond("404 Not Found", "x"), "agents.urls: LEASE is no agent (HTTP 404)"),
        (
            respond("302 Found", None, "Location: https://h/x"),
            "agents.urls: LEASE redirects to https://h/x; give the address of an agent",
        ),
        (respond("200 OK"), NO_LEASES),
        (respond("200 OK", []), NO_LEASES),
        (respond("200 OK", "null"), NO_LEASES),
        (respond("200 OK", '{"leader":NaN}'), NO_LEASES),
        (ok(leader="yes"), NO_LEASES),
        (ok(holder=5), NO_LEASES),
        (ok(term="7"), NO_LEASES),
        (ok(term=True), NO_LEASES),
        (ok(expires_in_ms=None), NO_LEASES),
        (ok(note=5), NO_LEASES),
        (respond("200 OK", {**HELD, "leader": None}), NO_LEASES),
        (None, "LEASE: Server disconnected without sending a response."),
    ],
)
async def test_any_other_answer_to_a_poll_is_a_failure(answer: bytes | None, reason: str) -> None:
    with ScriptedServer([answer]) as agent:
        async with lease(settings_of(agent.url.replace("//", "//user:sEcret@"))) as made:
            with pytest.raises(LeaseUnavailableError) as raised:
                await made.poll(DEADLINE)
    assert str(raised.value) == reason.replace("LEASE", f"{agent.url}{PATH}")


@pytest.mark.parametrize("answer", [respond("404 Not Found", "x"), respond("409 Conflict", "x")])
async def test_a_server_before_the_agents_says_nothing_about_the_lease(answer: bytes) -> None:
    with ScriptedServer([answer]) as agent:
        async with lease(settings_of(agent.url)) as made:
            with pytest.raises(LeaseUnavailableError, match="is no agent"):
                await made.look(DEADLINE)
            with pytest.raises(LeaseUnavailableError, match="is no agent"):
                await made.release(DEADLINE, 7)


async def test_a_call_asks_each_agent_once_and_later_calls_stay_with_the_good_one() -> None:
    with (
        ScriptedServer([BUSY]) as busy,
        ScriptedServer([None]) as cut,
        ScriptedServer([ok()]) as good,
    ):
        urls = [nobody(), busy.url, cut.url, good.url]
        async with lease(settings_of(*urls)) as made:
            for _ in range(3):
                assert (await made.poll(DEADLINE)).is_leader
        assert [len(agent.bodies) for agent in (busy, cut, good)] == [1, 1, 3]
        async with lease(settings_of(*urls[:3])) as made:
            with pytest.raises(LeaseUnavailableError):
                await made.poll(DEADLINE)
        assert [len(agent.bodies) for agent in (busy, cut, good)] == [2, 2, 3]


async def test_an_agent_that_hangs_leaves_time_for_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts: list[float] = []
    plain = AgentCalls.ask

    async def ask(
        self: AgentCalls, method: str, to: Any, body: Any, headers: Any, seconds: float
    ) -> Any:
        """Note the time for an agent. Let that of the first one pass once it has the request."""
        parts.append(seconds)
        asking = asyncio.create_task(plain(self, method, to, body, headers, seconds))
        if parts[1:]:
            return await asking
        await asyncio.to_thread(holding.wait_requests, 1)
        asking.cancel()
        await asyncio.wait({asking})
        return NoAnswer("its time is over")

    with ScriptedServer([End.HOLD]) as holding, ScriptedServer([ok()]) as good:
        async with lease(settings_of(holding.url, good.url)) as made:
            with monkeypatch.context() as patch:
                patch.setattr(AgentCalls, "ask", ask)
                assert (await made.poll(DEADLINE)).is_leader
            half = DEADLINE / 2
            assert parts[0] <= half < parts[1]  # half of it for the first one
            assert (await made.poll(DEADLINE)).is_leader
        assert (len(holding.requests), len(good.bodies)) == (1, 2)
        async with lease(settings_of(holding.url, holding.url)) as made:
            with pytest.raises(LeaseUnavailableError, match=r"no answer within 0(\.0\d{1,4})? s$"):
                await made.poll(0.1)


async def test_a_cancelled_poll_leaves_its_agent() -> None:
    with ScriptedServer([End.HOLD]) as holding, ScriptedServer([ok()]) as good:
        async with lease(settings_of(holding.url, good.url)) as made:
            cancelled = asyncio.create_task(made.poll(DEADLINE))
            await asyncio.to_thread(holding.wait_requests, 1)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            assert (await made.poll(DEADLINE)).is_leader
        assert len(holding.requests) == 1


async def test_a_change_of_the_agent_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "oplog_relay")
    with ScriptedServer([ok(), BUSY]) as first, ScriptedServer([ok()]) as second:
        urls = [agent.url.replace("//", "//user:sEcret@") for agent in (first, second)]
        async with lease(settings_of(*urls)) as made:
            for _ in range(4):
                await made.poll(DEADLINE)
        async with lease(settings_of(urls[0])) as made:
            with pytest.raises(LeaseUnavailableError):  # its caller logs it
                await made.poll(DEADLINE)
    (message,) = [each.getMessage() for each in caplog.records if each.name == "oplog_relay"]
    assert message == (
        f"{first.url}{PATH}: the store is unreachable (HTTP 503); "
        f"the lease is asked for at {second.url}{PATH}"
    )

"""The publisher over HTTP: requests, the meaning of answers, and several agents."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from oplog_relay.agent.publisher import HttpPublisher
from oplog_relay.model.bindings import Outcome, Verdict
from oplog_relay.model.row import Row
from oplog_relay.model.settings import RelaySettings
from tests.integration.relay.http_agents import nobody, problem, respond, settings_of
from tests.kits.agents.agent import DEADLINE
from tests.kits.servers.scripted import End, ScriptedServer

ROW = Row(1, datetime(2026, 1, 31, 12, tzinfo=UTC), "orders", "a", "value")
OK = respond("200 OK")
BUSY = problem("503 Service Unavailable", "the queue is full", "Retry-After: 7")
PATH = "/v1/namespaces/default/topics/orders/publish"
PASSWORD = "look at agents.password (OPLOG_RELAY_PASSWORD)"


@asynccontextmanager
async def publisher(settings: RelaySettings) -> AsyncIterator[HttpPublisher]:
    made = HttpPublisher(settings)
    try:
        yield made
    finally:
        await made.close()


async def publish(settings: RelaySettings, *rows: Row) -> Outcome:
    async with publisher(settings) as made:
        return await made.publish("orders", rows or (ROW,), 1)


async def test_a_request_carries_rows_of_a_topic_the_term_and_the_password() -> None:
    with ScriptedServer([OK]) as agent:
        url = f"{agent.url}/base/"
        async with publisher(settings_of(url, password="pä")) as made:
            rows = [ROW, ROW._replace(id=2, key="b", value=None)]
            assert await made.publish("sales/orders", rows, 7) == Outcome(Verdict.ACCEPTED)
            operation = '{"event":"insert","type":"a","id":"b"}'
            row = ROW._replace(value=operation)
            assert await made.publish("oplog", [row], 8) == Outcome(Verdict.ACCEPTED)
    heads = [head.split("\r\n") for head in agent.heads]
    assert [head[0] for head in heads] == [
        "POST /base/v1/namespaces/sales/topics/orders/publish HTTP/1.1",
        "POST /base/v1/namespaces/system/topics/oplog/publish HTTP/1.1",
    ]
    assert [line for head in heads for line in head if line.startswith("Oplog-Lease")] == [
        "Oplog-Lease: orders; term=7",
        "Oplog-Lease: orders; term=8",
    ]
    credentials = base64.b64encode(":pä".encode()).decode()
    for head in heads:
        assert "Content-Type: application/json" in head
        assert f"Authorization: Basic {credentials}" in head
    first, second = map(json.loads, agent.bodies)
    assert [message["key"] for message in first["messages"]] == ["a", "b"]
    assert second == {"messages": [operation]}


HTML = "<h1>nginx</h1>"


@pytest.mark.parametrize(
    ("answer", "verdict", "reason", "retry_after"),
    [
        (OK, Verdict.ACCEPTED, "", 0),
        (problem("400 Bad Request", "key: bad"), Verdict.REFUSED, "key: bad (HTTP 400)", 0),
        (problem("404 Not Found", "no topic"), Verdict.REFUSED, "no topic (HTTP 404)", 0),
        (problem("413 Too Large", "too large"), Verdict.REFUSED, "too large (HTTP 413)", 0),
        (respond("413 Too Large", HTML), Verdict.REFUSED, "Too Large (HTTP 413)", 0),
        (problem("412 Failed", "term 1 is over"), Verdict.STALE, "term 1 is over (HTTP 412)", 0),
        (
            problem("401 Unauthorized", "wrong password"),
            Verdict.FORBIDDEN,
            f"PUBLISH: wrong password (HTTP 401); {PASSWORD}",
            0,
        ),
        (
            problem("403 Forbidden", "no right"),
            Verdict.FORBIDDEN,
            f"PUBLISH: no right (HTTP 403); {PASSWORD}",
            0,
        ),
        (
            respond("301 Moved", None, "Location: https://u:sEcret@h/x?y=z"),
            Verdict.FORBIDDEN,
            "agents.urls: PUBLISH redirects to https://h/x; give the address of an agent",
            0,
        ),
        (
            respond("304 Not Modified"),
            Verdict.FORBIDDEN,
            "agents.urls: PUBLISH redirects; give the address of an agent",
            0,
        ),
        *[
            (
                respond(f"{status} No", HTML),
                Verdict.FORBIDDEN,
                f"agents.urls: PUBLISH is no agent (HTTP {status})",
                0,
            )
            for status in (400, 404, 405, 412, 418)
        ],
        (
            problem("415 Unsupported", "use JSON"),
            Verdict.FORBIDDEN,
            "PUBLISH: use JSON (HTTP 415)",
            0,
        ),
        (
            respond("200 OK", "[]", media_type="application/json"),
            Verdict.FORBIDDEN,
            "agents.urls: PUBLISH is no agent (HTTP 200)",
            0,
        ),
        (
            respond("204 No Content"),
            Verdict.FORBIDDEN,
            "agents.urls: PUBLISH is no agent (HTTP 204)",
            0,
        ),
        *[
            (
                problem(f"{status} Busy", "busy", "Retry-After: 7"),
                Verdict.UNCERTAIN,
                f"PUBLISH: busy (HTTP {status})",
                7,
            )
            for status in (408, 425, 429, 500, 502, 503, 504)
        ],
        (respond("502 Bad Gateway", HTML), Verdict.UNCERTAIN, "PUBLISH: Bad Gateway (HTTP 502)", 0),
        (
            None,
            Verdict.UNCERTAIN,
            "PUBLISH: Server disconnected without sending a response.",
            0,
        ),
        (
            b"nothing of HTTP\r\n\r\n",
            Verdict.UNCERTAIN,
            "PUBLISH: the answer is not one of HTTP",
            0,
        ),
    ],
)
async def test_every_answer_has_one_meaning(
    answer: bytes | None, verdict: Verdict, reason: str, retry_after: float
) -> None:
    with ScriptedServer([answer]) as agent:
        outcome = await publish(settings_of(agent.url.replace("//", "//user:sEcret@")))
        address = f"{agent.url}{PATH}"
    assert outcome == Outcome(verdict, reason.replace("PUBLISH", address), retry_after)
    assert len(agent.bodies) == 1


async def test_a_row_that_can_never_be_sent_is_refused_without_a_request() -> None:
    with ScriptedServer([OK]) as agent:
        async with publisher(settings_of(agent.url)) as made:
            fault = ROW._replace(fault="header_keys: are no list")
            assert await made.publish("orders", [ROW, fault], 1) == Outcome(
                Verdict.REFUSED, "header_keys: are no list"
            )
            outcome = await made.publish("no topic", [ROW], 1)
            assert outcome.verdict is Verdict.REFUSED
    assert agent.bodies == []


async def test_after_a_failure_the_next_request_goes_to_the_next_agent() -> None:
    no_agent = respond("404 Not Found", HTML)
    gone = problem("404 Not Found", "there is no topic default/orders")
    with (
        ScriptedServer([BUSY]) as busy,
        ScriptedServer([no_agent]) as wrong,
        ScriptedServer([gone, OK]) as good,
    ):
        urls = [nobody(), busy.url, wrong.url, good.url]
        async with publisher(settings_of(*urls)) as made:
            outcomes = [await made.publish("orders", [ROW], 1) for _ in range(6)]
    assert [outcome.verdict for outcome in outcomes] == [
        Verdict.UNCERTAIN,
        Verdict.UNCERTAIN,
        Verdict.FORBIDDEN,
        Verdict.REFUSED,
        Verdict.ACCEPTED,
        Verdict.ACCEPTED,
    ]
    assert [len(agent.bodies) for agent in (busy, wrong, good)] == [1, 1, 3]


async def test_a_late_failure_does_not_leave_an_agent_that_was_chosen_since() -> None:
    with (
        ScriptedServer([End.HOLD]) as first,
        ScriptedServer([BUSY]) as second,
        ScriptedServer([OK]) as third,
    ):
        async with publisher(settings_of(first.url, second.url, third.url)) as made:
            early, late = (asyncio.create_task(made.publish("orders", [ROW], 1)) for _ in range(2))
            await asyncio.to_thread(first.wait_requests, 1)
            for task, verdict in ((early, Verdict.UNCERTAIN), (late, Verdict.ACCEPTED)):
                task.cancel()
                await asyncio.wait([task])
                assert (await made.publish("orders", [ROW], 1)).verdict is verdict
    assert (len(second.bodies), len(third.bodies)) == (1, 1)


async def test_an_agent_without_an_answer_in_time_is_left() -> None:
    with ScriptedServer([End.HOLD]) as holding, ScriptedServer([OK]) as good:
        async with publisher(settings_of(holding.url, good.url, request_timeout=1.0)) as made:
            assert await made.publish("orders", [ROW], 1) == Outcome(
                Verdict.UNCERTAIN, f"{holding.url}{PATH}: no answer within 1 s"
            )
            made._client._http._timeout = DEADLINE  # this machine may be slow
            assert (await made.publish("orders", [ROW], 1)).verdict is Verdict.ACCEPTED
    assert len(holding.requests) == 1


async def test_a_cancelled_request_leaves_its_agent() -> None:
    with ScriptedServer([End.HOLD]) as holding, ScriptedServer([OK]) as good:
        async with publisher(settings_of(holding.url, good.url)) as made:
            cancelled = asyncio.create_task(made.publish("orders", [ROW], 1))
            await asyncio.to_thread(holding.wait_requests, 1)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            assert (await made.publish("orders", [ROW], 1)).verdict is Verdict.ACCEPTED

"""Publisher and lease with a real agent, over TLS and with a password."""

import asyncio
import dataclasses
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from oplog_relay.agent.lease import HttpLease
from oplog_relay.agent.publisher import HttpPublisher
from oplog_relay.model.bindings import Outcome, Verdict
from oplog_relay.model.errors import LeaseUnavailableError
from oplog_relay.model.row import Row
from oplog_relay.model.settings import AgentSettings, DatabaseSettings, RelaySettings
from tests.integration.relay.http_agents import respond
from tests.integration.relay.tls_files import Certificate, certificate
from tests.kits.agents.agent import DEADLINE, Agent

ROW = Row(1, datetime(2026, 1, 31, 12, tzinfo=UTC), "orders", "a", "value", (("a", "ä"),))
PASSWORD = "pä55"


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("tls"), "agent")


@pytest.fixture(scope="module")
def agent(tls: Certificate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    flags = ("--tls-certificate", str(tls.certificate), "--tls-key", str(tls.key))
    folder = tmp_path_factory.mktemp("agent")
    with Agent(folder, *flags, "--ingest-password", PASSWORD) as agent:
        yield agent


class Relays:
    """Publishers and leases with the agent. All are closed at the end."""

    def __init__(self, agent: Agent, tls: Certificate, stack: AsyncExitStack) -> None:
        self._agents = AgentSettings((agent.url,), PASSWORD, str(tls.certificate))
        self._stack = stack

    def publisher(self, name: str, **changes: Any) -> HttpPublisher:
        made = HttpPublisher(self._settings(name, changes))
        self._stack.push_async_callback(made.close)
        return made

    def lease(self, name: str, holder: str, **changes: Any) -> HttpLease:
        made = HttpLease(self._settings(name, changes), holder)
        self._stack.push_async_callback(made.close)
        return made

    def _settings(self, name: str, changes: dict[str, Any]) -> RelaySettings:
        agents = dataclasses.replace(self._agents, **changes)
        return RelaySettings(name, DatabaseSettings("sqlite:///a"), agents)


@pytest.fixture
async def relays(agent: Agent, tls: Certificate) -> AsyncIterator[Relays]:
    async with AsyncExitStack() as stack:
        yield Relays(agent, tls, stack)


async def test_rows_arrive_under_the_present_term_only(
    relays: Relays, agent: Agent, tls: Certificate
) -> None:
    publisher, lease = relays.publisher("fenced"), relays.lease("fenced", "me")
    over = Outcome(
        Verdict.STALE, "term 1 of the lease fenced is over; nothing was stored (HTTP 412)"
    )
    accepted = Outcome(Verdict.ACCEPTED)
    insert = ROW._replace(key="order/a", value='{"event":"insert","type":"order","id":"a"}')
    delete = insert._replace(id=2, value=None)
    rows = [ROW, ROW._replace(id=3, key="b", value=None, headers=())]
    verify = ssl.create_default_context(cafile=str(tls.certificate))
    async with httpx.AsyncClient(
        verify=verify, auth=("", PASSWORD), base_url=agent.url, timeout=DEADLINE
    ) as http:
        assert await publisher.publish("oplog", [insert], 1) == over
        assert (await lease.poll(DEADLINE)).term == 1
        assert await publisher.publish("orders", [ROW], 1) == Outcome(
            Verdict.REFUSED, "there is no topic default/orders (HTTP 404)"
        )
        topics = "/v1/namespaces/default/topics/orders"
        assert (await http.put(topics, json={})).status_code == 200
        for topic, batch in (("orders", rows), ("oplog", [insert]), ("system/oplog", [delete])):
            assert await publisher.publish(topic, batch, 1) == accepted
        half = await publisher.publish("oplog", [insert, ROW], 1)
        assert half.verdict is Verdict.REFUSED
        assert (await lease.poll(DEADLINE, refresh=True)).term == 2
        assert await publisher.publish("orders", rows, 1) == over
        assert await publisher.publish("oplog", [insert], 1) == over
        assert await publisher.publish("default/orders", rows[:1], 2) == accepted

        from_start = {"startFrom": 0}
        stored = (await http.post(f"{topics}/poll", json=from_start)).json()
        operations = (
            await http.post("/v1/namespaces/system/topics/oplog/poll", json=from_start)
        ).json()
    first = {"payload": "value", "key": "a", "headers": [["a", "ä"], ["outbox-id", "1"]]}
    second = {"payload": None, "key": "b", "headers": [["outbox-id", "3"]]}
    assert [{**message, "id": ""} for message in stored] == [
        {"id": "", **message} for message in (first, second, first)
    ]
    found = [json.loads(each["payload"]) for each in operations]
    assert [(each["event"], each["type"], each["id"]) for each in found] == [
        ("insert", "order", "a"),
        ("delete", "order", "a"),
    ]
    assert found[1]["timestamp"] == "2026-01-31T12:00:00.000Z"


async def test_a_lease_goes_from_holder_to_holder_with_rising_terms(relays: Relays) -> None:
    a, b = relays.lease("life", "a"), relays.lease("life", "b")
    assert await a.look(DEADLINE) is None
    await a.release(DEADLINE, 1)  # that nobody has
    state = await a.poll(DEADLINE, note='{"host":"ä"}')
    assert (state.is_leader, state.holder, state.term) == (True, "a", 1)
    other = await b.poll(DEADLINE)
    assert (other.is_leader, other.holder, other.term) == (False, "a", 1)
    assert 0 < other.expires_in <= 10
    shown = await b.look(DEADLINE)
    assert shown is not None
    assert (shown.is_leader, shown.holder, shown.note) == (False, "a", '{"host":"ä"}')
    assert (await a.poll(DEADLINE, refresh=True)).term == 2
    await b.release(DEADLINE, 2)  # of another holder
    await a.release(DEADLINE, 1)  # of an earlier term
    held = await a.look(DEADLINE)
    assert held is not None
    assert held.is_leader
    await a.release(DEADLINE, 2)
    await a.release(DEADLINE, 2)
    assert (await b.poll(DEADLINE))[:3] == (True, "b", 3)


async def test_a_wrong_password_stops_all_sending_and_names_the_setting(relays: Relays) -> None:
    for password in ("wrong", None):
        publisher = relays.publisher("pw", password=password)
        outcome = await publisher.publish("orders", [ROW], 1)
        assert outcome.verdict is Verdict.FORBIDDEN
        assert outcome.reason.endswith("(HTTP 401); look at agents.password (OPLOG_RELAY_PASSWORD)")
        with pytest.raises(LeaseUnavailableError, match=r"look at agents\.password"):
            await relays.lease("pw", "a", password=password).poll(DEADLINE)


async def test_an_agent_whose_certificate_is_not_trusted_gets_nothing(relays: Relays) -> None:
    outcome = await relays.publisher("tls", ca_file=None).publish("oplog", [ROW], 1)
    assert outcome.verdict is Verdict.UNCERTAIN
    assert "certificate verify failed" in outcome.reason
    with pytest.raises(LeaseUnavailableError, match="certificate verify failed"):
        await relays.lease("tls", "a", ca_file=None).poll(DEADLINE)


async def test_a_relay_shows_its_own_certificate(tls: Certificate) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tls.certificate))
    context.load_cert_chain(*tls)
    context.verify_mode = ssl.CERT_REQUIRED

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"messages")
        writer.write(respond("200 OK"))
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    async with server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        agents = AgentSettings((url,), None, *map(str, (tls.certificate, *tls)))
        verdicts = []
        for each in (agents, dataclasses.replace(agents, cert_file=None, key_file=None)):
            publisher = HttpPublisher(RelaySettings("n", DatabaseSettings("sqlite:///a"), each))
            verdicts.append((await publisher.publish("orders", [ROW], 1)).verdict)
            await publisher.close()
    assert verdicts == [Verdict.ACCEPTED, Verdict.UNCERTAIN]

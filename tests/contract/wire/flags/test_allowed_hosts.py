"""Web pages under host names of the agent, and under names that an attacker points at it."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kits.agents.agent import Agent
from tests.kits.contract.wire import JSON, NDJSON, Reply, Target, operation

FOREIGN = [
    "evil.example",
    "evil.example:8042",
    "localhost.evil.example",
    "",
    "localhost, evil.example",
]
PAGE: list[dict[str, str]] = [
    {"Origin": "http://evil.example:8042"},
    {"Origin": "http://localhost:8042"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "none"},
]


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with Agent(
        tmp_path_factory.mktemp("agent"), "--allowed-hosts", "oplog.example.com,other"
    ) as agent:
        yield Target.of(agent)


def send(
    target: Target,
    hosts: list[str],
    headers: dict[str, str],
    path: str = "/",
    version: str = "1.1",
    type_: str = JSON["Content-Type"],
) -> Reply:
    body = json.dumps(operation("insert", "a", "thing")).encode()
    lines = [
        f"POST {path} HTTP/{version}",
        *(f"Host: {host}" for host in hosts),
        *(f"{name}: {value}" for name, value in headers.items()),
        f"Content-Type: {type_}",
        f"Content-Length: {len(body)}",
        "",
        "",
    ]
    return target.exchange("\r\n".join(lines).encode() + body, "POST")


@pytest.mark.parametrize("page", PAGE, ids=str)
@pytest.mark.parametrize("path", ["/", "/ops"])
def test_a_page_under_a_foreign_name_may_not_write(
    named: Target, path: str, page: dict[str, str]
) -> None:
    before = named.status()["events_received"]
    for host in FOREIGN:
        for type_ in (JSON["Content-Type"], NDJSON["Content-Type"], "text/plain"):
            reply = send(named, [host], page, path, type_=type_)
            assert reply.status == 403
            assert "--allowed-hosts" in reply.problem()
    assert named.status()["events_received"] == before


@pytest.mark.parametrize("page", PAGE, ids=str)
@pytest.mark.parametrize(
    "host",
    [
        "localhost:8042",
        "LOCALHOST",
        "localhost.",
        "a.localhost",
        "127.0.0.1:8042",
        "192.0.2.7",
        "[::1]:8042",
        "oplog.example.com",
        "Oplog.Example.com.:8042",
        "other",
    ],
)
def test_a_page_under_a_name_of_the_agent_may_write(
    named: Target, host: str, page: dict[str, str]
) -> None:
    assert send(named, [host], page).status == 204


@pytest.mark.parametrize("host", [*FOREIGN, "oplog.internal:8042", "[::1]:8042", "LOCALHOST."])
def test_a_client_that_is_no_page_may_write_under_any_name(named: Target, host: str) -> None:
    headers = {
        "User-Agent": "a service",
        "Referer": "http://evil.example/",
        "Sec-Fetch-Mode": "cors",
    }
    assert send(named, [host], headers).status == 204


def test_each_host_of_a_request_must_be_the_agents_own(named: Target) -> None:
    for hosts in (["localhost", "evil.example"], ["evil.example", "localhost"]):
        assert send(named, hosts, {"Origin": "null"}).status in (400, 403)


def test_a_page_without_a_host_may_not_write(named: Target) -> None:
    assert send(named, [], {"Origin": "null"}, version="1.0").status in (400, 403)


def test_forwarded_host_headers_do_not_count(named: Target) -> None:
    forwarded = {
        "X-Forwarded-Host": "localhost",
        "Forwarded": "host=localhost",
        "Origin": "http://evil.example",
    }
    assert send(named, ["evil.example"], forwarded).status == 403


def test_reading_stays_open_to_pages(named: Target) -> None:
    for headers in (
        {"Host": "evil.example"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
    ):
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        for path in ("/status", "/session", "/metrics"):
            assert named.exchange(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode()).status == 200
        head = f"HEAD /ops HTTP/1.1\r\n{lines}Accept: text/event-stream\r\n\r\n"
        assert named.exchange(head.encode(), "HEAD").status == 200


def test_the_consumers_are_not_shown_under_a_foreign_name(named: Target) -> None:
    def told(host: str) -> bool:
        status = named.exchange(f"GET /status HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()).json
        return "consumers" in status

    assert [told(host) for host in ("localhost:1", "127.0.0.1", "[::1]", "other")] == [True] * 4
    assert not any(told(host) for host in FOREIGN)


def test_with_an_ingest_password_the_password_is_the_guard(tmp_path: Path) -> None:
    with Agent(tmp_path, "--ingest-password", "secret", "--password", "other") as agent:
        target = Target.of(agent)
        right = {"Authorization": "Basic " + base64.b64encode(b":secret").decode()}
        for page in PAGE:
            assert send(target, ["evil.example"], page).status == 401
            assert send(target, ["evil.example"], {**page, **right}).status == 204


def test_without_the_flag_only_localhost_and_addresses_are_the_agents_own(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        target = Target.of(agent)
        for host, status in (
            ("localhost", 204),
            (f"127.0.0.1:{agent.port}", 204),
            ("oplog.example.com", 403),
        ):
            assert send(target, [host], {"Origin": f"http://{host}"}).status == status

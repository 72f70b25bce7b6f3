"""An agent on all interfaces, with one socket for IPv4 and IPv6, with and without a local proxy."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kits.agents.agent import Agent
from tests.kits.agents.runs import has_ipv6
from tests.kits.contract.passwords import basic
from tests.kits.contract.wire import JSON, SSE, RawStream, Target

PASSWORD = "secret"
STRANGER, OWNER = "203.0.113.9", "198.51.100.7"


LOOPBACK = ["127.0.0.1", "::1"] if has_ipv6() else ["127.0.0.1"]


def target_of(agent: Agent, address: str) -> Target:
    return Target(
        f"http://[{address}]:{agent.port}" if ":" in address else f"http://{address}:{agent.port}"
    )


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with Agent(tmp_path_factory.mktemp("agent"), "--listen", ":0") as agent:
        yield agent


@pytest.fixture(params=LOOPBACK)
def target(request: pytest.FixtureRequest, everywhere: Agent) -> Target:
    return target_of(everywhere, request.param)


def host_of(stream: RawStream) -> str:
    host, port = stream.address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def consumers(target: Target, headers: dict[str, str] | None = None) -> list[str] | None:
    """Return the addresses of the consumers, None if the answer does not show them."""
    told = target.request("GET", "/status", headers=headers or {}).json.get("consumers")
    return None if told is None else [consumer["address"] for consumer in told]


def test_a_consumer_is_shown_under_the_address_it_has(target: Target) -> None:
    with target.follow() as stream:
        addresses = consumers(target)
        assert addresses is not None
        assert host_of(stream) in addresses
        assert not any("ffff" in address for address in addresses)


def test_a_consumer_behind_a_proxy_is_shown_under_its_own_address(target: Target) -> None:
    for forwarded, shown in (
        (STRANGER, f"{STRANGER}:0"),
        (f"::ffff:{STRANGER}", f"{STRANGER}:0"),
        (f"127.0.0.1, {STRANGER}:5", f"{STRANGER}:5"),
        ("127.0.0.1, unknown", "unknown"),
    ):
        with target.follow(None, {**SSE, "X-Forwarded-For": forwarded}):
            addresses = consumers(target)
            assert addresses is not None
            assert shown in addresses


@pytest.mark.parametrize(
    "name", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via", "Origin", "x-forwarded-for"]
)
def test_no_header_makes_a_request_local(target: Target, name: str) -> None:
    for value in (
        "127.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "localhost",
        "",
        f"{STRANGER}, 127.0.0.1",
        "127.0.0.1%lo",
    ):
        assert consumers(target, {name: value}) is None


def test_the_scheme_that_a_proxy_reports_is_believed(tmp_path: Path) -> None:
    with Agent(tmp_path, "--listen", ":0", "--password", PASSWORD) as agent:
        for address in LOOPBACK:
            login, headers = (
                json.dumps({"password": PASSWORD}).encode(),
                {**JSON, "X-Forwarded-Proto": "https"},
            )
            reply = target_of(agent, address).request("POST", "/session", login, headers)
            assert (reply.header("Set-Cookie") or "").endswith("; Secure")


@pytest.mark.parametrize("address", LOOPBACK)
def test_guesses_through_a_proxy_lock_out_only_their_sender(tmp_path: Path, address: str) -> None:
    with Agent(tmp_path, "--listen", ":0", "--password", PASSWORD) as agent:
        target = target_of(agent, address)

        def ask(client: str, password: str) -> int:
            headers = {**SSE, **basic(password), "X-Forwarded-For": client}
            return target.request("HEAD", "/ops", headers=headers).status

        answers = [ask(f"127.0.0.1, {STRANGER}", f"guess {number}") for number in range(30)]
        assert (answers[:10], set(answers)) == ([401] * 10, {401, 429})
        assert ask(OWNER, PASSWORD) == 200
        assert target.request("HEAD", "/ops", headers={**SSE, **basic(PASSWORD)}).status == 200
        agent.wait_log(f"too many wrong passwords: passwords from {STRANGER} ")


@pytest.mark.parametrize(
    ("trusted", "believed"),
    [
        ("127.0.0.1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:127.0.0.0/104", True),
        ("*", True),
        ("192.0.2.1", False),
        ("", False),
        ("localhost", False),
    ],
)
def test_the_variable_sets_the_trusted_proxies(
    tmp_path: Path, trusted: str, believed: bool
) -> None:
    with Agent(tmp_path, "--listen", ":0", environ={"FORWARDED_ALLOW_IPS": trusted}) as agent:
        target = target_of(agent, "127.0.0.1")
        with target.follow(None, {**SSE, "X-Forwarded-For": STRANGER}) as stream:
            assert consumers(target) == [f"{STRANGER}:0" if believed else host_of(stream)]
        if trusted == "localhost":
            agent.wait_log("ignoring 'localhost', not an IP address or network")

"""An agent with passwords for both ways."""

import base64
import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from oplogd.operation import parse_timestamp
from oplogd.web.signing import Kind, Signer
from tests.agents import Agent
from tests.contract.places import Place
from tests.contract.wire import JSON, SSE, Target, operation, said, wait_until

READER, WRITER = "read: mé", "write"


def basic(password: str, user: str = "anybody") -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


@pytest.fixture(scope="module")
def guarded(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    flags = ("--password", READER, "--ingest-password", WRITER)
    with place.agent(tmp_path_factory.mktemp("agent"), *flags) as agent:
        yield Target.of(agent)


WRONG = {
    "none": {},
    "empty": {"Authorization": ""},
    "another": basic("guess"),
    "an empty one": basic(""),
    "one too long": basic(WRITER + READER),
    "another scheme": {"Authorization": basic(READER)["Authorization"].replace("Basic", "Bearer")},
    "no base64": {"Authorization": "Basic ***"},
    "no colon": {"Authorization": "Basic " + base64.b64encode(WRITER.encode()).decode()},
}


@pytest.mark.parametrize(
    "wrong", [*WRONG.values(), basic(WRITER)], ids=[*WRONG, "that of producers"]
)
def test_the_stream_needs_its_password(guarded: Target, wrong: dict[str, str]) -> None:
    for path in ("/", "/ops"):
        reply = guarded.request("GET", path, headers={**SSE, **wrong})
        assert reply.status == 401
        assert reply.header("WWW-Authenticate") == 'Basic realm="oplog", charset="UTF-8"'
        assert "password" in reply.problem()
        assert guarded.request("HEAD", path, headers={**SSE, **wrong}).status == 401


@pytest.mark.parametrize(
    "wrong", [*WRONG.values(), basic(READER)], ids=[*WRONG, "that of consumers"]
)
def test_sending_needs_its_password(guarded: Target, wrong: dict[str, str]) -> None:
    before = guarded.status()
    for body in (operation("insert", "a", "thing"), [operation("insert", "a", "thing")], b"{"):
        reply = guarded.post(body, {**JSON, **wrong})
        assert reply.status == 401
        assert reply.header("WWW-Authenticate") == 'Basic realm="oplog", charset="UTF-8"'
        assert "password" in reply.problem()
    assert guarded.status()["events_received"] == before["events_received"]


@pytest.mark.parametrize("user", ["", "anybody", "ü"])
def test_each_password_opens_its_way_for_any_user(guarded: Target, user: str) -> None:
    with guarded.follow(None, {**SSE, **basic(READER, user)}) as stream:
        assert (
            guarded.post(operation("insert", "a", "thing"), {**JSON, **basic(WRITER, user)}).status
            == 204
        )
        assert said(stream.block()) == ("insert", "a")


def test_udp_and_everything_but_the_stream_need_no_password(guarded: Target) -> None:
    with guarded.follow(None, {**SSE, **basic(READER)}) as stream:
        guarded.send_udp(b'{"event":"insert","type":"thing","id":"udp"}')
        assert said(stream.block()) == ("insert", "udp")
    for path in ("/status", "/live", "/ready", "/metrics", "/openapi.json", "/docs"):
        assert guarded.request("GET", path).status == 200
    assert guarded.request("GET", "/", headers={"Accept": "text/html"}).status == 200


def test_a_preflight_needs_no_password(guarded: Target) -> None:
    asked = {"Origin": "http://a.example", "Access-Control-Request-Method": "GET"}
    assert guarded.request("OPTIONS", "/ops", headers=asked).status == 204


BROWSER_CHALLENGE = 'OplogSession realm="oplog"'
LOGIN = {"password": READER}


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """Another agent for the same consumers; its producers' password is the same as theirs."""
    flags = ("--password", READER, "--ingest-password", READER, "--debug")
    with Agent(tmp_path_factory.mktemp("other"), *flags) as agent:
        yield agent


DEEP = b'{"x": %s%s}' % (b"[" * 5_000, b"]" * 5_000)
"""More levels than Python decodes."""


def sign_in(target: Target, headers: dict[str, str] | None = None) -> str:
    """The cookie, as a browser sends it."""
    reply = target.request(
        "POST", "/session", json.dumps(LOGIN).encode(), {**JSON, **(headers or {})}
    )
    assert (reply.status, reply.body) == (204, b"")
    return (reply.header("Set-Cookie") or "").partition(";")[0]


def get_token(target: Target) -> str:
    reply = target.request("POST", "/token", b"", basic(READER))
    assert (reply.status, reply.json["seconds"]) == (200, 900)
    token: str = reply.json["token"]
    return token


def test_a_cookie_opens_the_stream_of_every_agent_with_the_password(
    guarded: Target, other: Agent
) -> None:
    cookie = {"Cookie": sign_in(guarded)}
    for target in (guarded, Target.of(other)):
        with target.follow("0", {**SSE, **cookie}) as stream:
            stream.until("live")
        assert target.request("HEAD", "/ops", headers={**SSE, **cookie}).status == 200
        session = target.request("GET", "/session", headers=cookie).json
        assert (session["password_needed"], session["signed_in"]) == (True, True)
        assert parse_timestamp(session["expires"]) > datetime.now(UTC)


@pytest.mark.parametrize(
    ("headers", "more"),
    [({}, ""), ({"Origin": "http://a.example"}, ""), ({"Origin": "https://a.example"}, "; Secure"),
     ({"X-Forwarded-Proto": "https"}, "; Secure")],
)  # fmt: skip
def test_the_cookie_is_for_this_site_and_no_script(
    guarded: Target, headers: dict[str, str], more: str
) -> None:
    reply = guarded.request("POST", "/session", json.dumps(LOGIN).encode(), {**JSON, **headers})
    value, _, attributes = (reply.header("Set-Cookie") or "").partition("; ")
    assert re.fullmatch(r"oplog=cookie\.\d{10}\.[\w-]{43}", value)
    assert attributes == f"Path=/; HttpOnly; SameSite=Strict{more}"
    assert reply.header("Cache-Control") == "no-store"


def test_signing_out_takes_the_cookie_back(guarded: Target) -> None:
    reply = guarded.request("DELETE", "/session", headers={"Cookie": sign_in(guarded)})
    assert reply.status == 204
    assert reply.header("Set-Cookie") == "oplog=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"
    for headers in ({}, {"Cookie": "oplog="}):
        session = guarded.request("GET", "/session", headers=headers).json
        assert session == {"password_needed": True, "signed_in": False, "expires": None}


def test_a_token_opens_the_stream_of_every_agent_with_the_password(
    guarded: Target, other: Agent
) -> None:
    token = get_token(guarded)
    for target in (guarded, Target.of(other)):
        with target.follow("0", SSE, token=token) as stream:
            stream.until("live")


def test_neither_cookie_nor_token_may_send_operations_or_get_tokens(other: Agent) -> None:
    target = Target.of(other)
    cookie, token = {"Cookie": sign_in(target)}, get_token(target)
    body = operation("insert", "a", "thing")
    for headers, path in ((cookie, "/"), ({}, f"/?token={token}"), ({}, f"/ops?token={token}")):
        assert target.post(body, {**JSON, **headers}, path).status == 401
        assert (
            target.request(
                "POST", path.replace("/ops", "/").replace("/", "/token", 1), b"", headers
            ).status
            == 401
        )
    assert target.status()["events_received"] == 0


def test_one_kind_does_not_serve_as_the_other(guarded: Target) -> None:
    cookie, token = sign_in(guarded), get_token(guarded)
    assert guarded.request("GET", "/ops", headers={**SSE, "Cookie": f"oplog={token}"}).status == 401
    assert (
        guarded.request("GET", f"/ops?token={cookie.removeprefix('oplog=')}", headers=SSE).status
        == 401
    )


@pytest.mark.parametrize("path", ["/session", "/token"])
def test_no_page_of_another_origin_can_sign_in_or_read_a_token(guarded: Target, path: str) -> None:
    from_elsewhere = {"Origin": "http://a.example"}
    body = json.dumps(LOGIN if path == "/session" else {}).encode()
    reply = guarded.request("POST", path, body, {**JSON, **basic(READER), **from_elsewhere})
    assert reply.status in (200, 204)
    assert reply.header("Access-Control-Allow-Origin") is None
    for type_ in ("text/plain", "application/x-www-form-urlencoded", ""):  # what needs no preflight
        assert (
            guarded.request("POST", "/session", b"password=read", {"Content-Type": type_}).status
            == 415
        )


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b'{"password": 1}', b'"x"', b"\xff", b'{"password": "\xff"}', b"[" * 10_000, DEEP,
     json.dumps({**LOGIN, "hours": 1}).encode()],
)  # fmt: skip
def test_a_sign_in_that_cannot_be_read_is_refused(guarded: Target, body: bytes) -> None:
    reply = guarded.request("POST", "/session", body, JSON)
    assert reply.status == 400
    assert "password" in reply.problem()


ASKS = [
    b'{"types": ["video"]}',
    b'{"seconds": 60}',
    b"types=video",
    b"[]",
    b"null",
    b"0",
    b"x",
    b"\xff",
    b"{",
    b"{}{}",
    DEEP,
]


@pytest.mark.parametrize("type_", [JSON["Content-Type"], "application/x-www-form-urlencoded", ""])
def test_who_asks_for_another_token_does_not_get_one(guarded: Target, type_: str) -> None:
    headers = {**basic(READER), "Content-Type": type_}
    for body in ASKS:
        reply = guarded.request("POST", "/token", body, headers)
        assert reply.status == 400
        assert "no options" in reply.problem()
    for query in ("types=video", "seconds=60", "x", "token=abc"):
        reply = guarded.request("POST", f"/token?{query}", b"", headers)
        assert reply.status == 400
        assert "no options" in reply.problem()
        assert query not in reply.problem()
    for body in (b"", b" ", b"{}", b" { }\r\n"):
        assert guarded.request("POST", "/token", body, headers).status == 200
    chunked = f"POST /token HTTP/1.1\r\nHost: a\r\nAuthorization: {headers['Authorization']}\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert guarded.exchange(chunked.encode() + b"2\r\n{}\r\n0\r\n\r\n").status == 200
    assert guarded.exchange(chunked.encode() + b'7\r\n{"a":1}\r\n0\r\n\r\n').status == 400


def test_who_has_no_right_is_not_told_what_is_wrong_with_the_body(guarded: Target) -> None:
    for path, body in (("/token", ASKS[0]), ("/token?types=video", b""), ("/token", b"x" * 20_000)):
        assert guarded.request("POST", path, body).status == 401
    assert guarded.request("POST", "/token", b"x" * 20_000, basic(READER)).status == 413


def test_signing_out_and_in_have_no_options(guarded: Target) -> None:
    for body in ASKS:
        reply = guarded.request("DELETE", "/session", body)
        assert (reply.status, reply.header("Set-Cookie")) == (400, None)
    assert guarded.request("DELETE", "/session?all=1").status == 400
    assert guarded.request("DELETE", "/session", b"{}").status == 204
    assert guarded.request("DELETE", "/session", b"x" * 20_000).status == 413


def test_a_sign_in_of_any_size_is_refused_early(guarded: Target) -> None:
    assert (
        guarded.request("POST", "/session", b'{"password": "%s"}' % (b"x" * 20_000), JSON).status
        == 413
    )


def test_a_wrong_sign_in_is_told_without_the_browsers_own_dialog(guarded: Target) -> None:
    reply = guarded.request("POST", "/session", b'{"password": "guess"}', JSON)
    assert (reply.status, reply.header("WWW-Authenticate")) == (401, BROWSER_CHALLENGE)
    assert reply.header("Set-Cookie") is None
    reply = guarded.request("GET", "/ops", headers={**SSE, "Cookie": "oplog=cookie.1.x"})
    assert (reply.status, reply.header("WWW-Authenticate")) == (401, BROWSER_CHALLENGE)


def test_a_cookie_that_expires_does_not_cut_a_running_stream(guarded: Target) -> None:
    value = Signer(READER).sign(Kind.COOKIE, int(time.time()) + 2)
    cookie = {"Cookie": f"oplog={value}"}
    with guarded.follow(None, {**SSE, **cookie}) as stream:
        assert wait_until(
            lambda: not guarded.request("GET", "/session", headers=cookie).json["signed_in"]
        )
        assert guarded.request("GET", "/ops", headers={**SSE, **cookie}).status == 401
        assert (
            guarded.post(operation("insert", "later", "thing"), {**JSON, **basic(WRITER)}).status
            == 204
        )
        assert said(stream.block()) == ("insert", "later")


def test_the_consumers_are_told_to_who_may_follow_and_to_nobody_else(guarded: Target) -> None:
    rights = [basic(READER), {"Cookie": sign_in(guarded)}]
    with guarded.follow(None, {**SSE, **basic(READER)}, types="a,b", parents="x") as stream:
        for right in rights:
            status = guarded.request("GET", "/status", headers=right).json
            (consumer,) = [each for each in status["consumers"] if each["filter"]["parents"]]
            assert consumer["filter"] == {"types": ["a", "b"], "parents": ["x"], "left_out": 0}
            assert consumer["address"] == "{}:{}".format(*stream.address)
            assert consumer["phase"] == "live"
            assert status["consumers_left_out"] == 0
        for wrong in ({}, basic(WRITER), {"Cookie": "oplog=1"}, {"X-Forwarded-For": "127.0.0.1"}):
            reply = guarded.request("GET", "/status", headers=wrong)
            assert reply.status == 200
            assert {"consumers", "consumers_left_out"}.isdisjoint(reply.json)


def test_no_token_is_logged_or_repeated_in_an_answer(other: Agent) -> None:
    target = Target.of(other)
    good = get_token(target)
    bad = Signer("another").sign(Kind.TOKEN, int(time.time()) + 60)
    expired = Signer(READER).sign(Kind.TOKEN, 1)
    for token in (good, bad, expired):
        for method, path, headers in (
            ("GET", "/ops", {}), ("POST", "/ops", JSON), ("PUT", "/ops", {}), ("GET", "/nowhere", SSE),
            ("GET", "/ops", {**SSE, "Last-Event-ID": "wrong"}), ("GET", "/status", {}), ("GET", "/session", {}),
            ("HEAD", "/ops", SSE), ("POST", "/token", {}), ("GET", "/", {"Accept": "text/html"}),
        ):  # fmt: skip
            reply = target.request(
                method, f"{path}?token={token}", b"{}" if method == "POST" else None, headers
            )
            assert token not in f"{reply.headers}{reply.body!r}"
    with target.follow("0", SSE, token=good) as stream:
        stream.until("live")
    for token in (bad, expired):
        assert "token" in target.request("GET", f"/ops?token={token}", headers=SSE).problem()
    target.exchange(b"GET /ops?token=%s HTTP/9.9\r\n\r\n" % good.encode())
    other.wait_log("gone after")
    logged = "".join(other.log)
    assert not any(
        part in logged
        for token in (good, bad, expired)
        for part in (token, token.rpartition(".")[2])
    )


def test_after_many_different_wrong_passwords_no_more_are_looked_at(tmp_path: Path) -> None:
    with Agent(tmp_path, "--password", READER, "--ingest-password", WRITER) as agent:
        target = Target.of(agent)
        cookie = sign_in(target)
        for _ in range(30):
            assert (
                target.request("GET", "/ops", headers={**SSE, **basic("an old one")}).status == 401
            )
        for number in range(9):
            assert (
                target.request("POST", "/session", b'{"password": "%d"}' % number, JSON).status
                == 401
            )
        for reply in (
            target.request("GET", "/ops", headers={**SSE, **basic(READER)}),
            target.request("POST", "/session", json.dumps(LOGIN).encode(), JSON),
            target.request("POST", "/token", b"", basic(READER)),
        ):
            assert reply.status == 429
            assert 1 <= int(reply.header("Retry-After") or "") <= 10
            assert "wrong passwords" in reply.problem()
        assert "consumers" not in target.request("GET", "/status", headers=basic(READER)).json
        assert target.request("GET", "/ops", headers={**SSE, **basic("an old one")}).status == 401
        assert "consumers" in target.request("GET", "/status", headers={"Cookie": cookie}).json
        assert (
            target.post(operation("insert", "a", "thing"), {**JSON, **basic(WRITER)}).status == 204
        )
        agent.wait_log("too many wrong passwords: those of 127.0.0.1")


def test_guesses_from_all_addresses_of_a_network_count_together(tmp_path: Path) -> None:
    with Agent(tmp_path, "--password", READER) as agent:
        target = Target.of(agent)

        def ask(address: str, password: str) -> int:
            headers = {**SSE, **basic(password), "X-Forwarded-For": address}
            return target.request("HEAD", "/ops", headers=headers).status

        def is_locked_out(neighbour: str) -> bool:
            return (
                429 in [ask(neighbour, f"{neighbour} {number}") for number in range(3)]
                and ask(neighbour, READER) == 429
            )

        known, stranger = "2001:db8:1:ffff::1", "2001:db8:2::1"
        assert ask(known, READER) == 200
        answers = [ask(f"2001:db8:1:{number:x}::1", f"guess {number}") for number in range(100)]
        looked_at = answers.count(401)
        assert (set(answers), answers[:40]) == ({401, 429}, [401] * 40)
        assert looked_at < 100
        assert [ask(address, READER) for address in (known, stranger)] == [200, 200]
        # One guess more becomes free now and again, so each may be the lucky one.
        assert any(is_locked_out(f"2001:db8:1:{number:x}::2") for number in range(1000, 1010))


def test_without_a_password_there_is_nothing_to_sign_in_to(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        target = Target.of(agent)
        for path in ("/session", "/token"):
            reply = target.request("POST", path, json.dumps(LOGIN).encode(), JSON)
            assert reply.status == 409
            assert "no password is set" in reply.problem()
        expected = {"password_needed": False, "signed_in": True, "expires": None}
        assert target.request("GET", "/session").json == expected
        assert target.request("GET", "/status").json["consumers"] == []
        for name in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via", "Origin"):
            assert "consumers" not in target.request("GET", "/status", headers={name: "x"}).json

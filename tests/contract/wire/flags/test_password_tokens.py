"""Tokens for reading from pages of other origins."""

import time

import pytest

from oplogd.web.access.keys.signing import ExpiringSigner, Purpose, signing_key
from tests.contract.wire.store_kinds import on_one_store
from tests.kits.agents.agent import Agent
from tests.kits.contract.passwords import OPTIONS, READER, basic, get_token, sign_in
from tests.kits.contract.wire import JSON, SSE, Target, operation


@on_one_store
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


@on_one_store
def test_a_cookie_is_no_token_and_a_token_is_no_cookie(guarded: Target) -> None:
    cookie, token = sign_in(guarded), get_token(guarded)
    assert guarded.request("GET", "/ops", headers={**SSE, "Cookie": f"oplog={token}"}).status == 401
    assert (
        guarded.request("GET", f"/ops?token={cookie.removeprefix('oplog=')}", headers=SSE).status
        == 401
    )


@on_one_store
@pytest.mark.parametrize("type_", [JSON["Content-Type"], "application/x-www-form-urlencoded", ""])
def test_a_request_for_a_token_with_anything_but_a_right_is_refused(
    guarded: Target, type_: str
) -> None:
    headers = {**basic(READER), "Content-Type": type_}
    for body in OPTIONS[2:]:
        reply = guarded.request("POST", "/token", body, headers)
        assert reply.status == 400
        assert "send no body, or a JSON object" in reply.problem()
    for body in OPTIONS[:2]:
        assert guarded.request("POST", "/token", body, headers).status == 200
    for query in ("types=video", "seconds=60", "x", "token=abc"):
        reply = guarded.request("POST", f"/token?{query}", b"", headers)
        assert reply.status == 400
        assert "no parameters" in reply.problem()
        assert query not in reply.problem()
    for body in (b"", b" ", b"{}", b" { }\r\n"):
        assert guarded.request("POST", "/token", body, headers).status == 200
    chunked = (
        "POST /token HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
        f"Authorization: {headers['Authorization']}\r\n\r\n"
    )
    assert guarded.exchange(chunked.encode() + b"2\r\n{}\r\n0\r\n\r\n").status == 200
    assert guarded.exchange(chunked.encode() + b'7\r\n{"a":1}\r\n0\r\n\r\n').status == 400


@on_one_store
def test_the_password_is_checked_before_the_body(guarded: Target) -> None:
    for path, body in (
        ("/token", OPTIONS[0]),
        ("/token?types=video", b""),
        ("/token", b"x" * 20_000),
    ):
        assert guarded.request("POST", path, body).status == 401
    assert guarded.request("POST", "/token", b"x" * 20_000, basic(READER)).status == 413


def test_no_token_is_logged_or_repeated_in_an_answer(other: Agent) -> None:
    target = Target.of(other)
    good = get_token(target)
    bad = ExpiringSigner(signing_key("another")).sign(Purpose.TOKEN, int(time.time()) + 60)
    expired = ExpiringSigner(signing_key(READER)).sign(Purpose.TOKEN, 1)
    for token in (good, bad, expired):
        for method, path, headers in (
            ("GET", "/ops", {}),
            ("POST", "/ops", JSON),
            ("PUT", "/ops", {}),
            ("GET", "/nowhere", SSE),
            ("GET", "/ops", {**SSE, "Last-Event-ID": "wrong"}),
            ("GET", "/status", {}),
            ("GET", "/session", {}),
            ("HEAD", "/ops", SSE),
            ("POST", "/token", {}),
            ("GET", "/", {"Accept": "text/html"}),
        ):
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

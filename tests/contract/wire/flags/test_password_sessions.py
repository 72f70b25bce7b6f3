"""Signing in and out, and the cookie of a session."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from oplogd.model.operation import parse_timestamp
from oplogd.web.access.credentials import COOKIE_SECONDS
from tests.contract.wire.store_kinds import StoreKind, on_one_store
from tests.kits.agents.agent import Agent
from tests.kits.clock.moved import MovedClock
from tests.kits.contract.passwords import (
    BROWSER_CHALLENGE,
    DEEP,
    LOGIN,
    OPTIONS,
    READER,
    WRITER,
    basic,
    sign_in,
)
from tests.kits.contract.wire import JSON, SSE, Target


@on_one_store
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


@on_one_store
@pytest.mark.parametrize(
    ("headers", "more"),
    [
        ({}, ""),
        ({"Origin": "http://a.example"}, ""),
        ({"Origin": "https://a.example"}, "; Secure"),
        ({"X-Forwarded-Proto": "https"}, "; Secure"),
    ],
)
def test_the_cookie_is_limited_to_this_site_and_hidden_from_scripts(
    guarded: Target, headers: dict[str, str], more: str
) -> None:
    reply = guarded.request("POST", "/session", json.dumps(LOGIN).encode(), {**JSON, **headers})
    value, _, attributes = (reply.header("Set-Cookie") or "").partition("; ")
    assert re.fullmatch(r"oplog=\d{10}\.[\w-]{43}", value)
    assert attributes == f"Path=/; HttpOnly; SameSite=Strict{more}"
    assert reply.header("Cache-Control") == "no-store"


@on_one_store
def test_signing_out_deletes_the_cookie(guarded: Target) -> None:
    reply = guarded.request("DELETE", "/session", headers={"Cookie": sign_in(guarded)})
    assert reply.status == 204
    assert reply.header("Set-Cookie") == "oplog=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"
    for headers in ({}, {"Cookie": "oplog="}):
        session = guarded.request("GET", "/session", headers=headers).json
        assert session == {
            "password_needed": True,
            "principals": False,
            "signed_in": False,
            "reads_operations": False,
            "expires": None,
        }


@on_one_store
@pytest.mark.parametrize("path", ["/session", "/token"])
def test_no_page_of_another_origin_can_sign_in_or_read_a_token(guarded: Target, path: str) -> None:
    from_elsewhere = {"Origin": "http://a.example"}
    body = json.dumps(LOGIN if path == "/session" else {}).encode()
    reply = guarded.request("POST", path, body, {**JSON, **basic(READER), **from_elsewhere})
    assert reply.status in (200, 204)
    assert reply.header("Access-Control-Allow-Origin") is None
    for type_ in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "",
    ):  # these types need no preflight
        assert (
            guarded.request("POST", "/session", b"password=read", {"Content-Type": type_}).status
            == 415
        )


@on_one_store
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"password": 1}',
        b'"x"',
        b"\xff",
        b'{"password": "\xff"}',
        b"[" * 10_000,
        DEEP,
        json.dumps({**LOGIN, "hours": 1}).encode(),
    ],
)
def test_an_unreadable_sign_in_is_refused(guarded: Target, body: bytes) -> None:
    reply = guarded.request("POST", "/session", body, JSON)
    assert reply.status == 400
    assert "password" in reply.problem()


@on_one_store
def test_signing_out_and_in_have_no_options(guarded: Target) -> None:
    for body in OPTIONS:
        reply = guarded.request("DELETE", "/session", body)
        assert (reply.status, reply.header("Set-Cookie")) == (400, None)
    assert guarded.request("DELETE", "/session?all=1").status == 400
    assert guarded.request("DELETE", "/session", b"{}").status == 204
    assert guarded.request("DELETE", "/session", b"x" * 20_000).status == 413


@on_one_store
def test_a_large_sign_in_is_refused(guarded: Target) -> None:
    assert (
        guarded.request("POST", "/session", b'{"password": "%s"}' % (b"x" * 20_000), JSON).status
        == 413
    )


@on_one_store
def test_a_wrong_sign_in_opens_no_dialog_of_the_browser(guarded: Target) -> None:
    reply = guarded.request("POST", "/session", b'{"password": "guess"}', JSON)
    assert (reply.status, reply.header("WWW-Authenticate")) == (401, BROWSER_CHALLENGE)
    assert reply.header("Set-Cookie") is None
    reply = guarded.request("GET", "/ops", headers={**SSE, "Cookie": "oplog=1.x"})
    assert (reply.status, reply.header("WWW-Authenticate")) == (401, BROWSER_CHALLENGE)


@on_one_store
def test_a_stream_ends_with_its_cookie(store_kind: StoreKind, tmp_path: Path) -> None:
    clock = MovedClock(tmp_path)
    flags = ("--password", READER, "--ingest-password", WRITER)
    with store_kind.agent(tmp_path, *flags, clock=clock) as agent:
        target = Target.of(agent)
        cookie = {"Cookie": sign_in(target)}
        with target.follow(None, {**SSE, **cookie}) as stream:
            assert target.request("GET", "/session", headers=cookie).json["signed_in"]
            clock.move(COOKIE_SECONDS + 1)
            assert not target.request("GET", "/session", headers=cookie).json["signed_in"]
            assert target.request("GET", "/ops", headers={**SSE, **cookie}).status == 401
            assert stream.rest() == []


def test_without_a_password_there_is_nothing_to_sign_in_to(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        target = Target.of(agent)
        for path in ("/session", "/token"):
            reply = target.request("POST", path, json.dumps(LOGIN).encode(), JSON)
            assert reply.status == 409
            assert "no password is set" in reply.problem()
        expected = {
            "password_needed": False,
            "principals": False,
            "signed_in": True,
            "reads_operations": True,
            "expires": None,
        }
        assert target.request("GET", "/session").json == expected
        assert target.request("GET", "/status").json["consumers"] == []
        for name in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via", "Origin"):
            assert "consumers" not in target.request("GET", "/status", headers={name: "x"}).json

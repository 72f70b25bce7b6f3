"""An agent with passwords for reading and for sending."""

import base64

import pytest

from tests.contract.wire.store_kinds import on_one_store
from tests.kits.contract.passwords import (
    READER,
    WRITER,
    basic,
    sign_in,
)
from tests.kits.contract.wire import JSON, SSE, Target, operation, said

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


@on_one_store
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


@on_one_store
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


@on_one_store
@pytest.mark.parametrize("user", ["", "anybody", "ü"])
def test_each_password_gives_its_right_to_any_user_name(guarded: Target, user: str) -> None:
    with guarded.follow(None, {**SSE, **basic(READER, user)}) as stream:
        assert (
            guarded.post(operation("insert", "a", "thing"), {**JSON, **basic(WRITER, user)}).status
            == 204
        )
        assert said(stream.block()) == ("insert", "a")


@on_one_store
def test_udp_and_everything_but_the_stream_need_no_password(guarded: Target) -> None:
    with guarded.follow(None, {**SSE, **basic(READER)}) as stream:
        guarded.send_udp(b'{"event":"insert","type":"thing","id":"udp"}')
        assert said(stream.block()) == ("insert", "udp")
    for path in ("/status", "/live", "/ready", "/metrics", "/openapi.json", "/docs"):
        assert guarded.request("GET", path).status == 200
    assert guarded.request("GET", "/", headers={"Accept": "text/html"}).status == 200


@on_one_store
def test_a_preflight_needs_no_password(guarded: Target) -> None:
    asked = {"Origin": "http://a.example", "Access-Control-Request-Method": "GET"}
    assert guarded.request("OPTIONS", "/ops", headers=asked).status == 204


@on_one_store
def test_only_clients_that_may_read_see_the_consumers(guarded: Target) -> None:
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


@on_one_store
def test_refused_passwords_are_counted_by_right(guarded: Target) -> None:
    topic = "/v1/namespaces/ns/topics/t"
    before = guarded.status()
    wrong = {**JSON, **basic("an old one")}
    for path in ("/ops", f"{topic}/publish", "/v1/txns", "/v1/leases/l"):
        assert guarded.request("POST", path, b"{}", wrong).status == 401
    for path in ("/ops", f"{topic}/stream"):
        assert guarded.request("GET", path, headers={**SSE, **basic("an old one")}).status == 401
    assert guarded.request("POST", f"{topic}/poll", b"{}", wrong).status == 401
    assert guarded.request("GET", f"{topic}/stream", headers=SSE).status == 401  # without any
    after = guarded.status()
    counts = [status["passwords_refused"] for status in (before, after)]
    assert {right: counts[1][right] - counts[0][right] for right in counts[1]} == {
        "read": 3,
        "write": 4,
    }
    refused = [status["consumers_refused"]["password"] for status in (before, after)]
    assert refused[1] - refused[0] == 2
    text = guarded.request("GET", "/metrics").body.decode()
    for right, count in counts[1].items():
        assert f'oplog_passwords_refused_total{{right="{right}"}} {count}.0\n' in text

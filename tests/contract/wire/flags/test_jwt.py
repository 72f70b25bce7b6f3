"""Tokens that an application signs itself, and tokens narrowed by POST /token."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jwt
import pytest

from tests.contract.wire.store_kinds import EACH_DRIVER, StoreKind, kinds_of_store, on_one_store
from tests.kits.clock.moved import MovedClock
from tests.kits.contract.passwords import READER, WRITER, basic
from tests.kits.contract.wire import (
    JSON,
    SSE,
    RawStream,
    Reply,
    Target,
    operation,
    said,
    wait_until,
)
from tests.kits.paths import ROOT
from tests.kits.sse.heads import pairs_of

store_kind = kinds_of_store(EACH_DRIVER)

SECRET = "a secret of more than 32 bytes, for tests"
ADA, BOB = "user/ada", "user/bob"


def token(right: Any, seconds: float = 600, secret: str = SECRET, **claims: Any) -> str:
    return jwt.encode({"exp": time.time() + seconds, "oplog": right, **claims}, secret, "HS256")


def bearer(value: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {value}"}


def right_in(value: str) -> Any:
    return jwt.decode(value, options={"verify_signature": False})["oplog"]


def granted(right: Any, seconds: float = 600, **claims: Any) -> dict[str, str]:
    return bearer(token(right, seconds, **claims))


class House(NamedTuple):
    target: Target
    key: Path
    log: Any

    def ask(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Reply:
        raw = None if body is None else json.dumps(body).encode()
        return self.target.request(method, path, raw, {**(JSON if raw else {}), **headers})

    def get_token(self, body: Any, headers: dict[str, str]) -> dict[str, Any]:
        reply = self.ask("POST", "/token", body, headers)
        assert reply.status == 200, reply.body
        found: dict[str, Any] = reply.json
        return found


@pytest.fixture(scope="module")
def house(store_kind: StoreKind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("agent")
    key = folder / "key"
    key.write_text(SECRET)
    flags = ("--token-key", str(key), "--password", READER, "--ingest-password", WRITER, "--debug")
    with store_kind.agent(folder, *flags) as agent:
        yield House(Target.of(agent), key, agent)


ALL = {"read": ["*"], "write": ["*"], "manage": ["*"], "leases": ["*"]}


def store(house: House, *operations: dict[str, Any]) -> None:
    reply = house.ask("POST", "/ops", list(operations), granted(ALL))
    assert reply.status == 200


def test_a_token_opens_what_it_names_and_nothing_else(house: House) -> None:
    topic = "/v1/namespaces/shop/topics/orders"
    manager = granted({"manage": ["shop/*"]})
    writer = granted({"write": ["shop/orders"]}, sub="shop")
    reader = granted({"read": ["shop/orders"]})
    message = {"messages": [{"payload": "a"}]}
    assert house.ask("PUT", topic, {}, writer).status == 403
    assert house.ask("PUT", topic, {}, manager).status in (200, 409)
    assert house.ask("POST", f"{topic}/publish", message, manager).status == 403
    assert house.ask("POST", f"{topic}/publish", message, writer).status == 200
    assert house.ask("POST", f"{topic}/publish", message, reader).status == 403
    assert house.ask("POST", f"{topic}/poll", {}, writer).status == 403
    assert len(house.ask("POST", f"{topic}/poll", {}, reader).json) == 1
    pairs = pairs_of({**SSE, **reader})
    with RawStream(house.target, f"{topic}/stream?last_event_id=0", pairs) as stream:
        assert b"event: message" in stream.until("message")[-1]
    for names, shown in (
        (["shop/orders", "shop/none"], [{"name": "shop", "topics": 1}]),
        (["shop/none"], []),
    ):
        assert house.ask("GET", "/v1/namespaces", None, granted({"read": names})).json == shown
    begun = house.ask("POST", "/v1/txns", {"topic": "shop/orders"}, writer)
    assert begun.status == 201
    txn = begun.json["txn"]
    same = granted({"write": ["shop/orders"]}, sub="shop")
    other = granted({"write": ["shop/orders"]}, sub="another")
    assert house.ask("GET", f"/v1/txns/{txn}", None, granted(ALL)).json["owner"] == "sub:shop"
    for headers in (other, granted({"write": ["shop/orders"]})):
        assert house.ask("GET", f"/v1/txns/{txn}", None, headers).status == 404
        assert house.ask("POST", f"/v1/txns/{txn}/abort", {}, headers).status == 404
    assert house.ask("POST", f"/v1/txns/{txn}/abort", {}, same).status == 200


def test_a_reader_gets_the_operations_of_its_right_live_resumed_and_replicated(
    house: House,
) -> None:
    mine = [operation("insert", f"m{n}", "narrow", *(ADA, BOB)[: n % 2 + 1]) for n in range(4)]
    others = [operation("insert", f"o{n}", "narrow", BOB) for n in range(4)]
    store(house, *(each for pair in zip(mine, others, strict=True) for each in pair))
    reader = granted({"parents": [ADA], "types": ["narrow"]})
    expected = [("insert", f"m{n}") for n in range(4)]
    with house.target.follow("0", {**SSE, **reader}) as stream:
        blocks = stream.until("live")
        assert sorted(said(each) for each in blocks[1:-1]) == expected
        store(house, operation("update", "o1", "narrow", BOB))
        store(house, operation("delete", "m1", "narrow", ADA))
        assert said(stream.block()) == ("delete", "m1")
        store(house, operation("insert", "m1", "narrow", ADA, BOB))
        assert said(stream.block()) == ("insert", "m1")
    with house.target.follow("0", {**SSE, **reader}, parents=BOB) as stream:
        found = [said(each) for each in stream.until("live")[1:-1]]
        assert sorted(found) == [("insert", "m1"), ("insert", "m3")], "a conjunction"
    with house.target.follow("0", {**SSE, **reader}, types="another") as stream:
        assert len(stream.until("live")) == 2
    polled = house.ask("POST", "/v1/namespaces/system/topics/oplog/poll", {}, reader).json
    payloads = [json.loads(each["payload"]) for each in polled]
    assert [each["id"] for each in payloads] == ["m0", "m1", "m2", "m3", "m1", "m1"]
    assert house.ask("POST", "/ops", operation("insert", "x", "narrow"), reader).status == 403


def test_writing_is_narrowed_by_types_as_a_whole(house: House) -> None:
    writer = granted({"write": ["system/oplog", "shop/*"], "types": ["video"]})
    good, bad = operation("insert", "a", "VIDEO"), operation("insert", "b", "user")
    assert house.ask("POST", "/ops", good, writer).status == 204
    assert house.ask("POST", "/ops", bad, writer).status == 403
    before = house.target.status()["events_ingested"]
    reply = house.ask("POST", "/ops", [good, bad], writer)
    assert (reply.status, reply.problem()) == (
        403,
        "the right to write objects of the type user is missing",
    )
    records = [{"topic": "system/oplog", "payload": json.dumps(each)} for each in (good, bad)]
    assert house.ask("POST", "/v1/txns", {"records": records}, writer).status == 403
    assert house.ask("POST", "/v1/txns", {"records": records[:1]}, writer).status == 200
    publish = "/v1/namespaces/system/topics/oplog/publish"
    messages = {"messages": [{"payload": json.dumps(bad)}]}
    assert house.ask("POST", publish, messages, writer).status == 403
    assert wait_until(lambda: house.target.status()["events_ingested"] >= before)


REFUSED: dict[str, str] = {
    "expired": token(ALL, -1),
    "of another key": token(ALL, secret="another secret of more than 32 bytes"),
    "without a right": jwt.encode({"exp": time.time() + 60}, SECRET, "HS256"),
    "with a malformed right": token({"reed": ["*"]}),
    "none": jwt.encode({"exp": time.time() + 60, "oplog": ALL}, "", "none"),
    "of another algorithm": jwt.encode(
        {"exp": time.time() + 60, "oplog": ALL}, SECRET * 2, "HS512"
    ),
    "too long": token({"parents": ["x" * 9_000]}),
    "no token": "xyzzy",
    "empty": "",
}


@on_one_store
@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
def test_a_refused_token_gets_a_plain_401_and_is_nowhere_repeated(house: House, value: str) -> None:
    for method, path, body in (
        ("GET", "/ops", None),
        ("POST", "/ops", operation("insert", "a", "thing")),
        ("GET", "/v1/namespaces", None),
        ("POST", "/v1/txns", {}),
        ("POST", "/token", None),
    ):
        accept = SSE if path == "/ops" and method == "GET" else {}
        reply = house.ask(method, path, body, {**accept, **bearer(value)})
        assert reply.status == 401
        assert reply.problem() == "the token is invalid or has expired; get a new one"
        assert "Bearer" in (reply.header("WWW-Authenticate") or "")
        assert not value or value not in f"{reply.headers}{reply.body!r}"
    if value:
        assert house.target.request("GET", f"/ops?token={value}", headers=SSE).status == 401
        cookie = {**SSE, "Cookie": f"oplog={value}"}
        assert house.target.request("GET", "/ops", headers=cookie).status == 401
        assert value not in "".join(house.log.log)


def test_the_reason_of_a_refusal_is_in_the_log_and_counted(house: House) -> None:
    before = house.target.status()["passwords_refused"]["read"]
    house.ask("GET", "/v1/namespaces", None, bearer(REFUSED["expired"]))
    house.log.wait_log("refusing tokens from 127.0.0.1: it")
    assert house.target.status()["passwords_refused"]["read"] == before + 1
    cookie = {"Cookie": f"oplog={REFUSED['expired']}"}
    assert house.target.request("GET", "/session", headers=cookie).json["signed_in"] is False
    assert house.target.status()["passwords_refused"]["read"] == before + 2


@on_one_store
def test_a_cookie_or_parameter_reads_and_never_writes(house: House) -> None:
    value = token(ALL)
    for headers, query in (({"Cookie": f"oplog={value}"}, ""), ({}, f"?token={value}")):
        assert house.ask("GET", f"/v1/namespaces{query}", None, headers).status == 200
        with house.target.follow(None, {**SSE, **headers}, **({"token": value} if query else {})):
            pass
        body = operation("insert", "a", "thing")
        assert house.ask("POST", f"/ops{query}", body, headers).status == 401
        assert house.ask("POST", f"/token{'' if headers else query}", None, headers).status in (
            400,
            401,
        )
    house.log.wait_log("gone after")
    assert value not in "".join(house.log.log)


def test_the_subject_names_the_consumer(house: House) -> None:
    with house.target.follow(None, {**SSE, **granted(ALL, sub="ada@example.com")}, name="other"):
        consumers = house.ask("GET", "/status", None, basic(READER)).json["consumers"]
        assert "ada@example.com" in [each["name"] for each in consumers]


def test_a_token_is_narrowed_to_what_its_maker_has_and_asks_for(house: House) -> None:
    reply = house.get_token({"parents": [ADA], "seconds": 60}, basic(READER))
    assert reply["right"] == {"read": ["system/oplog"], "parents": [ADA]}
    assert reply["seconds"] == 60
    maker = granted({"read": ["shop/*", "system/oplog"], "write": ["shop/*"], "types": ["a", "b"]})
    asked = {"read": ["*"], "write": ["*"], "types": ["b", "c"]}
    narrowed = house.get_token(asked, maker)
    assert narrowed["right"] == {
        "read": ["shop/*", "system/oplog"],
        "write": ["shop/*"],
        "types": ["b"],
    }
    assert 0 < narrowed["seconds"] <= 600
    again = house.get_token({"read": ["*"], "seconds": 86_400}, bearer(narrowed["token"]))
    assert again["right"] == {"read": ["shop/*", "system/oplog"], "types": ["b"]}
    assert again["expires"] <= narrowed["expires"], "never past the end of its maker"
    plain = house.get_token(None, maker)
    assert set(plain) == {"token", "expires", "seconds"}
    assert right_in(plain["token"]) == {
        "read": ["shop/*", "system/oplog"],
        "types": ["a", "b"],
    }
    read_only = bearer(plain["token"])
    path = "/v1/namespaces/shop/topics/t"
    assert house.ask("GET", path, None, read_only).status == 404
    assert house.ask("POST", f"{path}/publish", {"messages": []}, read_only).status == 403
    for nothing in ({"read": ["other/*"]}, {"write": ["system/*"]}, {"types": ["c"]}):
        assert house.ask("POST", "/token", nothing, maker).status == 403, nothing
    of_password = house.get_token({"read": ["*"], "write": ["*"]}, basic(READER))
    assert of_password["right"] == {"read": ["*"]}
    body = operation("insert", "a", "thing")
    assert house.ask("POST", "/ops", body, bearer(of_password["token"])).status == 403
    own = house.get_token(None, basic(READER))["token"]
    assert house.ask("GET", "/v1/namespaces", None, bearer(own)).status == 200
    assert house.ask("POST", "/ops", body, bearer(own)).status == 401


def test_no_token_of_a_token_grants_more(house: House) -> None:
    narrow = house.get_token({"parents": [ADA], "seconds": 60}, basic(READER))
    whole = house.get_token(None, basic(READER))
    for made in (narrow, whole):
        for body in (None, {"seconds": 60}, ALL):
            assert house.ask("POST", "/token", body, bearer(made["token"])).status == 401
    maker = granted({"parents": [ADA]})
    again = house.get_token(None, maker)
    assert right_in(again["token"]) == narrow["right"]
    for value in (narrow["token"], again["token"]):
        assert house.ask("GET", "/v1/namespaces", None, bearer(value)).json == [
            {"name": "system", "topics": 1}
        ]
        assert house.ask("GET", "/v1/namespaces/shop/topics/t", None, bearer(value)).status == 403
    leases = [
        granted({"leases": [f"{a}*", *(f"{b}{n}x*" for n in range(99))]}) for a, b in ("ab", "ba")
    ]
    asked = {"leases": ["b*", *(f"a{n}x*" for n in range(99))]}
    assert house.ask("POST", "/token", asked, leases[0]).status == 400
    writer = granted({"write": ["shop/*"]})
    assert house.ask("POST", "/token", None, writer).status == 403
    reader = granted({"read": ["shop/*"], "write": ["shop/*"], "manage": ["*"]})
    plain = house.get_token(None, reader)["token"]
    assert right_in(plain) == {"read": ["shop/*"]}


@on_one_store
def test_the_request_for_a_token_in_the_reference_is_answered(house: House) -> None:
    text = (ROOT / "docs/reference/rights.md").read_text(encoding="utf-8")
    body = re.search(r"curl -X POST -u :secret [^\n]* -d '([^']+)' \S+/token\n", text)
    assert body is not None
    reply = house.get_token(json.loads(body[1]), basic(READER))
    assert (reply["seconds"], reply["right"]["parents"]) == (600, ["user/ada"])


@on_one_store
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"reed": []}, "reed"),
        ({"read": ["x"]}, "read"),
        ({"types": []}, "types"),
        ({"read": ["*"], "seconds": 0}, "seconds"),
        ({"seconds": 86_401}, "seconds"),
        ({"seconds": "60"}, "seconds"),
        ({"seconds": True}, "seconds"),
        ({"seconds": 1.5}, "seconds"),
        ([], "JSON object"),
        ("x", "JSON object"),
    ],
)
def test_a_bad_request_for_a_token_names_its_fault(house: House, body: Any, field: str) -> None:
    reply = house.ask("POST", "/token", body, basic(READER))
    assert (reply.status, field in reply.problem()) == (400, True)


def test_keys_rotate_and_streams_of_a_removed_key_end(
    store_kind: StoreKind, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text(SECRET)
    other = tmp_path / "other"
    other.write_text("b" + SECRET)
    flags = ("--token-key", str(key), "--token-key", str(other))
    with store_kind.agent(tmp_path, *flags) as agent:
        house = House(Target.of(agent), key, agent)
        old, kept = granted(ALL), bearer(token(ALL, secret="b" + SECRET))
        with (
            house.target.follow(None, {**SSE, **old}) as ending,
            house.target.follow(None, {**SSE, **kept}) as going,
        ):
            key.write_text("")
            agent.wait_log("is empty")
            assert house.ask("GET", "/v1/namespaces", None, old).status == 200
            key.write_text("c" + SECRET)
            agent.wait_log("have changed")
            assert house.ask("GET", "/v1/namespaces", None, old).status == 401
            new = bearer(token(ALL, secret="c" + SECRET))
            assert house.ask("GET", "/v1/namespaces", None, new).status == 200
            assert ending.rest() == []
            reply = house.ask("POST", "/ops", operation("insert", "a", "thing"), new)
            assert reply.status == 204
            assert said(going.block()) == ("insert", "a")


@on_one_store
def test_a_stream_ends_before_its_token(store_kind: StoreKind, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(SECRET)
    clock = MovedClock(tmp_path)
    with store_kind.agent(tmp_path, "--token-key", str(key), clock=clock) as agent:
        target = Target.of(agent)
        value = token({"read": ["*"], "write": ["*"]}, 600)
        headers = {**SSE, **bearer(value)}
        with target.follow(None, headers) as stream:
            clock.move(590)
            reply = target.post(operation("insert", "a", "thing"), {**JSON, **bearer(value)})
            assert reply.status == 204
            assert said(stream.block()) == ("insert", "a")
            clock.move(9.5)
            assert stream.rest() == []
        clock.move(5)
        assert target.request("GET", "/ops", headers=headers).status == 401

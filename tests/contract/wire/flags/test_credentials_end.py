"""When credentials end: a request whose body still comes changes nothing, whatever the clock."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from oplogd.model.operation import parse_timestamp
from tests.contract.wire.flags.test_jwt import ALL, SECRET, granted
from tests.contract.wire.store_kinds import StoreKind, on_one_store
from tests.kits.clock.moved import MovedClock
from tests.kits.contract.wire import JSON, SSE, Target, operation
from tests.kits.sse.heads import request_head

SECONDS = 60
TOPIC = "/v1/namespaces/shop/topics/orders"
OWNED = {"sub": "shop"}
MESSAGE = {"messages": [{"payload": "a"}]}
POINTED = {"transactionWritePointer": 2, **MESSAGE}
OPLOG = "/v1/namespaces/system/topics/oplog"
OPERATIONS = {"messages": [{"payload": json.dumps(operation("insert", "b", "thing"))}]}


@contextmanager
def taking_tokens(store_kind: StoreKind, folder: Path) -> Iterator[tuple[Target, MovedClock]]:
    """Start an agent that takes tokens, by a clock that can be moved."""
    clock = MovedClock(folder)
    key = folder / "key"
    key.write_text(SECRET)
    with store_kind.agent(folder, "--token-key", str(key), clock=clock) as agent:
        yield Target.of(agent), clock


def slow(target: Target, method: str, path: str, body: Any, headers: dict[str, str]) -> Any:
    """Begin a request. Return how to end it, once the agent has asked for its body."""
    raw = json.dumps(body).encode()
    more = {"Expect": "100-continue", "Content-Length": str(len(raw)), "Connection": "close"}
    sock = target.connect()
    sock.sendall(request_head(method, path, target.host, {**JSON, **headers, **more}))
    assert sock.recv(100).startswith(b"HTTP/1.1 100 ")

    def end() -> int:
        with sock:
            sock.sendall(raw)
            answer = b""
            while chunk := sock.recv(1 << 16):
                answer += chunk
        return int(answer.split()[1])

    return end


@on_one_store
@pytest.mark.parametrize("late", [True, False])
def test_a_credential_that_ends_before_the_body_is_refused(
    store_kind: StoreKind, tmp_path: Path, *, late: bool
) -> None:
    with taking_tokens(store_kind, tmp_path) as (target, clock):
        long, short = granted(ALL, 86_400, **OWNED), granted(ALL, SECONDS, **OWNED)
        assert target.request("PUT", TOPIC, b"{}", {**JSON, **long}).status == 200
        begun = [
            target.request("POST", "/v1/txns", b'{"topic": "shop/orders"}', {**JSON, **long})
            for _ in range(3)
        ]
        records, commit, abort = (f"/v1/txns/{each.json['txn']}" for each in begun)
        lease = {"holder": "a", "ttl_ms": 60_000}
        for path, body in (
            ("/v1/leases/held", lease),
            (f"{TOPIC}/publish", {**POINTED, "transactionWritePointer": 1}),
        ):
            raw = json.dumps(body).encode()
            assert target.request("POST", path, raw, {**JSON, **long}).status == 200
        record = {"lsn": 0, "topic": "shop/orders", "payload": "a"}
        ends = {
            path: slow(target, method, path, body, short)
            for method, path, body in [
                ("POST", "/ops", operation("insert", "a", "thing")),
                ("POST", f"{OPLOG}/publish", OPERATIONS),
                ("PUT", "/v1/namespaces/shop/topics/other", {}),
                ("PUT", f"{TOPIC}/properties", {}),
                ("POST", f"{TOPIC}/publish", MESSAGE),
                ("POST", f"{TOPIC}/store", POINTED),
                ("POST", f"{TOPIC}/rollback", {"transactionWritePointer": 3, "rollbackKeys": []}),
                ("POST", "/v1/pointers/1/commit", {"topics": ["shop/orders"]}),
                ("POST", f"{TOPIC}/poll", {}),
                ("POST", "/v1/txns", {"topic": "shop/orders"}),
                ("POST", f"{records}/records", {"records": [record]}),
                ("POST", f"{commit}/commit", {"records": 0}),
                ("POST", f"{abort}/abort", {}),
                ("POST", "/v1/leases/orders", lease),
                ("DELETE", "/v1/leases/held", {"holder": "a", "term": 1}),
                ("POST", "/token", {"seconds": 60}),
            ]
        }
        if late:
            clock.move(SECONDS + 1)
        statuses = {path: end() for path, end in ends.items()}
        expected = dict.fromkeys(statuses, 401 if late else 200)
        if not late:
            expected |= {"/ops": 204, "/v1/txns": 201}
        assert statuses == expected


@on_one_store
def test_tokens_end_by_the_time_of_day_although_the_guarded_time_does_not_follow_a_step(
    store_kind: StoreKind, tmp_path: Path
) -> None:
    with taking_tokens(store_kind, tmp_path) as (target, clock):
        now = time.time()
        short, fresh = granted(ALL, SECONDS), granted(ALL, 7_200, iat=now + 3_600)
        with target.follow(None, {**SSE, **short}) as stream:
            assert target.request("GET", "/v1/namespaces", headers=fresh).status == 401
            clock.set(3_600)
            assert target.request("GET", "/v1/namespaces", headers=short).status == 401
            assert target.request("GET", "/v1/namespaces", headers=fresh).status == 200
            made = target.request("POST", "/token", b"{}", {**JSON, **fresh}).json
            assert parse_timestamp(made["expires"]).timestamp() > now + 3_600
            assert stream.rest() == []

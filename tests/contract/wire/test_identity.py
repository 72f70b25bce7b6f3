"""The header Oplog-Store: every answer names the store."""

import pytest

from tests.contract.wire.store_kinds import on_one_store
from tests.kits.contract.wire import JSON, SSE, Target, wait_until
from tests.kits.sse.heads import one

STORE = "Oplog-Store"


def test_the_status_and_every_answer_have_the_same_identity(target: Target) -> None:
    # MongoDB may still be setting up the collections.
    assert wait_until(lambda: target.request("GET", "/status").header(STORE) is not None)
    identity = target.status()["store"]["identity"]
    assert target.request("GET", "/status").header(STORE) == identity
    with target.follow() as stream:
        assert one(stream.headers, STORE) == identity


@on_one_store
@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {"Accept": "text/html"}, 200),
        ("GET", "/metrics", {}, 200),
        ("GET", "/live", {}, 200),
        ("GET", "/ready", {}, 200),
        ("GET", "/docs", {}, 200),
        ("GET", "/openapi.json", {}, 200),
        ("HEAD", "/ops", SSE, 200),
        ("HEAD", "/docs", {}, 200),
        ("OPTIONS", "/ops", {}, 204),
        ("GET", "/ops", {}, 406),
        ("GET", "/nothing", {}, 404),
        ("GET", "/v1/namespaces/default/topics/none/stream", SSE, 404),
        ("DELETE", "/ops", {}, 405),
    ],
)
def test_answers_of_all_kinds_name_the_store(
    target: Target, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    reply = target.request(method, path, headers=headers)
    assert reply.status == status
    assert reply.header(STORE) == target.status()["store"]["identity"]


@on_one_store
def test_refusals_name_the_store(target: Target, guarded: Target) -> None:
    identity = target.status()["store"]["identity"]
    assert target.post(b"{", JSON).header(STORE) == identity
    no_http = target.exchange(b"no HTTP\r\n\r\n")
    assert (no_http.status, no_http.header(STORE)) == (400, identity)
    refused = guarded.request("GET", "/ops", headers=SSE)
    assert (refused.status, refused.header(STORE)) == (401, guarded.status()["store"]["identity"])


@on_one_store
def test_a_web_page_of_another_origin_may_read_the_header(target: Target) -> None:
    with target.follow() as stream:
        told = [one(stream.headers, "Access-Control-Expose-Headers")]
    for path in ("/status", "/live", "/v1/namespaces"):
        told.append(target.request("GET", path).header("Access-Control-Expose-Headers"))
    assert told == ["Oplog-Next, Oplog-Position, Oplog-Shard, Oplog-Store, Oplog-Term"] * 4

"""Leases and fenced publishing: each request with each of its errors."""

import io
import json
from typing import Any

import fastavro
import pytest

from oplogd.decode.media_types import AVRO
from oplogd.topics.codec.avro import SCHEMAS
from tests.contract.wire.leases import LEASES, LONG_MS, LeaseClient, fence
from tests.contract.wire.store_kinds import EACH_DRIVER, kinds_of_store, on_each_store, on_one_store
from tests.contract.wire.topics.topics import OPLOG, TopicClient
from tests.contract.wire.transactions import TransactionClient, record
from tests.kits.contract.wire import JSON, NDJSON, Reply, Target, fresh_type, operation, wait_until

store_kind = kinds_of_store(EACH_DRIVER)

HOLDER = "höst:4711"


@pytest.fixture
def lease(target: Target) -> LeaseClient:
    return LeaseClient(target)


# --- The lease ---


def test_the_first_to_poll_leads_and_others_see_who_does(lease: LeaseClient) -> None:
    reply = lease.request("POST", {"holder": HOLDER, "ttl_ms": LONG_MS})
    assert (reply.status, reply.header("Access-Control-Allow-Origin")) == (200, None)
    first = reply.json
    assert first.keys() == {"leader", "holder", "term", "expires_in_ms"}
    assert 0 < first.pop("expires_in_ms") <= LONG_MS
    assert first == {"leader": True, "holder": HOLDER, "term": 1}
    other = lease.poll("other", 2 * LONG_MS, refresh=True, note="not mine")
    assert 0 < other.pop("expires_in_ms") <= LONG_MS
    assert other == {"leader": False, "holder": HOLDER, "term": 1}
    shown = lease.shown()
    assert 0 < shown.pop("expires_in_ms") <= LONG_MS
    assert shown == {"name": lease.name, "holder": HOLDER, "term": 1, "note": ""}


def test_a_poll_extends_and_a_refresh_takes_the_next_term(lease: LeaseClient) -> None:
    lease.poll("a", LONG_MS)
    extended = lease.poll("a", 2 * LONG_MS, note='{"rate": 5}')
    assert extended["term"] == 1
    assert extended["expires_in_ms"] > LONG_MS
    assert lease.poll("a", 2 * LONG_MS, refresh=True)["term"] == 2
    assert lease.poll("a", 2 * LONG_MS, refresh=False, note=None)["term"] == 2
    assert (lease.shown()["term"], lease.shown()["note"]) == (2, '{"rate": 5}')
    longest = "\x01" * 8192  # six bytes of JSON each
    lease.poll("a", note=longest)
    assert lease.shown()["note"] == longest


def test_a_released_lease_is_free_and_a_repeated_release_answers_the_same(
    lease: LeaseClient,
) -> None:
    lease.poll("a", note="left behind")
    for holder, term in (("b", 1), ("a", 2)):
        reply = lease.releasing(holder, term)
        assert reply.status == 409
        assert "1" in reply.problem()
        assert "a" in reply.problem()
    done = {"name": lease.name, "holder": None, "term": 1, "expires_in_ms": 0}
    assert lease.release("a", 1) == done
    assert lease.release("a", 1) == done
    assert lease.shown() == {**done, "note": "left behind"}
    taken = lease.poll("b")
    assert (taken["leader"], taken["term"], lease.shown()["note"]) == (True, 2, "")
    assert lease.releasing("a", 1).status == 409


def test_an_expired_lease_keeps_its_term_until_it_is_acquired(
    lease: LeaseClient, topic: TopicClient
) -> None:
    lease.poll("a", 100)
    assert wait_until(lambda: lease.shown()["expires_in_ms"] == 0)
    assert (lease.shown()["holder"], lease.shown()["term"]) == ("a", 1)
    assert published(topic, lease.fence(1), "still").status == 200
    assert lease.poll("b")["term"] == 2
    assert published(topic, lease.fence(1), "never").status == 412
    assert topic.payloads() == ["still"]


@on_one_store
def test_a_lease_that_nobody_held_is_not_found(target: Target, lease: LeaseClient) -> None:
    for reply in (lease.request("GET"), lease.releasing("a", 1)):
        assert reply.status == 404
        assert lease.name in reply.problem()


@on_one_store
@pytest.mark.parametrize("name", ["a%20b", "%C3%A9", "x" * 250])
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_a_bad_name_is_refused(target: Target, method: str, name: str) -> None:
    reply = target.request(method, f"{LEASES}/{name}", b"{}", JSON)
    assert (reply.status, reply.problem().startswith("lease: ")) == (400, True)


@on_one_store
@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_only_json_is_read(lease: LeaseClient, method: str) -> None:
    for headers in (NDJSON, {}):
        reply = lease.request(method, {"holder": "a", "ttl_ms": 1000}, headers)
        assert (reply.status, "application/json" in reply.problem()) == (415, True)
    page = lease.request(method, b"", {"Origin": "http://localhost:1"})
    assert page.status == 415
    assert lease.request(method, b" " * 70_000).status == 413
    bad = lease.request(method, {"holder": "a", "ttl_ms": 1000, "term": 1})
    assert bad.status == 400
    assert bad.problem().startswith("term: " if method == "POST" else "ttl_ms: ")
    assert lease.request("GET").status == 404


@on_one_store
def test_the_paths_of_leases_tell_their_methods(target: Target, lease: LeaseClient) -> None:
    lease.poll()
    assert lease.request("HEAD").status == 200
    refused = lease.request("PUT", {})
    assert (refused.status, refused.header("Allow")) == (405, "DELETE, GET, HEAD, OPTIONS, POST")
    assert "leases at /v1/leases/NAME" in target.request("GET", f"{LEASES}/a/b").problem()


@on_one_store
def test_leases_are_described_with_examples_that_work(target: Target) -> None:
    described = target.request("GET", "/openapi.json").json["paths"][f"{LEASES}/{{lease}}"]
    assert described.keys() == {"post", "get", "delete"}
    lease = LeaseClient(target)

    def example(part: dict[str, Any]) -> Any:
        return part["content"]["application/json"]["example"]

    for method in ("post", "get", "delete"):
        told = described[method]
        body: Any = example(told["requestBody"]) if "requestBody" in told else None
        if method == "delete":
            body["term"] = lease.shown()["term"]
        answer = lease.request(method.upper(), body)
        assert answer.status == 200
        # The document leaves out members that are null.
        assert answer.json.keys() - {"holder"} == example(told["responses"]["200"]).keys() - {
            "holder"
        }


# --- Fenced publishing ---


def published(topic: TopicClient, headers: dict[str, str], *messages: Any) -> Reply:
    return topic.request("POST", "/publish", {"messages": messages}, {**JSON, **headers})


def test_messages_are_stored_only_in_the_present_term(
    lease: LeaseClient, topic: TopicClient
) -> None:
    lease.poll("a")
    avro = {"Content-Type": AVRO}
    first, second = lease.fence(1), lease.fence(2)
    assert published(topic, first, "json").status == 200
    out = io.BytesIO()
    request = {"transactionWritePointer": None, "messages": [b"avro"]}
    fastavro.schemaless_writer(out, SCHEMAS["PublishRequest"], request)
    body = out.getvalue()
    assert topic.request("POST", "/publish", body, {**avro, **first}).status == 200
    lease.poll("a", refresh=True)
    for reply in (
        published(topic, first, "never"),
        topic.request("POST", "/publish", body, {**avro, **first}),
    ):
        assert reply.status == 412
        assert reply.problem() == f"term 1 of the lease {lease.name} is over; nothing was stored"
    assert published(topic, {}, "without").status == 200
    assert published(topic, second, "second").status == 200
    lease.release("a", 2)
    assert published(topic, second, "never").status == 412
    assert published(topic, fence("nobody-held-it", 1), "never").status == 412
    assert topic.payloads() == ["json", "avro", "without", "second"]


@on_each_store
def test_operations_are_stored_only_in_the_present_term(target: Target, lease: LeaseClient) -> None:
    type_ = fresh_type()
    before = target.status()
    oplog = TopicClient(target, OPLOG)
    lease.poll("a")
    with target.follow(types=type_) as stream:
        first, second = {**JSON, **lease.fence(1)}, {**JSON, **lease.fence(2)}
        assert target.post(operation("insert", "1", type_), first).status == 204
        both = [operation("insert", each, type_) for each in ("2", "3")]
        assert target.post(both, first, "/ops").json == {"ingested": 2}
        assert published(oplog, lease.fence(1), operation("insert", "4", type_)).status == 200
        lease.poll("a", refresh=True)
        for reply in (
            target.post(operation("insert", "never", type_), first),
            target.post(both, first, "/ops"),
            published(oplog, lease.fence(1), operation("insert", "never", type_)),
        ):
            assert reply.status == 412
            assert reply.problem().startswith(f"term 1 of the lease {lease.name} is over")
        target.store(operation("insert", "5", type_))
        assert target.post(operation("insert", "6", type_), second, "/ops").status == 204
        assert [json.loads(each.split(b"data: ")[1])["id"] for each in stream.take(6)] == [
            *"123456"
        ]
    after = target.status()
    for name, count in (
        ("received", 10),
        ("ingested", 6),
        ("stale", 4),
        ("discarded", 0),
        ("error", 0),
    ):
        assert after[f"events_{name}"] - before[f"events_{name}"] == count, name
    assert (after["queue_size"], after["queue_bytes"]) == (0, 0)


@on_one_store
@pytest.mark.parametrize(
    "header", ["orders", "orders; term=0", "a b; term=1", "a; term=1, b; term=1"]
)
def test_an_unreadable_fence_is_refused_before_the_body(
    target: Target, topic: TopicClient, header: str
) -> None:
    given = {**JSON, "Oplog-Lease": header}
    for reply in (
        target.post(b"no json", given),
        target.post(b"no json", given, "/ops"),
        topic.request("POST", "/publish", b"no json", given),
        TopicClient(target, OPLOG).request("POST", "/publish", b"no json", given),
    ):
        assert reply.status == 400
        assert reply.problem().startswith("Oplog-Lease: ")


@on_one_store
def test_a_second_fence_is_refused(target: Target, lease: LeaseClient) -> None:
    lease.poll()
    two = [*JSON.items(), *lease.fence(1).items(), *lease.fence(1).items()]
    reply = target.post(operation("insert", "a", "thing"), two)
    assert (reply.status, reply.problem()) == (400, "Oplog-Lease: is given more than once")


@on_one_store
def test_a_fence_of_another_begin_is_refused_and_changes_nothing(
    target: Target, topic: TopicClient, lease: LeaseClient
) -> None:
    lease.poll()
    free, fenced = TransactionClient(target), TransactionClient(target, lease.fence(1))
    given = f"the Oplog-Lease of this request is {lease.name}; term=1"
    for path, body in (
        ("/records", {"records": [record(topic, 0)]}), ("/commit", {"records": 0}), ("/abort", {})
    ):  # fmt: skip
        reply = free.post(path, body, lease.fence(1))
        sentence = f"transaction {free.id} was begun without a lease, {given}"
        assert (reply.status, reply.problem()) == (409, sentence)
        reply = fenced.post(path, body, lease.fence(2))
        begun = f"transaction {fenced.id} was begun with {lease.name}; term=1, "
        assert (reply.status, reply.problem()) == (409, begun + given.replace("=1", "=2"))
        reply = free.post(path, body, {"Oplog-Lease": "nonsense"})
        assert reply.status == 400
    for txn in (free, fenced):
        assert (txn.shown()["state"], txn.shown()["records"]) == ("open", 0)
    assert (fenced.shown()["lease"], "lease" in free.shown()) == (f"{lease.name}; term=1", False)


def test_a_transaction_commits_under_the_term_of_its_begin_only(
    target: Target, topic: TopicClient, lease: LeaseClient
) -> None:
    lease.poll()
    kept = TransactionClient(target, lease.fence(1))
    kept.write(record(topic, 0))
    assert kept.commit(1)["records"]
    lost, silent = (
        TransactionClient(target, lease.fence(1)),
        TransactionClient(target, lease.fence(1)),
    )
    lost.write(record(topic, 0))
    lease.poll(refresh=True)
    over = f"term 1 of the lease {lease.name} is over; "
    for _ in range(2):
        reply = lost.post("/commit", {"records": 1})
        assert reply.status == 412
        assert reply.problem() == f"{over}transaction {lost.id} was aborted"
    assert silent.records(record(topic, 0)).status == 412
    shown = lost.shown()
    assert (shown["state"], shown["reason"]) == (
        "aborted",
        "aborted because the term of its lease is over",
    )
    assert topic.payloads(isolation="read_committed") == ["a"]
    reply = target.request("POST", "/v1/txns", b"", {**JSON, **lease.fence(1)})
    assert (reply.status, reply.problem()) == (412, f"{over}nothing was stored")


# --- Figures ---


def test_status_and_metrics_count_leases_and_stale_publishes(
    target: Target, lease: LeaseClient, topic: TopicClient
) -> None:
    def figures() -> dict[str, int]:
        found: dict[str, int] = target.status()["leases"]
        return found

    before = figures()
    lease.poll("a")
    lease.poll("a")
    lease.poll("b")
    lease.poll("a", refresh=True)
    published(topic, lease.fence(1), "stale")
    target.post(operation("insert", "a", "thing"), {**JSON, **lease.fence(1)})
    assert {name: count - before[name] for name, count in figures().items()} == {
        "held": 1,
        "polls": 4,
        "terms": 2,
        "stale_publishes": 2,
    }
    found = target.request("GET", "/metrics").body.decode()
    for name, count in figures().items():
        total = "" if name == "held" else "_total"
        assert f"\noplog_leases_{name}{total} {count:.1f}\n" in found
    lease.release("a", 2)
    assert figures()["held"] == before["held"]

"""A whole transaction in one request."""

import gzip
import json
from typing import Any

import pytest

from tests.contract.wire.leases import LeaseClient
from tests.contract.wire.store_kinds import EACH_DRIVER, kinds_of_store, on_one_store
from tests.contract.wire.topics.topics import OPLOG, TopicClient
from tests.contract.wire.transactions import TransactionClient, events, post, said
from tests.kits.contract.wire import JSON, Target, fresh_type, operation

store_kind = kinds_of_store(EACH_DRIVER)

# A request with it does not take the short way.
WAYS = pytest.mark.parametrize("way", [{}, {"X-Other": "1"}], ids=["short", "app"])


def record(topic: TopicClient | str, payload: Any = "a", **members: Any) -> dict[str, Any]:
    return {"topic": topic if isinstance(topic, str) else topic.name, "payload": payload, **members}


def whole(target: Target, *records: dict[str, Any], **members: Any) -> dict[str, Any]:
    reply = post(target, "", {"records": records, **members})
    assert reply.status == 200, reply
    body: dict[str, Any] = reply.json
    return body


@WAYS
def test_the_answer_is_that_of_a_commit_and_readers_see_the_records(
    target: Target, topic: TopicClient, way: dict[str, str]
) -> None:
    other, type_, group = TopicClient(target).create(), fresh_type(), fresh_type()
    given = [
        record(topic, "a", key="k"),
        record(other, "b"),
        record(OPLOG, operation("insert", "x", type_)),
    ]
    reply = post(target, "", {"group": group, "records": given}, {**JSON, **way})
    assert (reply.status, reply.header("Location")) == (200, None)
    assert reply.header("Access-Control-Allow-Origin") is None
    done = reply.json
    assert done.keys() == {"txn", "begin", "commit", "records"}
    shown = target.request("GET", f"/v1/txns/{done['txn']}").json
    assert (shown["state"], shown["records"], shown["group"]) == ("committed", 3, group)
    assert (shown["begin"], shown["commit"]) == (done["begin"], done["commit"])
    assert shown["topics"] == sorted([topic.name, other.name, OPLOG])
    again = post(target, f"/{done['txn']}/commit", {"records": 3}).json
    assert again == {name: done[name] for name in ("begin", "commit", "records")}
    committed = [*topic.polled(isolation="read_committed")]
    committed += other.polled(isolation="read_committed")
    seen = {each["payload"]: each["id"] for each in committed}
    assert seen == {"a": done["records"][0], "b": done["records"][1]}
    assert [each["payload"] for each in topic.polled(isolation="read_uncommitted")] == ["a"]
    _, event = events(target, f"system/_txn.{group}", done["txn"])
    assert event == {"event": "commit", "txn": done["txn"], "records": 3}
    with target.follow("0", types=type_) as stream:
        assert len(stream.until("live")) == 3  # reset, one state, live


@WAYS
@pytest.mark.parametrize(
    ("members", "status"),
    [
        ({"records": []}, 400),
        ({"records": [{"topic": "ns/t"}]}, 400),
        ({"records": [record("ns/t", lsn=1)]}, 400),
        ({"records": [record("ns/t", lsn=0), record("ns/t", "b", lsn=0)]}, 409),
        ({"records": [record("ns/missing")]}, 404),
        ({"records": [record("system/other")]}, 404),
        ({"records": [record(OPLOG, {"event": "x"})]}, 400),
        ({"records": [record("ns/t")], "timeout_ms": 0}, 400),
        ({"records": [record("ns/t")], "once": {"key": "k"}}, 400),
        ({"records": [record("ns/t")], "topic": "ns/other"}, 400),
    ],
)
@on_one_store
def test_a_refused_one_leaves_no_transaction(
    target: Target, way: dict[str, str], members: dict[str, Any], status: int
) -> None:
    group = fresh_type()
    if "topic" not in members:
        members = {"group": group, **members}
    said(post(target, "", members, {**JSON, **way}), status)
    for each in target.request("GET", f"/v1/txns?group={group}").json:
        assert each["state"] == "aborted"


@WAYS
def test_a_repeated_number_gets_the_first_answer(
    target: Target, topic: TopicClient, way: dict[str, str]
) -> None:
    once = {"key": fresh_type(), "number": 7}
    bodies = [{"records": [record(topic, payload)], "once": once} for payload in ("a", "b")]
    first, again = (post(target, "", body, {**JSON, **way}) for body in bodies)
    assert (first.status, first.json) == (again.status, again.json)
    assert [each["payload"] for each in topic.polled(isolation="read_committed")] == ["a"]
    later = {"records": [record(topic, "c")], "once": {**once, "number": 6}}
    assert "is over; the newest is 7" in said(post(target, "", later, {**JSON, **way}), 409)
    begun = post(target, "", {"once": once})
    assert (begun.status, begun.json["txn"]) == (200, first.json["txn"])


@on_one_store
def test_a_number_of_three_requests_counts_for_one_request(
    target: Target, topic: TopicClient
) -> None:
    once = {"key": fresh_type(), "number": 1}
    txn = TransactionClient(target, once=once)
    txn.write({"lsn": 0, **record(topic, "a")})
    done = txn.commit(1)
    assert whole(target, record(topic, "b"), once=once) == done
    assert [each["payload"] for each in topic.polled(isolation="read_committed")] == ["a"]


@on_one_store
def test_without_a_number_a_repeated_request_is_another_transaction(
    target: Target, topic: TopicClient
) -> None:
    first, second = (whole(target, record(topic, "a")) for _ in range(2))
    assert first["txn"] != second["txn"]
    assert [each["payload"] for each in topic.polled(isolation="read_committed")] == ["a", "a"]


def test_a_lease_fences_it(target: Target, topic: TopicClient) -> None:
    lease = LeaseClient(target)
    fence = {**JSON, **lease.fence(lease.poll()["term"])}
    done = post(target, "", {"records": [record(topic, "a")]}, fence)
    assert done.status == 200
    assert "lease" in target.request("GET", f"/v1/txns/{done.json['txn']}").json
    lease.poll(refresh=True)
    assert "is over" in said(post(target, "", {"records": [record(topic, "b")]}, fence), 412)
    assert [each["payload"] for each in topic.polled(isolation="read_committed")] == ["a"]


@on_one_store
def test_a_large_one_is_compressed_or_longer_than_a_begin(
    target: Target, topic: TopicClient
) -> None:
    records = [record(topic, "x" * 1_000) for _ in range(100)]
    raw = json.dumps({"records": records}).encode()
    packed = {**JSON, "Content-Encoding": "gzip"}
    for reply in (post(target, "", raw), post(target, "", gzip.compress(raw), packed)):
        assert (reply.status, len(reply.json["records"])) == (200, 100)


@on_one_store
def test_unknown_members_of_operations_are_told(target: Target) -> None:
    given = {**operation("insert", "x", fresh_type()), "size": 5}
    reply = post(target, "", {"records": [record(OPLOG, given)]})
    assert (reply.status, reply.header("Oplog-Ignored")) == (200, "size")


@on_one_store
def test_a_page_needs_the_content_type(target: Target, topic: TopicClient) -> None:
    raw = json.dumps({"records": [record(topic)]}).encode()
    for type_ in ({}, {"Content-Type": "text/plain"}):
        assert post(target, "", raw, {"Origin": "http://evil.example", **type_}).status == 415
    assert topic.polled() == []

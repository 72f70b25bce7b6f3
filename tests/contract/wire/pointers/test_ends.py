"""Ends of pointers of foreign transactions: rollbacks and reports, each with each of its errors."""

import gzip
import io
import json
from typing import Any

import fastavro
import pytest

from tests.contract.wire.pointers.pointers import (
    TEPHRA,
    WRITES,
    PointerClient,
    committed,
    empty,
    keys,
    members_of,
    pointers,
    report,
    seen,
    shown,
)
from tests.contract.wire.store_kinds import on_one_store
from tests.contract.wire.topics.topics import OPLOG, TopicClient
from tests.contract.wire.transactions import TransactionClient, record, said
from tests.kits.contract.wire import JSON, Target

MB = 1 << 20
GROUP_LOG = "system/_txn.default"


# --- Rollback ---


def test_an_answer_rolls_back_what_it_names_and_nothing_else(
    topic: TopicClient, pointer: PointerClient
) -> None:
    other = PointerClient(topic, 5)
    topic.store("plain")
    first, second = pointer.publish("a", "b"), pointer.publish("c")
    foreign = other.publish("d")
    pointer.store("e")
    stored = pointer.publish()
    pointer.rollback(messages=first["messages"])
    assert topic.payloads() == ["plain", "c", "d", "e"]
    pointer.rollback(messages=first["messages"])
    empty(topic.request("POST", "/rollback", stored, JSON))
    assert topic.payloads() == ["plain", "c", "d"]
    plain_key = topic.polled()[0]["id"][:20]
    pointer.rollback(rollbackKeys=[*keys(foreign), plain_key, "0" * 20, "f" * 20])
    assert topic.payloads() == ["plain", "c", "d"]
    pointer.rollback(rollbackKeys=[keys(second)[0], keys(second)[0]])
    assert topic.payloads() == ["plain", "d"]
    assert pointer.kinds() == [
        "message",
        "void",
        "void",
        "void",
        "direct",
        "void",
        "void",
        "void",
        "void",
    ]


@on_one_store
def test_avro_rolls_back_by_the_keys_of_polled_messages(
    target: Target, topic: TopicClient, pointer: PointerClient
) -> None:
    schema = target.request("GET", "/v1/schemas/RollbackRequest").json
    pointer.publish("a", "b")
    body = io.BytesIO()
    key = bytes.fromhex(topic.polled()[0]["id"][:20])
    request = {"transactionWritePointer": TEPHRA, "rollbackKeys": [key]}
    fastavro.schemaless_writer(body, schema, request)
    empty(topic.request("POST", "/rollback", body.getvalue(), {"Content-Type": "avro/binary"}))
    assert topic.payloads() == ["b"]


@pytest.mark.parametrize(
    "members",
    [{}, {"messages": []}, {"rollbackKeys": []}, {"messages": None, "rollbackKeys": []}],
)
def test_a_rollback_without_keys_is_one_of_everything(
    topic: TopicClient, pointer: PointerClient, members: dict[str, Any]
) -> None:
    pointer.publish("a")
    pointer.store("b")
    pointer.publish()
    pointer.store("c")
    PointerClient(topic, 5).publish("d")
    for _ in range(2):
        pointer.rollback(**members)
        assert topic.payloads() == ["d"]
    assert said(pointer.request("publish"), 400).startswith("messages: there is none")
    pointer.publish("e")
    assert topic.payloads() == ["d", "e"]


def test_a_rollback_works_after_an_abort(
    target: Target, topic: TopicClient, pointer: PointerClient
) -> None:
    answer = pointer.publish("a", "b")
    assert report(target, TEPHRA, "abort", topic).status == 200
    pointer.rollback(messages=answer["messages"][:1])
    assert topic.payloads() == ["b"]
    assert committed(topic) == ([], None)


def test_a_rollback_after_a_commit_needs_force_and_then_is_a_gap(
    target: Target, topic: TopicClient, pointer: PointerClient
) -> None:
    topic.publish("first")
    first = topic.poll().json[0]["id"]
    answer = pointer.publish("a", "b")
    assert report(target, TEPHRA, "commit", topic).status == 200
    for members in ({"messages": answer["messages"][:1]}, {}):
        reply = pointer.request("rollback", **members)
        assert reply.status == 409
        assert "has committed" in reply.json["detail"]
    assert committed(topic) == (["first", "a", "b"], None)
    path, body = "/rollback?force={}", {"transactionWritePointer": TEPHRA, **answer}
    body["messages"] = answer["messages"][:1]
    reply = topic.request("POST", path.format("perhaps"), body, JSON)
    assert (reply.status, reply.json["detail"]) == (400, "force: must be true or false")
    empty(topic.request("POST", path.format("true"), body, JSON))
    assert committed(topic) == (["first", "b"], None)
    reply = topic.poll(first, inclusive=False, isolation="read_committed")
    assert [each["payload"] for each in reply.json] == ["b"]
    assert reply.header("Oplog-Gap") == "1"


@on_one_store
@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ({"rollbackKeys": [], "messages": []}, "rollbackKeys: "),
        ({"rollbackKeys": ["0" * 19]}, "rollbackKeys[0]: must be 20 lower-case hexadecimal"),
        ({"rollbackKeys": ["0" * 20, "A" * 20]}, "rollbackKeys[1]: must be 20 lower-case"),
        ({"rollbackKeys": "0" * 20}, "rollbackKeys: must be a list"),
        ({"messages": ["a"]}, "messages[0]: must be an object"),
        ({"messages": [{"publishTimestamp": 5}]}, "messages[0].sequenceId: must be a whole"),
        (
            {"messages": [{"publishTimestamp": -1, "sequenceId": 0}]},
            "messages[0].publishTimestamp: must be a whole number from 0",
        ),
        (
            {"messages": [{"publishTimestamp": 1, "sequenceId": 65_536}]},
            "messages[0].sequenceId: must be a whole number from 0 to 65535",
        ),
        ({"more": 1}, "more: is not a member of this request"),
        ({"rollbackKeys": ["0" * 20] * 100_001}, "rollbackKeys: are more than 100,000"),
    ],
)
def test_a_bad_rollback_is_named_and_changes_nothing(
    topic: TopicClient, pointer: PointerClient, members: dict[str, Any], sentence: str
) -> None:
    pointer.publish("a")
    assert said(pointer.request("rollback", **members), 400).startswith(sentence)
    assert topic.payloads() == ["a"]


@on_one_store
def test_a_hundred_thousand_keys_are_one_rollback(
    topic: TopicClient, pointer: PointerClient
) -> None:
    found = keys(pointer.publish("a"))
    pointer.rollback(rollbackKeys=[*[f"{k:020x}" for k in range(99_999)], *found])
    assert topic.payloads() == []


# --- Reports ---


@pytest.mark.parametrize(("end", "state"), [("commit", "committed"), ("abort", "aborted")])
def test_a_report_ends_the_hold_of_committed_readers(
    target: Target, topic: TopicClient, pointer: PointerClient, end: str, state: str
) -> None:
    other = TopicClient(target).create()
    topic.store("before")
    pointer.publish("a")
    PointerClient(other).store("never published")
    topic.store("after")
    assert committed(topic) == (["before"], str(TEPHRA))
    done = report(target, TEPHRA, end, topic, other, topic)
    body = {"pointer": str(TEPHRA), "state": state, "topics": [topic.name, other.name]}
    assert (done.status, done.json) == (200, body)
    assert done.header("Access-Control-Allow-Origin") is None
    read = ["before", "a", "after"] if end == "commit" else ["before", "after"]
    assert committed(topic) == (read, None)
    assert topic.payloads() == ["before", "a", "after"]
    assert report(target, TEPHRA, end, other, topic).json["topics"] == [other.name, topic.name]
    assert [each["kind"] for each in shown(topic, "/entries")].count(end) == 1
    again = "abort" if end == "commit" else "commit"
    past = {"commit": "has committed", "abort": "was aborted"}[end]
    sentence = f"{topic.name}: pointer {TEPHRA} {past} in this topic"
    assert said(report(target, TEPHRA, again, topic), 409) == sentence
    for action in ("publish", "store"):
        refused = said(pointer.request(action, messages=["b"]), 409)
        assert refused == f"pointer {TEPHRA} {past} in this topic"
    nothing = said(PointerClient(other).request("publish"), 409)
    assert nothing == f"pointer {TEPHRA} {past} in this topic"


def test_the_order_is_the_same_with_and_without_a_snapshot(
    target: Target, topic: TopicClient
) -> None:
    clients = [PointerClient(topic, k) for k in (1, 2, 3)]
    for client in clients:
        client.publish(f"{client.pointer}a")
    clients[1].store("2b", "2c")
    topic.store("plain")
    clients[1].publish()
    txn = TransactionClient(target)
    txn.write(record(topic, 0, "own"))
    clients[2].publish("3b")
    txn.commit(1)
    for number, end in ((3, "commit"), (1, "abort"), (2, "commit")):
        assert report(target, number, end, topic).status == 200
    order = ["2a", "3a", "plain", "2b", "2c", "3b", "own"]
    assert committed(topic) == (order, None)
    assert seen(topic, readPointer=3, invalid=[1]) == (order, None)


def test_a_report_with_an_unknown_topic_decides_nothing(
    target: Target, topic: TopicClient, pointer: PointerClient
) -> None:
    pointer.publish("a")
    for name in (TopicClient(target).name, "system/other"):
        assert name in said(report(target, TEPHRA, "commit", topic, name), 404)
    assert pointer.kinds() == ["direct"]


@on_one_store
@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "topics: is required"),
        ({"topics": []}, "topics: must be a list of 1 to 1,000 topics"),
        ({"topics": ["ns/t"] * 1001}, "topics: must be a list of 1 to 1,000 topics"),
        ({"topics": ["t"]}, "topics[0]: must be NAMESPACE/TOPIC"),
        ({"topics": [OPLOG]}, "topics[0]: system/oplog takes operations in transactions"),
        ({"topics": [GROUP_LOG]}, "topics[0]: "),
        ({"topics": ["ns/t"], "more": 1}, "more: is not a member of this request"),
        (b"{", "body: is not valid JSON"),
    ],
)
def test_a_bad_report_is_named(target: Target, body: Any, sentence: str) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    for end in ("commit", "abort"):
        reply = target.request("POST", f"/v1/pointers/5/{end}", raw, JSON)
        assert said(reply, 400).startswith(sentence)


@on_one_store
def test_a_report_is_json_of_at_most_a_megabyte(target: Target, topic: TopicClient) -> None:
    path = "/v1/pointers/5/commit"
    raw = json.dumps({"topics": [topic.name]}).encode()
    for headers in ({"Content-Type": "avro/binary"}, {}):
        assert "application/json" in said(target.request("POST", path, raw, headers), 415)
    assert said(target.request("POST", path, raw + b" " * MB, JSON), 413)
    assert shown(topic, "/entries") == []
    packed = {**JSON, "Content-Encoding": "gzip"}
    assert target.request("POST", path, gzip.compress(raw), packed).status == 200


def test_a_topic_that_is_created_again_knows_nothing_of_its_pointers(
    target: Target, topic: TopicClient, pointer: PointerClient
) -> None:
    answer = pointer.publish("a")
    pointer.store("b")
    assert report(target, TEPHRA, "commit", topic).status == 200
    topic.request("DELETE")
    for action in WRITES:
        assert topic.name in said(pointer.request(action, **members_of(action)), 404)
    assert topic.name in said(pointer.request("publish"), 404)
    assert topic.name in said(report(target, TEPHRA, "commit", topic), 404)
    for path in ("/pointers", "/entries"):
        assert topic.name in said(topic.request("GET", path), 404)
    topic.create()
    pointer.rollback(messages=answer["messages"])
    assert shown(topic, "/entries") == pointers(topic) == []
    assert pointer.request("publish").json["messages"] == []
    pointer.publish("c")
    assert topic.payloads() == ["c"]
    assert committed(topic) == ([], str(TEPHRA))

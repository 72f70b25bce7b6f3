"""Messages under pointers of foreign transactions: publish and store, with each error."""

import gzip
import json
from typing import Any

import pytest

from tests.contract.wire.pointers.pointers import (
    HELD_BY,
    MAX_POINTER,
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
from tests.contract.wire.transactions import TransactionClient, said
from tests.kits.contract.wire import JSON, Target, wait_until

MB = 1 << 20
GROUP_LOG = "system/_txn.default"


# --- Publish ---


def test_a_snapshot_decides_which_messages_a_poll_returns(target: Target) -> None:
    topic = TopicClient(target).create()
    PointerClient(topic, 2).publish("m3")
    topic.store("m4")
    assert topic.payloads() == ["m3", "m4"]
    assert topic.poll().header(HELD_BY) is None
    assert seen(topic, readPointer=5, inProgress=[2]) == ([], "2")
    assert seen(topic, readPointer=5, invalid=[2]) == (["m4"], None)
    assert seen(topic, readPointer=5) == (["m3", "m4"], None)
    assert seen(topic, readPointer=1) == ([], "2")
    assert seen(topic, readPointer=1, writePointer=2, inProgress=["2"]) == (["m3", "m4"], None)


@pytest.mark.parametrize("number", [0, 7, TEPHRA, MAX_POINTER])
def test_a_publish_under_a_pointer_answers_the_places(topic: TopicClient, number: int) -> None:
    pointer = PointerClient(topic, number)
    answer = pointer.publish("a", {"payload": "b", "key": "k"})
    polled = topic.polled()
    assert [each["id"] for each in polled] == [key + "0" * 20 for key in keys(answer)]
    assert polled[1] == {"id": polled[1]["id"], "payload": "b", "key": "k"}
    body = {"transactionWritePointer": str(number), "messages": ["c"]}
    reply = topic.request("POST", "/publish", body, JSON)
    id_ = shown(topic, "/entries?limit=1")[0]["id"]
    place = {"publishTimestamp": int(id_[:16], 16), "sequenceId": int(id_[16:], 16)}
    assert reply.json == {"transactionWritePointer": number, "messages": [place]}


def test_stored_messages_are_read_where_they_are_published(
    topic: TopicClient, pointer: PointerClient
) -> None:
    texts = [str(k) for k in range(20)]
    pointer.store(*texts[:12])
    topic.store("plain")
    pointer.store(*texts[12:])
    assert topic.payloads() == ["plain"]
    pointer.publish()
    assert topic.payloads() == ["plain", *texts]
    first = topic.polled(limit=7)
    assert [each["payload"] for each in first] == ["plain", *texts[:6]]
    assert topic.payloads(first[-1]["id"], inclusive=False) == texts[6:]
    assert topic.payloads(first[-1]["id"]) == texts[5:]


def test_a_publish_that_is_repeated_answers_the_same_place(
    target: Target, topic: TopicClient, pointer: PointerClient
) -> None:
    pointer.store("a")
    answer = pointer.publish()
    assert len(answer["messages"]) == 1
    assert pointer.publish() == answer
    empty_list = pointer.request("publish", messages=[])
    assert (empty_list.status, empty_list.json) == (200, answer)
    pointer.store("late")
    assert topic.payloads() == ["a"]
    other = pointer.publish()
    assert other != answer
    assert pointer.publish() == other
    assert report(target, TEPHRA, "commit", topic).status == 200
    assert pointer.publish() == other
    assert committed(topic) == (["a", "late"], None)


def test_messages_after_stored_ones_are_refused_until_those_are_published(
    topic: TopicClient, pointer: PointerClient
) -> None:
    pointer.store("a")
    sentence = f"messages: must be empty: messages are stored under pointer {TEPHRA}; "
    assert said(pointer.request("publish", messages=["b"]), 400).startswith(sentence)
    pointer.publish()
    pointer.publish("b")
    assert topic.payloads() == ["a", "b"]


def test_a_publish_of_nothing_has_no_place_unless_it_is_rolled_back(
    topic: TopicClient, pointer: PointerClient
) -> None:
    nothing = f"messages: there is none, and none is stored under pointer {TEPHRA}"
    given: dict[str, Any]
    for given in ({}, {"messages": []}, {"messages": None}):
        answer = pointer.request("publish", **given)
        assert (answer.status, answer.json) == (
            200,
            {"transactionWritePointer": TEPHRA, "messages": []},
        )
    assert pointers(topic) == []
    pointer.store("a")
    pointer.publish()
    pointer.rollback()
    assert said(pointer.request("publish"), 400) == nothing
    assert topic.payloads() == []


@on_one_store
@pytest.mark.parametrize("given", [-1, 1 << 62, 1.5, "x", "07", "", True, [], {}, 10**30])
def test_a_bad_pointer_is_refused_everywhere(
    target: Target, topic: TopicClient, given: Any
) -> None:
    body = {"transactionWritePointer": given, "messages": ["a"]}
    for action in WRITES:
        sentence = said(topic.request("POST", f"/{action}", body, JSON), 400)
        assert sentence.startswith("transactionWritePointer: ")
    assert pointers(topic) == shown(topic, "/entries") == []
    if isinstance(given, str | int) and given != "":
        sentence = said(report(target, str(given), "commit", topic), 400)
        assert sentence.startswith("pointer: must be a whole number from 0 to 4611686018427387903")


@on_one_store
def test_a_plain_publish_is_answered_as_ever(topic: TopicClient) -> None:
    for pointer in ({}, {"transactionWritePointer": None}):
        reply = topic.request("POST", "/publish", {"messages": ["a"], **pointer}, JSON)
        assert (reply.status, reply.body, reply.header("Content-Type")) == (200, b"", None)
    sentence = said(topic.request("POST", "/publish", {"messages": []}, JSON), 400)
    assert sentence == "messages: there is none"


@on_one_store
def test_the_query_sets_the_time_to_live_of_messages_under_a_pointer(
    topic: TopicClient, pointer: PointerClient
) -> None:
    other = PointerClient(topic, 5)
    pointer.store("kept")
    for action, client in (("publish?ttl=1", other), ("store?ttl=1", pointer)):
        assert client.request(action, messages=["short"]).status == 200
    pointer.publish()
    assert wait_until(lambda: topic.payloads() == ["kept"])
    assert said(pointer.request("store?ttl=0", messages=["a"]), 400).startswith("ttl: ")


# --- Store ---


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"messages": ["a"]}, "transactionWritePointer: must not be null"),
        (
            {"messages": ["a"], "transactionWritePointer": None},
            "transactionWritePointer: must not be null",
        ),
        ({"transactionWritePointer": 5}, "messages: there is none"),
        ({"transactionWritePointer": 5, "messages": []}, "messages: there is none"),
        ({"transactionWritePointer": 5, "messages": {}}, "messages: must be a list"),
        (
            {"transactionWritePointer": 5, "messages": ["a", 5]},
            "messages[1]: must be a string or an object",
        ),
        ({"transactionWritePointer": 5, "messages": ["a"], "more": 1}, "more: is not a member"),
        (b"", "body: is not valid JSON"),
        (b"[]", "body: must be an object"),
    ],
)
@on_one_store
def test_a_bad_store_is_named_and_stores_nothing(
    topic: TopicClient, body: Any, sentence: str
) -> None:
    assert said(topic.request("POST", "/store", body, JSON), 400).startswith(sentence)
    assert pointers(topic) == []


@on_one_store
def test_a_message_that_is_too_large_is_not_stored(
    topic: TopicClient, pointer: PointerClient
) -> None:
    for action in ("publish", "store"):
        reply = pointer.request(action, messages=["x" * (MB + 1)])
        assert said(reply, 413).startswith("messages[0]: has 1,048,577 bytes")
    assert pointers(topic) == []


@on_one_store
def test_bodies_may_be_compressed_and_have_another_type_only_if_it_is_known(
    topic: TopicClient, pointer: PointerClient
) -> None:
    packed = {**JSON, "Content-Encoding": "gzip"}
    body = {"transactionWritePointer": TEPHRA, "messages": ["a"]}
    raw = gzip.compress(json.dumps(body).encode())
    empty(topic.request("POST", "/store", raw, packed))
    everything = gzip.compress(json.dumps({"transactionWritePointer": TEPHRA}).encode())
    assert topic.request("POST", "/publish", everything, packed).status == 200
    empty(topic.request("POST", "/rollback", everything, packed))
    for action in ("store", "rollback"):
        for headers in ({"Content-Type": "text/plain"}, {}):
            reply = topic.request("POST", f"/{action}", body, headers)
            assert "application/json or avro/binary" in said(reply, 415)
        reply = topic.request("POST", f"/{action}", body, {**JSON, "Content-Encoding": "br"})
        assert "gzip" in said(reply, 415)
        assert said(topic.request("POST", f"/{action}", b"x", packed), 400).startswith("body: ")


# --- Refused everywhere ---


@on_one_store
def test_the_oplog_takes_nothing_under_pointers(target: Target) -> None:
    oplog = TopicClient(target, OPLOG)
    operation = {"event": "insert", "type": "a", "id": "x"}
    pointer = PointerClient(oplog)
    before = target.status()["store"]["ops"]
    sentence = said(pointer.request("publish", messages=[operation]), 400)
    assert sentence.startswith("transactionWritePointer: ")
    for action in ("store", "rollback"):
        sentence = said(pointer.request(action, messages=[operation]), 400)
        assert sentence == (
            "system/oplog takes operations in transactions of /v1/txns, not under pointers"
        )
    for path in ("/pointers", "/entries"):
        sentence = said(oplog.request("GET", path), 400)
        assert sentence == "system/oplog is the log of operations: poll it, or follow /ops"
    assert target.status()["store"]["ops"] == before


@on_one_store
def test_built_in_topics_take_nothing_under_pointers(target: Target) -> None:
    TransactionClient(target)
    log, unknown = TopicClient(target, GROUP_LOG), TopicClient(target, "system/other")
    for action in WRITES:
        given = members_of(action)
        assert "reserved" in said(PointerClient(log).request(action, **given), 409)
        assert "system/other" in said(PointerClient(unknown).request(action, **given), 404)
    for path in ("/pointers", "/entries"):
        assert "system/other" in said(unknown.request("GET", path), 404)
    assert pointers(log) == []
    assert {each["kind"] for each in shown(log, "/entries")} <= {"message", "begin"}


@on_one_store
def test_a_fence_is_refused_with_a_pointer(
    target: Target, topic: TopicClient, pointer: PointerClient
) -> None:
    fence = {"Oplog-Lease": "orders; term=1"}
    for action in WRITES:
        sentence = said(pointer.request(action, fence, **members_of(action)), 400)
        assert sentence == "Oplog-Lease: messages under a pointer are not fenced"
    reply = report(target, TEPHRA, "commit", topic, headers={**JSON, **fence})
    assert said(reply, 400) == "Oplog-Lease: reports are not fenced"
    assert shown(topic, "/entries") == pointers(topic) == []


@on_one_store
def test_names_that_are_none_are_refused(target: Target) -> None:
    for name in ("a%20b/t", "ns/..%2f"):
        namespace, topic = name.split("/")
        path = f"/v1/namespaces/{namespace}/topics/{topic}"
        for method, end in (("POST", "store"), ("POST", "rollback"), ("GET", "entries")):
            assert target.request(method, f"{path}/{end}", b"{}", JSON).status in (400, 404)

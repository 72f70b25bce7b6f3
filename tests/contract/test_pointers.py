"""Messages under pointers of foreign transactions: each request with each of its errors."""

import gzip
import json
from typing import Any

import pytest

from tests.contract.pointers import (
    HELD_BY,
    MAX_POINTER,
    TEPHRA,
    PointerClient,
    empty,
    keys,
    pointers,
    report,
    seen,
    shown,
)
from tests.contract.store_kinds import on_one_store
from tests.contract.topics import OPLOG, TopicClient
from tests.contract.transactions import TransactionClient, record, said
from tests.contract.wire import JSON, Target, wait_until

MB = 1 << 20
GROUP_LOG = "system/_txn.default"
WRITES = ("publish", "store", "rollback")


@pytest.fixture
def topic(target: Target) -> TopicClient:
    return TopicClient(target).create()


@pytest.fixture
def pointer(topic: TopicClient) -> PointerClient:
    return PointerClient(topic)


def committed(topic: TopicClient) -> tuple[list[str], str | None]:
    """Return the payloads that committed readers get, and the pointer that holds them."""
    reply = topic.poll(isolation="read_committed")
    return [each["payload"] for each in reply.json], reply.header(HELD_BY)


def members_of(action: str) -> dict[str, Any]:
    return {} if action == "rollback" else {"messages": ["a"]}


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


def test_a_publish_of_nothing_is_refused(topic: TopicClient, pointer: PointerClient) -> None:
    nothing = f"messages: there is none, and none is stored under pointer {TEPHRA}"
    assert said(pointer.request("publish"), 400) == nothing
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


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_rollback_works_after_the_decision(
    target: Target, topic: TopicClient, pointer: PointerClient, end: str
) -> None:
    answer = pointer.publish("a", "b")
    assert report(target, TEPHRA, end, topic).status == 200
    pointer.rollback(messages=answer["messages"][:1])
    assert topic.payloads() == ["b"]
    assert committed(topic) == (["b"] if end == "commit" else [], None)


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
    assert said(pointer.request("publish"), 400).startswith("messages: there is none")
    pointer.publish("c")
    assert topic.payloads() == ["c"]
    assert committed(topic) == ([], str(TEPHRA))


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

"""Publish and poll: each request with each of its errors."""

import base64
import gzip
import json
from typing import Any

import pytest

from tests.contract.wire.store_kinds import on_each_store, on_one_store
from tests.contract.wire.topics.topics import OPLOG, TopicClient
from tests.kits.contract.wire import JSON, SSE, Target, fresh_type, operation

MB = 1 << 20
ZEROS = "0" * 40


def test_messages_come_back_in_order_with_ascending_ids(topic: TopicClient) -> None:
    topic.store("a", "b")
    topic.store("c")
    messages = topic.polled()
    assert [message["payload"] for message in messages] == ["a", "b", "c"]
    ids = [message["id"] for message in messages]
    assert ids == sorted(set(ids))
    assert {len(id_) for id_ in ids} == {40}
    assert {id_[20:] for id_ in ids} == {"0" * 20}


def test_a_message_keeps_its_members(topic: TopicClient) -> None:
    given: list[dict[str, Any]] = [
        {"payload": "é\u2028\0", "key": "k", "headers": [["n", "1"], ["n", "2"]]},
        {"payload": None},
        {"payload": "", "key": ""},
    ]
    topic.store(*given)
    assert [{**message, "id": ""} for message in topic.polled()] == [
        {"id": "", **each} for each in given
    ]


def test_bytes_that_are_not_utf8_come_back_as_base64(topic: TopicClient) -> None:
    raw = base64.b64encode(b"\xff\0").decode()
    text = base64.b64encode(b"text").decode()
    topic.store(*({"payload": each, "encoding": "base64"} for each in (raw, text)))
    binary, plain = topic.polled()
    assert (binary["payload"], binary["encoding"]) == (raw, "base64")
    assert (plain["payload"], "encoding" in plain) == ("text", False)


def test_a_poll_starts_at_ids_times_or_the_oldest_message(topic: TopicClient) -> None:
    topic.store("a")
    (first,) = topic.polled()
    ms = int(first["id"][:16], 16)
    topic.store("b")
    everything = ["a", "b"]
    assert topic.payloads(first["id"]) == everything
    assert topic.payloads(first["id"], inclusive=False) == ["b"]
    assert topic.payloads(first["id"], inclusive=False, limit=1) == ["b"]
    assert topic.payloads(ms) == everything
    assert topic.payloads(0) == everything
    assert topic.payloads(ms + 10**9) == []
    assert topic.payloads(10**30) == []
    assert topic.payloads("f" * 40) == []
    assert topic.payloads(limit=1) == ["a"]


def test_an_exclusive_time_skips_all_of_its_ms(topic: TopicClient) -> None:
    topic.store("a", "b", "c")  # one publish has one ms
    (first, *_) = topic.polled()
    ms = int(first["id"][:16], 16)
    assert topic.payloads(ms, inclusive=True) == ["a", "b", "c"]
    assert topic.payloads(ms, inclusive=False) == []


def test_an_empty_body_polls_from_the_oldest_message(topic: TopicClient) -> None:
    topic.store("a")
    for body in (None, b"", b" \n"):
        reply = topic.request("POST", "/poll", body)
        assert reply.header("Content-Type") == "application/json"
        assert [message["payload"] for message in reply.json] == ["a"]


def test_polling_consumes_nothing(topic: TopicClient) -> None:
    topic.store("a")
    assert topic.polled() == topic.polled() != []


def test_an_id_before_all_messages_announces_a_gap(topic: TopicClient) -> None:
    topic.store("a")
    reply = topic.poll(ZEROS)
    assert (reply.header("Oplog-Gap"), len(reply.json)) == ("1", 1)


def test_an_answer_has_a_megabyte_or_at_least_one_message(topic: TopicClient) -> None:
    large = "x" * (MB - 100)
    topic.store(large, large)
    assert topic.payloads() == [large]
    small = "y" * 400_000
    topic.request("DELETE")
    topic.create().store(small, small, small)
    assert topic.payloads() == [small, small]


@on_one_store
@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("limit", 0),
        ("limit", -1),
        ("limit", "5"),
        ("startFrom", -1),
        ("startFrom", "xyz"),
        ("startFrom", "0" * 24),
        ("startFrom", "A" * 40),
        ("startFrom", 1.5),
        ("inclusive", "yes"),
        ("transaction", 5),
        ("other", 1),
    ],
)
def test_a_bad_poll_names_its_member(topic: TopicClient, member: str, value: Any) -> None:
    reply = topic.request("POST", "/poll", {member: value}, JSON)
    assert reply.status == 400
    assert reply.problem().startswith(f"{member}: ")


@on_one_store
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"messages": []}, "messages: there is none"),
        ({}, "messages: must be a list with at least one message"),
        (
            {"messages": ["a"], "transactionWritePointer": -5},
            "transactionWritePointer: must be a whole number from 0 to 4611686018427387903"
            " (2^62 - 1)",
        ),
        ({"messages": ["a"], "more": 5}, "more: is not a member of this request"),
        (b"", "body: is not valid JSON: Input data was truncated"),
        (b"[", "body: must be an object"),
        ({"messages": ["a", 5]}, "messages[1]: must be a string or an object"),
        (
            {"messages": [{"payload": "a", "headers": [["n"]]}]},
            "messages[0].headers[0]: must be [name, value]",
        ),
    ],
)
def test_a_bad_publish_is_named_and_stores_nothing(
    topic: TopicClient, body: Any, said: str
) -> None:
    reply = topic.request("POST", "/publish", body, JSON)
    assert reply.status == 400
    assert reply.problem() == said
    assert topic.polled() == []


ISOLATIONS = ("read_uncommitted", "read_committed")


def test_a_poll_has_an_isolation_in_its_body_or_its_query(
    target: Target, topic: TopicClient
) -> None:
    topic.store("a")
    for name in (topic.name, OPLOG):
        polled = TopicClient(target, name)
        answers = [polled.poll(isolation=each) for each in (*ISOLATIONS, None)]
        answers += [polled.request("POST", f"/poll?isolation={each}") for each in ISOLATIONS]
        assert {each.status for each in answers} == {200}
        assert len({each.body for each in answers}) == 1, "no transaction wrote a record"


@on_one_store
def test_another_isolation_is_refused_in_every_topic(target: Target, topic: TopicClient) -> None:
    for name in (topic.name, OPLOG):
        polled = TopicClient(target, name)
        for bad in ("committed", "", "READ_COMMITTED"):
            for answer in (
                polled.poll(isolation=bad),
                polled.request("POST", f"/poll?isolation={bad}"),
                polled.request(
                    "POST", f"/poll?isolation={bad}", {"isolation": ISOLATIONS[0]}, JSON
                ),
            ):
                said = "isolation: must be read_uncommitted or read_committed"
                assert (answer.status, answer.json["detail"]) == (400, said)


@on_one_store
@pytest.mark.parametrize("given", ["Isolation", "isolation_level", "isolationLevel"])
def test_a_slip_of_isolation_is_refused_with_the_right_name(
    target: Target, topic: TopicClient, given: str
) -> None:
    for name in (topic.name, OPLOG):
        asked = TopicClient(target, name)
        query = f"?{given}=read_committed"
        for reply in (
            asked.request("POST", f"/poll{query}"),
            asked.request("POST", f"/poll{query}", {}, JSON),
            asked.request("GET", f"/stream{query}", headers=SSE),
        ):
            said = f"{given}: there is no such parameter; the name is isolation"
            assert (reply.status, reply.problem()) == (400, said)


@on_one_store
def test_each_bad_message_is_listed(topic: TopicClient) -> None:
    reply = topic.publish("a", 5, {"payload": 5})
    assert reply.json["errors"] == [
        {"field": "messages[1]", "reason": "must be a string or an object"},
        {"field": "messages[2].payload", "reason": "must be a string or null"},
    ]


def test_a_message_of_a_megabyte_is_the_largest(topic: TopicClient) -> None:
    topic.store("x" * MB)
    reply = topic.publish("x" * (MB + 1))
    assert reply.status == 413
    assert reply.problem().startswith("messages[0]: has 1,048,577 bytes")


@on_one_store
def test_a_body_that_is_too_large_is_refused(topic: TopicClient) -> None:
    assert topic.publish(*["x" * MB] * 17).status == 413


@on_one_store
def test_a_body_may_be_compressed(topic: TopicClient) -> None:
    body = gzip.compress(json.dumps({"messages": ["a"]}).encode())
    packed = {**JSON, "Content-Encoding": "gzip"}
    assert topic.request("POST", "/publish", body, packed).status == 200
    assert topic.payloads() == ["a"]
    damaged = topic.request("POST", "/publish", body[:-4], packed)
    assert (damaged.status, damaged.problem()) == (400, "body: the gzip body ends too early")
    other = topic.request("POST", "/publish", body, {**JSON, "Content-Encoding": "br"})
    assert (other.status, other.header("Accept-Encoding")) == (415, "gzip")


@on_one_store
@pytest.mark.parametrize("path", ["/publish", "/poll"])
@pytest.mark.parametrize("headers", [{}, {"Content-Type": "text/plain"}])
def test_another_type_is_refused(topic: TopicClient, path: str, headers: dict[str, str]) -> None:
    reply = topic.request("POST", path, b'{"messages":["a"]}', headers)
    assert reply.status == 415
    assert "application/json" in reply.problem()


@on_one_store
def test_a_type_may_have_parameters(topic: TopicClient) -> None:
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert topic.request("POST", "/publish", b'{"messages":["a"]}', headers).status == 200


def test_a_ttl_of_the_request_counts_for_messages_without_their_own(topic: TopicClient) -> None:
    body = {"messages": ["a"]}
    assert topic.request("POST", "/publish?ttl=100", body, JSON).status == 200
    reply = topic.request("POST", "/publish?ttl=0", body, JSON)
    assert (reply.status, reply.problem().startswith("ttl: ")) == (400, True)


@on_one_store
def test_no_page_of_another_origin_may_read_the_answers(topic: TopicClient) -> None:
    assert topic.publish("a").header("Access-Control-Allow-Origin") is None
    assert topic.poll().header("Access-Control-Allow-Origin") is None


@on_each_store
def test_a_message_of_the_oplog_is_an_operation(target: Target) -> None:
    oplog = TopicClient(target, OPLOG)
    type_ = fresh_type()
    with target.follow(types=type_) as stream:
        oplog.store(
            operation("insert", "a", type_),
            json.dumps(operation("update", "b", type_)),
            {"payload": json.dumps(operation("delete", "c", type_))},
        )
        ids = [block.split(b"\n")[0][4:].decode() for block in stream.take(3)]
    messages = oplog.polled(ids[0])
    assert [message["id"] for message in messages] == ids
    operations = [json.loads(message["payload"]) for message in messages]
    assert [(each["event"], each["id"]) for each in operations] == [
        ("insert", "a"),
        ("update", "b"),
        ("delete", "c"),
    ]
    assert all(next(iter(each)) == "event" for each in operations)
    assert oplog.payloads(ids[0], inclusive=False) == [m["payload"] for m in messages[1:]]
    assert oplog.payloads(ids[2], inclusive=False) == []


@on_each_store
def test_an_operation_from_a_poll_can_be_published_again(target: Target) -> None:
    oplog = TopicClient(target, OPLOG)
    type_ = fresh_type()
    with target.follow(types=type_) as stream:
        target.store(operation("insert", "a", type_, "p/1"))
        first = stream.block()
        (message,) = oplog.polled(first.split(b"\n")[0][4:].decode())
        oplog.store({"payload": message["payload"]})
        again = stream.block()
    assert first.split(b"\n")[1:] == again.split(b"\n")[1:]


@on_one_store
def test_a_bad_operation_is_named(target: Target) -> None:
    reply = TopicClient(target, OPLOG).publish(
        operation("insert", "a", fresh_type()), {"event": "insert", "type": "a"}, "x"
    )
    assert reply.status == 400
    assert [each["field"] for each in reply.json["errors"]] == ["messages[1].id", "messages[2]"]


@on_one_store
def test_the_oplog_refuses_ids_of_topics(target: Target) -> None:
    reply = TopicClient(target, OPLOG).poll(ZEROS)
    assert reply.status == 400
    assert "24" in reply.problem()


@on_one_store
def test_there_is_no_other_topic_in_the_namespace_of_the_oplog(target: Target) -> None:
    other = TopicClient(target, "system/other")
    assert other.publish("a").status == 404
    assert other.poll().status == 404

"""The stream of a topic: its request, its start, its end."""

import pytest

from tests.contract.wire.store_kinds import on_each_store, on_one_store
from tests.contract.wire.topics.topics import OPLOG, TopicClient
from tests.kits.contract.wire import (
    SSE,
    Target,
    frame,
    fresh_type,
    id_of,
    operation,
    said,
    wait_until,
)

RESET = b"id: 0\nevent: reset\ndata:\n\n"


def block(message: dict[str, str]) -> bytes:
    return frame(message["id"], "message", f'{{"payload":"{message["payload"]}"}}')


def test_without_a_position_a_stream_starts_with_the_next_message(topic: TopicClient) -> None:
    topic.store("old")
    with topic.follow() as stream:
        assert stream.header("Content-Type") == "text/event-stream; charset=utf-8"
        topic.store("new", {"payload": None, "key": "k"})
        blocks = stream.take(2)
    messages = topic.polled()
    assert blocks == [
        block(messages[1]),
        frame(messages[2]["id"], "message", '{"payload":null,"key":"k"}'),
    ]


def test_a_stream_starts_at_its_position(topic: TopicClient) -> None:
    topic.store("a", "b", "c")
    blocks = [block(message) for message in topic.polled()]
    first = topic.polled()[0]["id"]
    ms = int(first[:16], 16)
    for header, query, wanted in (
        ("0", "", blocks),
        (first, "", blocks[1:]),
        (None, f"?last_event_id={first}", blocks[1:]),
        (first, "?last_event_id=0", blocks[1:]),
        (str(ms), "", blocks),
        (None, f"?since={ms}", blocks),
        (None, "?since=2020-01-01T00:00:00Z", blocks),
    ):
        with topic.follow(header, query) as stream:
            assert stream.take(len(wanted)) == wanted, (header, query)


def test_an_id_from_before_the_topic_brings_a_reset(topic: TopicClient) -> None:
    topic.store("a")
    with topic.follow("0" * 40) as stream:
        assert stream.take(2) == [RESET, block(topic.polled()[0])]


def test_the_streams_of_a_deleted_topic_end_and_its_ids_bring_a_reset(topic: TopicClient) -> None:
    topic.store("a")
    with topic.follow("0") as stream:
        (message,) = stream.take(1)
        assert topic.request("DELETE").status == 200
        assert stream.rest() == []
    assert topic.request("GET", "/stream", headers=SSE).status == 404
    topic.create().store("b")
    with topic.follow(id_of(message)) as stream:
        assert stream.take(2) == [RESET, block(topic.polled()[0])]


def test_a_checkpoint_tells_the_position_of_an_empty_topic(topic: TopicClient) -> None:
    with topic.follow(query="?checkpoint=1") as stream:
        position = id_of(stream.block())
    topic.store("a")
    with topic.follow(position) as stream:
        assert stream.block() == block(topic.polled()[0])


@on_one_store
@pytest.mark.parametrize(
    "query",
    [
        "last_event_id=xyz",
        f"last_event_id={'0' * 24}",
        "since=yesterday",
        "checkpoint=2",
        "name=a%20b",
    ],
)
def test_a_bad_parameter_is_refused(topic: TopicClient, query: str) -> None:
    reply = topic.request("GET", f"/stream?{query}", headers=SSE)
    assert reply.status == 400
    assert reply.problem()


@on_one_store
@pytest.mark.parametrize("given", ["types", "Type", "parents", "parent", "events", "ids"])
def test_a_topic_has_no_filters(topic: TopicClient, given: str) -> None:
    reply = topic.request("GET", f"/stream?{given}=a", headers=SSE)
    assert (reply.status, reply.problem()) == (400, f"{given}: a topic has no filters")


def test_an_unknown_topic_has_no_stream(target: Target) -> None:
    topic = TopicClient(target)
    for method in ("GET", "HEAD"):
        assert topic.request(method, "/stream", headers=SSE).status == 404
    assert TopicClient(target, "system/other").request("GET", "/stream", headers=SSE).status == 404


@on_one_store
def test_a_client_that_takes_no_event_stream_is_told(topic: TopicClient) -> None:
    reply = topic.request("GET", "/stream")
    assert reply.status == 406
    assert "text/event-stream" in reply.problem()


@on_each_store
def test_the_stream_of_the_oplog_is_that_of_operations(target: Target) -> None:
    type_ = fresh_type()
    with TopicClient(target, OPLOG).follow(query=f"?types={type_}") as stream:
        target.store(operation("insert", "x", fresh_type()), operation("insert", "a", type_))
        assert said(stream.block()) == ("insert", "a")


@on_one_store
def test_consumers_of_topics_are_counted_and_shown(target: Target, topic: TopicClient) -> None:
    assert wait_until(lambda: target.status()["clients"] == 0)
    with topic.follow(query="?name=search"):
        status = target.status()
        assert status["clients"] == 1
        (consumer,) = status["consumers"]
        assert (consumer["topic"], consumer["name"]) == (topic.name, "search")
        metrics = target.request("GET", "/metrics").body.decode()
        assert f'oplog_topic_streams{{topic="{topic.name}"}} 1.0' in metrics

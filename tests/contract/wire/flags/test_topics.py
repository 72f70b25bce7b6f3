"""Agents with flags that concern topics: limits, passwords, origins, an unreachable store."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oplogd.store.numbers import MAX_LOG
from tests.contract.wire.store_kinds import EACH_DRIVER, StoreKind, kinds_of_store, on_one_store
from tests.contract.wire.topics.topics import TopicClient
from tests.kits.agents.agent import Agent
from tests.kits.contract.passwords import READER, WRITER, basic
from tests.kits.contract.wire import JSON, SSE, Target, wait_until

store_kind = kinds_of_store(EACH_DRIVER)

COUNTS = (
    "publishes",
    "messages_published",
    "messages_refused",
    "polls",
    "messages_polled",
)


@pytest.fixture(scope="module")
def small(store_kind: StoreKind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    limits = ("--max-queued-events", "5", "--poll-limit", "3", "--max-body-size", "2MB")
    with store_kind.agent(
        tmp_path_factory.mktemp("agent"), *limits, "--topic-ttl", "1h", "--max-clients", "1"
    ) as agent:
        yield Target.of(agent)


def test_the_default_ttl_is_that_of_the_flag(small: Target) -> None:
    topic = TopicClient(small).create()
    assert topic.request("GET").json["properties"] == {"ttl": "3600"}


@on_one_store
def test_a_bound_of_all_topics_lets_the_oldest_messages_leave(
    store_kind: StoreKind, tmp_path: Path
) -> None:
    large = "x" * (1 << 17)
    with store_kind.agent(tmp_path, "--topics-max-bytes", "1MB") as agent:
        target = Target.of(agent)
        topics = [TopicClient(target).create() for _ in range(2)]
        for _ in range(6):
            for topic in topics:
                topic.store(large)

        def left() -> list[int]:
            return [len(topic.payloads()) for topic in topics]

        assert wait_until(lambda: sum(left()) <= 7)
        figures = target.request("GET", "/status").json["topics"]
        assert figures["max_bytes"] == 1 << 20
        assert figures["left_by_bytes"] == 12 - sum(left())
        assert sum(left()) >= 6
        assert abs(left()[0] - left()[1]) <= 1
    with store_kind.agent(tmp_path, "--topics-max-bytes", "0") as agent:
        status = Target.of(agent).request("GET", "/status").json
        assert status["topics"]["max_bytes"] == 0


@on_one_store
def test_a_poll_returns_at_most_its_limit(small: Target) -> None:
    topic = TopicClient(small).create()
    topic.store("a", "b", "c", "d")
    assert topic.payloads() == ["a", "b", "c"]
    assert topic.payloads(limit=100) == ["a", "b", "c"]
    assert topic.payloads(limit=2) == ["a", "b"]


@on_one_store
def test_more_messages_than_the_queue_can_hold_are_too_large(small: Target) -> None:
    topic = TopicClient(small).create()
    reply = topic.publish(*"abcdef")
    assert reply.status == 413
    assert "5" in reply.problem()
    topic.store(*"abcde")


@on_one_store
def test_a_stream_too_many_is_told_the_limit(small: Target) -> None:
    topic = TopicClient(small).create()
    with topic.follow():
        reply = topic.request("GET", "/stream", headers=SSE)
    assert (reply.status, reply.header("Retry-After")) == (503, "10")


@on_one_store
def test_reading_and_writing_need_their_own_passwords(guarded: Target) -> None:
    writer = TopicClient(guarded, headers=basic(WRITER))
    reader = TopicClient(guarded, writer.name, basic(READER))
    nobody = TopicClient(guarded, writer.name)
    writes: tuple[tuple[str, str, Any], ...] = (
        ("PUT", "", None),
        ("PUT", "/properties", {}),
        ("POST", "/publish", ["a"]),
        ("DELETE", "", None),
    )
    for method, path, body in writes:
        for client in (reader, nobody):
            reply = client.request(method, path, body, JSON)
            assert (reply.status, "password" in reply.problem()) == (401, True), (method, path)
    writer.create().store("a")
    reads: tuple[tuple[str, str, dict[str, str]], ...] = (
        ("GET", "", {}),
        ("POST", "/poll", {}),
        ("GET", "/stream", SSE),
    )
    for method, path, headers in reads:
        for client in (writer, nobody):
            reply = client.request(method, path, None, headers)
            assert (reply.status, "password" in reply.problem()) == (401, True), (method, path)
    assert guarded.request("GET", reader.topics).status == 401
    assert guarded.request("GET", reader.topics, None, basic(READER)).status == 200
    assert reader.payloads() == ["a"]
    with reader.follow("0") as stream:
        assert stream.block()
    assert guarded.request("GET", "/v1/schemas/PollRequest").status == 200


@on_one_store
@pytest.mark.parametrize(
    ("method", "path"),
    [("PUT", ""), ("PUT", "/properties"), ("DELETE", ""), ("POST", "/publish")],
)
def test_a_page_under_an_unknown_name_may_not_write(small: Target, method: str, path: str) -> None:
    raw = (
        f"{method} {TopicClient(small).path}{path} HTTP/1.1\r\nHost: evil.example\r\n"
        "Origin: http://evil.example\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n"
    )
    reply = small.exchange(raw.encode(), method)
    assert reply.status == 403
    assert "web page" in reply.problem()


def test_a_publish_that_the_store_does_not_confirm_is_told_so(
    store_kind: StoreKind, tmp_path: Path
) -> None:
    with store_kind.held_agent(tmp_path) as (agent, hold):
        topic = TopicClient(Target.of(agent)).create()
        topic.store("before")
        with hold():
            reply = topic.publish("during")
            assert (reply.status, reply.header("Retry-After")) == (503, "5")
            assert "not confirmed, it may still be stored" in reply.problem()
        topic.store("after")
        payloads = topic.payloads()
    assert payloads[0] == "before"
    assert payloads[-1] == "after"
    assert len(payloads) in (2, 3)


def test_published_messages_survive_a_kill(tmp_path: Path) -> None:
    with Agent(tmp_path, "--topic-ttl", "2h") as agent:
        topic = TopicClient(Target.of(agent)).create()
        topic.store("a", "b")
        before = topic.polled()
        agent.stop(signal.SIGKILL)
    with Agent(tmp_path) as agent:
        topic = TopicClient(Target.of(agent), topic.name)
        assert topic.polled() == before
        assert topic.request("GET").json["properties"] == {"ttl": "7200"}
        topic.store("c")
        assert topic.payloads() == ["a", "b", "c"]


def test_status_and_metrics_count_topics_and_messages(
    store_kind: StoreKind, tmp_path: Path
) -> None:
    with store_kind.agent(tmp_path) as agent:
        target = Target.of(agent)
        topic = TopicClient(target).create()
        topic.store("a", "b")
        topic.polled()
        topic.polled(limit=1)
        topic.publish("a", 5)
        TopicClient(target).publish("a")
        figures = target.status()["topics"]
        metrics = target.request("GET", "/metrics").body.decode()
    assert {name: figures[name] for name in COUNTS} == {
        "publishes": 1,
        "messages_published": 2,
        "messages_refused": 2,
        "polls": 2,
        "messages_polled": 3,
    }
    assert figures["count"] == figures["numbers_used"] == 1
    assert figures["numbers_free"] == MAX_LOG - 1
    assert f'oplog_topic_messages_published_total{{topic="{topic.name}"}} 2.0' in metrics
    assert f'oplog_topic_messages_polled_total{{topic="{topic.name}"}} 3.0' in metrics
    assert 'oplog_topic_messages_published_total{topic="_other"} 0.0' in metrics
    assert "oplog_topics_count 1.0" in metrics
    assert "oplog_topics_numbers_used 1.0" in metrics
    assert "oplog_topics_numbers_free 8.388606e+06" in metrics

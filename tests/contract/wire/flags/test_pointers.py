"""Agents with flags that concern pointers: limits, passwords, time-out, an unreachable store."""

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.contract.wire.pointers.pointers import TEPHRA, PointerClient, report, shown
from tests.contract.wire.store_kinds import StoreKind, on_each_driver, on_one_store
from tests.contract.wire.topics.topics import TopicClient
from tests.contract.wire.transactions import said
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clock.moved import MovedClock
from tests.kits.contract.passwords import READER, WRITER, basic
from tests.kits.contract.wire import JSON, Target, operation, wait_until

WRITES = ("publish", "store", "rollback")
READS = ("pointers", "entries")
NONE = {"open": 0, "oldest_seconds": 0, "committed": 0, "aborted": 0, "timed_out": 0}


@pytest.fixture(scope="module")
def small(store_kind: StoreKind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    limits = ("--txn-max-records", "3", "--txn-max-bytes", "1KB", "--max-body-size", "4KB")
    with store_kind.agent(
        tmp_path_factory.mktemp("agent"), *limits, "--max-queued-events", "5"
    ) as agent:
        yield Target.of(agent)


def figures(target: Target) -> dict[str, Any]:
    found: dict[str, Any] = target.status()["pointers"]
    return found


@on_one_store
def test_stored_messages_have_the_bounds_of_a_transaction(small: Target) -> None:
    topic = TopicClient(small).create()
    pointer, other = PointerClient(topic), PointerClient(topic, 5)
    pointer.store("a", "b")
    sentence = (
        f"pointer {TEPHRA} would have more than 3 stored messages or 1,024 bytes of them in this"
        " topic (--txn-max-records, --txn-max-bytes); publish them first"
    )
    assert said(pointer.request("store", messages=["c", "d"]), 413) == sentence
    assert said(other.request("store", messages=["x" * 1025]), 413).startswith("pointer 5 would")
    pointer.store("c")
    other.store("x" * 900)
    pointer.publish()
    pointer.store("d", "e", "f")
    pointer.publish()
    assert topic.payloads() == [*"abcdef"]


@on_one_store
def test_more_messages_or_bytes_than_a_request_may_have_are_too_large(small: Target) -> None:
    topic = TopicClient(small).create()
    pointer = PointerClient(topic)
    for action in ("publish", "store"):
        assert "(5; see --max-queued-events)" in said(
            pointer.request(action, messages=[*"abcdef"]), 413
        )
        assert "fewer messages" in said(pointer.request(action, messages=["x" * 5000]), 413)
    many = pointer.request("rollback", rollbackKeys=["0" * 20] * 500)
    assert "fewer keys" in said(many, 413)
    pointer.publish(*"abcde")
    assert topic.payloads() == [*"abcde"]


@on_one_store
def test_each_request_needs_its_password(guarded: Target) -> None:
    topic = _created(guarded)
    pointer = PointerClient(topic, headers=basic(WRITER))
    for password in (basic(READER), {}):
        other = PointerClient(topic, headers=password)
        replies = [other.request(action, messages=["a"]) for action in WRITES]
        headers = {**JSON, **password}
        replies += [report(guarded, 5, end, topic, headers=headers) for end in ("commit", "abort")]
        assert all("password" in said(each, 401) for each in replies)
    for password in (basic(WRITER), {}):
        for path in READS:
            assert "password" in said(topic.request("GET", f"/{path}", None, password), 401)
    for path in READS:
        assert topic.request("GET", f"/{path}", None, basic(READER)).json == []
    answer = pointer.publish("a")
    pointer.rollback(messages=answer["messages"])
    pointer.store("b")
    headers = {**JSON, **basic(WRITER)}
    assert report(guarded, TEPHRA, "commit", topic, headers=headers).status == 200
    for path, count in (("pointers", 0), ("entries", 3)):
        assert len(topic.request("GET", f"/{path}", None, basic(READER)).json) == count
    assert guarded.request("GET", "/v1/schemas/PublishedInfo").status == 200


def _created(target: Target) -> TopicClient:
    """Return a topic without a password in its requests."""
    topic = TopicClient(target, headers=basic(WRITER)).create()
    return TopicClient(target, topic.name)


@on_one_store
def test_a_page_under_an_unknown_name_writes_nothing_under_a_pointer(small: Target) -> None:
    topic = TopicClient(small).create()
    paths = [f"{topic.path}/{action}" for action in WRITES]
    for path in (*paths, "/v1/pointers/5/commit", "/v1/pointers/5/abort"):
        raw = (
            f"POST {path} HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\n"
            "Content-Type: application/json\r\nContent-Length: 0\r\n\r\n"
        )
        assert "web page" in said(small.exchange(raw.encode(), "POST"), 403)
    page = {"Origin": "http://localhost:1"}
    for path in ("/v1/pointers/5/commit", f"{topic.path}/rollback"):
        for headers in (page, {**page, "Content-Type": "text/plain"}):
            assert "application/json" in said(small.request("POST", path, b"", headers), 415)
    assert shown(topic, "/entries") == []


# It lasts as long as the store may take. Other requests: tests/unit/pointers/test_endpoints.py.
@on_one_store
def test_a_publish_that_the_store_does_not_confirm_is_told_so(
    store_kind: StoreKind, tmp_path: Path
) -> None:
    with store_kind.held_agent(tmp_path) as (agent, hold):
        pointer = PointerClient(TopicClient(Target.of(agent)).create())
        with hold():
            reply = pointer.request("publish", messages=["during"])
            assert reply.header("Retry-After") == "5"
            sentence = "not confirmed; a repeated request may store the messages twice: "
            assert said(reply, 503).startswith(sentence)
        pointer.publish("after")
        assert pointer.topic.payloads()[-1] == "after"


def test_pointers_survive_a_kill(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        target = Target.of(agent)
        topic = TopicClient(target).create()
        done, left = PointerClient(topic, 1), PointerClient(topic, 2)
        done.publish("a")
        assert report(target, 1, "commit", topic).status == 200
        first = left.publish("b")
        left.store("c")
        open_ = shown(topic, "/pointers")
        agent.stop(signal.SIGKILL)
    with Agent(tmp_path, "--pointer-timeout", "1s") as agent:
        target = Target.of(agent)
        left = PointerClient(TopicClient(target, topic.name), 2)
        assert shown(left.topic, "/pointers") == open_, "the time-out is kept with the pointer"
        place = left.publish()
        assert left.publish() == place
        assert left.topic.payloads() == ["a", "b", "c"]
        left.rollback(messages=first["messages"])
        assert left.topic.payloads() == ["a", "c"]
        assert report(target, 1, "commit", left.topic).status == 200
        assert left.kinds() == ["direct", "commit", "void", "publish", "void"]


@on_each_driver
def test_the_keeper_ends_what_nobody_reports(store_kind: StoreKind, tmp_path: Path) -> None:
    clock = MovedClock(tmp_path, is_of_server=True)
    with store_kind.agent(tmp_path, "--pointer-timeout", "1h", clock=clock) as agent:
        target = Target.of(agent)
        assert figures(target) == NONE
        topic, other = TopicClient(target).create(), TopicClient(target).create()
        PointerClient(topic, 1).publish("committed")
        late = PointerClient(topic, 3)
        late.publish("late")
        topic.store("plain")
        assert report(target, 1, "commit", topic, other).status == 200
        assert report(target, 2, "abort", topic).status == 200
        clock.move(2 * 3_600)
        assert wait_until(lambda: figures(target)["timed_out"] == 1)
        assert figures(target) == NONE | {"committed": 2, "aborted": 1, "timed_out": 1}
        reply = topic.poll(isolation="read_committed")
        assert [each["payload"] for each in reply.json] == ["committed", "plain"]
        assert reply.header("Oplog-Held-By") is None
        sentence = "pointer 3 has timed out (--pointer-timeout) in this topic"
        assert said(late.request("publish", messages=["b"]), 409) == sentence
        assert late.entries()[-1]["state"] == "timed out"
        (listed,) = shown(topic, "/pointers?state=timed-out")
        assert (listed["pointer"], listed["state"]) == ("3", "timed out")
        assert listed.keys() == {"pointer", "begun_at", "timed_out_at", "state"}
        for _ in range(2):
            assert report(target, 3, "commit", topic).status == 200
            reply = topic.poll(isolation="read_committed")
            assert [each["payload"] for each in reply.json] == ["committed", "plain", "late"]
            assert topic.payloads() == ["committed", "late", "plain"]
        assert shown(topic, "/pointers?state=timed-out") == []
        assert topic.request("GET", "/pointers?state=late").status == 400
        assert "has committed" in said(late.request("rollback"), 409)
        assert said(report(target, 3, "abort", topic), 409)
        metrics = target.request("GET", "/metrics").body.decode()
    for line in (
        'pointer_decisions_total{decision="committed"} 3.0',
        'pointer_decisions_total{decision="aborted"} 1.0',
        'pointer_decisions_total{decision="timed_out"} 1.0',
        "pointers_open 0.0",
        "pointers_oldest_seconds 0.0",
    ):
        assert f"\noplog_{line}\n" in metrics


@on_each_driver
def test_status_counts_open_pointers_and_messages(store_kind: StoreKind, tmp_path: Path) -> None:
    with store_kind.agent(tmp_path) as agent:
        target = Target.of(agent)
        topic, other = TopicClient(target).create(), TopicClient(target).create()
        pointer = PointerClient(topic)
        pointer.publish("a", "b")
        PointerClient(other).store("c")
        PointerClient(other).publish()
        PointerClient(other, 5).store("d")
        PointerClient(other, 5).request("publish", messages=["e", "f"])
        pointer.request("publish", messages=["g", 5])
        found = figures(target)
        assert found.pop("oldest_seconds") > 0
        assert found == {"open": 3, "committed": 0, "aborted": 0, "timed_out": 0}
        counted = target.status()["topics"]
        assert counted["publishes"] == 4
        assert counted["messages_published"] == 4
        assert counted["messages_refused"] == 3
        metrics = target.request("GET", "/metrics").body.decode()
    assert "\noplog_pointers_open 3.0\n" in metrics
    assert f'\noplog_topic_messages_published_total{{topic="{topic.name}"}} 2.0\n' in metrics


def test_topics_and_probes_work_while_pointers_are_broken(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        target = Target.of(agent)
        topic = TopicClient(target).create()
        with closing(sqlite3.connect(tmp_path / "oplog.db", timeout=DEADLINE)) as db:
            db.execute("ALTER TABLE pointers RENAME TO elsewhere")
            db.commit()
        agent.wait_log("cannot look after pointers")
        assert PointerClient(topic).request("publish", messages=["a"]).status == 503
        topic.store("a")
        assert topic.payloads() == ["a"]
        target.store(operation("insert", "a", "thing"))
        assert target.request("GET", "/ready").status == 200
        metrics = target.request("GET", "/metrics")
        assert (metrics.status, b"\noplog_pointers_open " in metrics.body) == (200, False)
        status = target.status()
        assert status["status"] == "OK"
        assert (status["pointers"]["open"], status["transactions"]["open"]) == (None, 0)
        assert agent.stop() == 0


def test_a_stream_that_is_held_is_shown_with_the_pointer(tmp_path: Path) -> None:
    with Agent(tmp_path, "--heartbeat", "50ms") as agent:
        target = Target.of(agent)
        topic = TopicClient(target).create()
        with topic.follow() as held, topic.follow(query="?isolation=read_uncommitted") as free:
            PointerClient(topic).publish("a")
            assert free.block()
            assert wait_until(lambda: target.status()["held_consumers"] == 1)
            shown = target.status()["consumers"]
            assert {each["topic"] for each in shown} == {topic.name}
            assert {each["held_by"] for each in shown} == {None, str(TEPHRA)}
            metrics = target.request("GET", "/metrics").body
            assert b"\noplog_held_consumers 1.0\n" in metrics
            assert held.next_heartbeat() == []
            assert report(target, TEPHRA, "commit", topic).status == 200
            assert b"event: message" in held.block()
            assert wait_until(lambda: target.status()["held_consumers"] == 0)

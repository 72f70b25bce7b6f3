"""Leases of agents with passwords, of agents that stop, and of stores that are unreachable."""

import json
import signal
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.wire.leases import LeaseClient
from tests.contract.wire.store_kinds import StoreKind, on_one_store
from tests.contract.wire.topics.topics import OPLOG, TopicClient
from tests.kits.agents.agent import DEADLINE, Agent, write_lock
from tests.kits.contract.passwords import READER, WRITER, basic
from tests.kits.contract.wire import JSON, Reply, Target, fresh_type, operation


@on_one_store
def test_each_request_needs_its_password(guarded: Target) -> None:
    lease = LeaseClient(guarded, headers=basic(WRITER))
    lease.poll()
    for headers in (basic(READER), {}):
        for method in ("POST", "DELETE"):
            reply = lease.request(method, {}, {**JSON, **headers})
            assert (reply.status, "password" in reply.problem()) == (401, True)
    for headers in (basic(WRITER), {}):
        assert lease.request("GET", None, headers).status == 401
    assert lease.request("GET", None, basic(READER)).json["term"] == 1


@on_one_store
def test_a_page_under_an_unknown_name_writes_no_lease(target: Target) -> None:
    lease = LeaseClient(target)
    lease.poll()
    for method in ("POST", "DELETE"):
        raw = (
            f"{method} {lease.path} HTTP/1.1\r\nHost: evil.example\r\n"
            "Origin: http://evil.example\r\nContent-Type: application/json\r\n"
            "Content-Length: 0\r\n\r\n"
        )
        reply = target.exchange(raw.encode(), method)
        assert (reply.status, "web page" in reply.problem()) == (403, True)


@pytest.mark.parametrize("store_kind", ["plain"], indirect=True)  # SQLite: see the next test
def test_no_fenced_operation_lands_after_its_request_has_failed_and_the_term_is_over(
    store_kind: StoreKind, tmp_path: Path
) -> None:
    type_ = fresh_type()
    with store_kind.held_agent(tmp_path) as (agent, hold):
        target = Target.of(agent)
        lease = LeaseClient(target)
        lease.poll("a")
        with hold():
            require_not_confirmed(
                target.post(operation("insert", "during", type_), {**JSON, **lease.fence(1)})
            )
        assert lease.poll("a", refresh=True)["term"] == 2
        after = operation("insert", "after", type_)
        assert target.post(after, {**JSON, **lease.fence(2)}).status == 204
        target.store(operation("insert", "last", type_))
        found = [json.loads(each["payload"]) for each in TopicClient(target, OPLOG).polled()]
        ids = [each["id"] for each in found if each["type"] == type_]
        assert ids[-2:] == ["after", "last"]
        assert len(ids) in (2, 3)
        status = agent.wait_status(status="OK", queue_size=0)
        assert status["events_received"] == status["events_ingested"] + status["events_discarded"]


def test_only_leases_and_fenced_publishing_need_the_table_of_leases(tmp_path: Path) -> None:
    type_ = fresh_type()
    with Agent(tmp_path) as agent:
        target = Target.of(agent)
        topic, lease = TopicClient(target).create(), LeaseClient(target)
        lease.poll("a")
        rename(tmp_path, "leases", "elsewhere")
        fenced = {**JSON, **lease.fence(1)}
        messages = json.dumps({"messages": ["during"]}).encode()
        for path, body in (
            ("/ops", operation("insert", "during", type_)),
            (f"{topic.path}/publish", messages),
        ):
            require_not_confirmed(target.post(body, fenced, path))
        for reply in (
            lease.request("POST", {"holder": "a", "ttl_ms": 1000, "refresh": True}),
            lease.releasing("a", 1),
        ):
            assert (reply.status, reply.header("Retry-After")) == (503, "5")
            assert "not confirmed; a repeated request continues" in reply.problem()
        assert lease.request("GET").status == 503
        topic.store("plain")
        target.store(operation("insert", "plain", type_))
        rename(tmp_path, "elsewhere", "leases")
        assert lease.poll("a", refresh=True)["term"] == 2
        assert target.post(operation("insert", "after", type_), fenced).status == 412
        assert topic.payloads() == ["plain"]
        status = agent.wait_status(status="OK", queue_size=0)
        counts = [status[f"events_{name}"] for name in ("ingested", "discarded", "stale")]
        assert counts == [1, 1, 1]
        assert status["store"]["ops"] == 1


def rename(folder: Path, old: str, new: str) -> None:
    """Rename a table of the agent's store."""
    with closing(sqlite3.connect(folder / "oplog.db", timeout=DEADLINE)) as db:
        db.execute(f"ALTER TABLE {old} RENAME TO {new}")


def require_not_confirmed(reply: Reply) -> None:
    assert (reply.status, reply.header("Retry-After")) == (503, "5")
    assert "not confirmed, it may still be stored" in reply.problem()


@on_one_store  # the store is not asked
def test_an_agent_that_stops_changes_no_lease(store_kind: StoreKind, tmp_path: Path) -> None:
    with store_kind.held_agent(tmp_path) as (agent, hold):
        lease = LeaseClient(Target.of(agent))
        lease.poll("a")
        with hold():
            agent.send_udp(operation("insert", "a", "thing"))
            agent.wait_status(events_received=1)
            agent.process.send_signal(signal.SIGTERM)
            agent.wait_log("stopping")
            for method in ("POST", "DELETE"):
                reply = lease.request(method, {})
                assert (reply.status, reply.header("Retry-After")) == (503, "1")
                assert "stopping" in reply.problem()
            assert lease.shown()["holder"] == "a"
        assert agent.wait() == 0


def test_a_stop_stores_the_fenced_operations_that_wait_and_sends_them_to_consumers(
    tmp_path: Path,
) -> None:
    type_ = fresh_type()
    with Agent(tmp_path) as agent, ThreadPoolExecutor() as threads:
        target = Target.of(agent)
        lease = LeaseClient(target)
        lease.poll("a")
        with target.follow(types=type_) as stream:
            with write_lock(tmp_path):
                operations = [operation("insert", each, type_) for each in "ab"]
                waiting = threads.submit(target.post, operations, {**JSON, **lease.fence(1)})
                agent.wait_status(queue_size=2)
                agent.process.send_signal(signal.SIGTERM)
                agent.wait_log("stopping: storing 2 queued operations")
                assert target.request("GET", "/live").status == 200
            assert waiting.result().json == {"ingested": 2}
            assert len(stream.rest()) == 2
        assert agent.wait() == 0


def test_terms_survive_a_kill(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        lease = LeaseClient(Target.of(agent))
        lease.poll("a", note="kept")
        lease.poll("a", refresh=True)
        agent.stop(signal.SIGKILL)
    with Agent(tmp_path) as agent:
        lease = LeaseClient(Target.of(agent), lease.name)
        shown = lease.shown()
        assert (shown["holder"], shown["term"], shown["note"]) == ("a", 2, "kept")
        assert lease.release("a", 2)["term"] == 2
        assert lease.poll("b")["term"] == 3

"""Agents with flags that concern transactions: limits, passwords; stores away or broken."""

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.contract.wire.store_kinds import EACH_DRIVER, StoreKind, kinds_of_store, on_one_store
from tests.contract.wire.topics.topics import TopicClient
from tests.contract.wire.transactions import TXNS, TransactionClient, post, record
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.contract.passwords import READER, WRITER, basic
from tests.kits.contract.wire import JSON, Target, operation, wait_until

store_kind = kinds_of_store(EACH_DRIVER)

WRITES = ("", "/{}/records", "/{}/commit", "/{}/abort")


@pytest.fixture(scope="module")
def small(store_kind: StoreKind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    limits = ("--txn-max-records", "3", "--txn-max-bytes", "1KB", "--max-body-size", "4KB")
    with store_kind.agent(tmp_path_factory.mktemp("agent"), *limits) as agent:
        yield Target.of(agent)


def test_a_transaction_has_at_most_the_records_of_the_flag(small: Target) -> None:
    topic, txn = TopicClient(small).create(), TransactionClient(small)
    for lsns in ([3], [0, 1, 2, 3], [10**30]):
        reply = txn.records(*(record(topic, lsn) for lsn in lsns))
        assert reply.status == 413
        assert "3 records (--txn-max-records)" in reply.problem()
    assert txn.shown()["records"] == 0
    txn.write(*(record(topic, lsn) for lsn in range(3)))
    assert len(txn.commit(3)["records"]) == 3


def test_a_transaction_has_at_most_the_bytes_of_the_flag(small: Target) -> None:
    topic, txn = TopicClient(small).create(), TransactionClient(small)
    half = "x" * 500
    txn.write(record(topic, 0, half))
    reply = txn.records(record(topic, 1), record(topic, 2, half))
    assert reply.status == 413
    assert "1,024 bytes (--txn-max-bytes)" in reply.problem()
    txn.write(record(topic, 0, half), record(topic, 1))
    assert len(txn.commit(2)["records"]) == 2


@on_one_store
def test_a_body_over_the_limit_is_too_large(small: Target) -> None:
    topic, txn = TopicClient(small).create(), TransactionClient(small)
    reply = txn.records(record(topic, 0, "x" * 5000))
    assert reply.status == 413
    assert "fewer records" in reply.problem()


@on_one_store
def test_each_request_needs_its_password(guarded: Target) -> None:
    topic = TopicClient(guarded, headers=basic(WRITER)).create()
    txn = TransactionClient(guarded, basic(WRITER))
    for password in (basic(READER), {}):
        for path in WRITES:
            reply = post(guarded, path.format(txn.id), {}, {**JSON, **password})
            assert (reply.status, "password" in reply.problem()) == (401, True), path
    txn.write(record(topic, 0))
    txn.commit(1)
    for path in (txn.path, TXNS):
        for headers in (basic(WRITER), {}):
            assert guarded.request("GET", path, None, headers).status == 401
        assert guarded.request("GET", path, None, basic(READER)).status == 200


@on_one_store
@pytest.mark.parametrize("path", WRITES)
def test_a_page_under_an_unknown_name_writes_no_transaction(small: Target, path: str) -> None:
    txn = TransactionClient(small)
    raw = (
        f"POST {TXNS}{path.format(txn.id)} HTTP/1.1\r\nHost: evil.example\r\n"
        "Origin: http://evil.example\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n"
    )
    reply = small.exchange(raw.encode(), "POST")
    assert reply.status == 403
    assert "web page" in reply.problem()
    assert txn.shown()["state"] == "open"


# It lasts as long as the store may take. Records are stored in the same way beside a capped log.
def test_records_that_the_store_does_not_confirm_can_be_sent_again(
    store_kind: StoreKind, tmp_path: Path
) -> None:
    with store_kind.held_agent(tmp_path) as (agent, hold):
        target = Target.of(agent)
        topic, txn = TopicClient(target).create(), TransactionClient(target)
        txn.write(record(topic, 0, "before"))
        during = record(topic, 1, "during")
        with hold():
            reply = txn.records(during)
            assert (reply.status, reply.header("Retry-After")) == (503, "5")
            assert "not confirmed; a repeated request continues" in reply.problem()
        assert txn.write(during)["records"] == 2
        assert len(txn.commit(2)["records"]) == 2


@on_one_store  # the store is not asked
def test_an_agent_that_stops_takes_no_transaction_and_changes_no_topic(
    store_kind: StoreKind, tmp_path: Path
) -> None:
    with store_kind.held_agent(tmp_path) as (agent, hold):
        target = Target.of(agent)
        txn = TransactionClient(target)
        with hold():
            agent.send_udp(operation("insert", "a", "thing"))
            agent.wait_status(events_received=1)
            agent.process.send_signal(signal.SIGTERM)
            agent.wait_log("stopping")
            for path in WRITES:
                reply = post(target, path.format(txn.id), {})
                assert (reply.status, reply.header("Retry-After")) == (503, "1"), path
                assert "stopping" in reply.problem()
            for method, path in (("PUT", ""), ("PUT", "/properties"), ("DELETE", "")):
                reply = target.request(method, f"/v1/namespaces/n/topics/t{path}")
                assert (reply.status, reply.header("Retry-After")) == (503, "1"), method
                assert "stopping" in reply.problem()
            assert txn.shown()["state"] == "open"
        assert agent.wait() == 0


def test_transactions_survive_a_kill(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        target = Target.of(agent)
        topic = TopicClient(target).create()
        left, committed = TransactionClient(target), TransactionClient(target)
        left.write(record(topic, 0))
        committed.write(record(topic, 0))
        done = committed.commit(1)
        agent.stop(signal.SIGKILL)
    with Agent(tmp_path) as agent:
        target = Target.of(agent)
        assert post(target, f"/{committed.id}/commit", {"records": 1}).json == done
        assert len(post(target, f"/{left.id}/commit", {"records": 1}).json["records"]) == 1


def test_the_keeper_aborts_what_nobody_asks_for(store_kind: StoreKind, tmp_path: Path) -> None:
    with store_kind.agent(tmp_path) as agent:
        target = Target.of(agent)
        committed, aborted = TransactionClient(target), TransactionClient(target)
        committed.commit(0)
        aborted.abort()
        TransactionClient(target)
        before = figures(target)
        assert before.pop("oldest_open_seconds") > 0
        assert before == {"open": 1, "committed": 1, "aborted": 1, "timed_out": 0}
        TransactionClient(target, timeout_ms=1)
        assert wait_until(lambda: figures(target)["timed_out"] == 1)
        assert figures(target)["open"] == 1
        metrics = target.request("GET", "/metrics").body.decode()
    for line in ("open 1.0", "committed_total 1.0", "aborted_total 1.0", "timed_out_total 1.0"):
        assert f"\noplog_transactions_{line}\n" in metrics
    assert "\noplog_transactions_oldest_open_seconds " in metrics


def test_an_agent_without_transactions_has_none_to_show(
    store_kind: StoreKind, tmp_path: Path
) -> None:
    with store_kind.agent(tmp_path) as agent:
        target = Target.of(agent)
        assert target.request("GET", TXNS).json == []
        assert figures(target) == {
            "open": 0,
            "oldest_open_seconds": 0,
            "committed": 0,
            "aborted": 0,
            "timed_out": 0,
        }
        names = [
            each["name"]
            for each in target.request("GET", TopicClient(target, "system/x").topics).json
        ]
        assert names == ["oplog"]


def test_topics_and_probes_work_while_transactions_are_broken(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        target = Target.of(agent)
        topic = TopicClient(target).create()
        with closing(sqlite3.connect(tmp_path / "oplog.db", timeout=DEADLINE)) as db:
            db.execute("ALTER TABLE txns RENAME TO elsewhere")
            db.commit()
        agent.wait_log("cannot look after transactions")
        assert post(target, "", {}).status == 503
        topic.store("a")
        assert topic.payloads() == ["a"]
        target.store(operation("insert", "a", "thing"))
        assert target.request("GET", "/ready").status == 200
        assert target.request("GET", "/metrics").status == 200
        status = target.status()
        assert status["status"] == "OK"
        assert status["transactions"]["open"] is None
        assert agent.stop() == 0


def figures(target: Target) -> dict[str, Any]:
    found: dict[str, Any] = target.status()["transactions"]
    return found

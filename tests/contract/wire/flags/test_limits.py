"""Agents with small limits. The status of a refusal says whether trying again helps."""

import gzip
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.contract.wire.store_kinds import (
    EACH_DRIVER,
    StoreKind,
    Workers,
    kinds_of_store,
    on_each_queue,
)
from tests.contract.wire.topics.topics import TopicClient
from tests.kits.agents.agent import DEADLINE
from tests.kits.clock.moved import MovedClock
from tests.kits.contract.wire import (
    JSON,
    NDJSON,
    SSE,
    Reply,
    Target,
    id_of,
    operation,
    said,
    wait_until,
)

store_kind = kinds_of_store(EACH_DRIVER)

HOUR = 3_600

BODY = 200 * 1024
QUEUED = 10


@pytest.fixture(scope="module")
def small(store_kind: StoreKind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    flags = (
        *(
            "--max-body-size",
            str(BODY),
            "--max-queued-events",
            str(QUEUED),
            "--max-queued-bytes",
            "64KB",
        ),
        *("--max-clients", "2"),
    )
    with store_kind.agent(tmp_path_factory.mktemp("agent"), *flags) as agent:
        yield Target.of(agent)


@pytest.fixture(scope="module")
def queue(store_kind: StoreKind) -> str:
    """The name of the queue in messages to users."""
    return "the queue of a worker" if isinstance(store_kind, Workers) else "the queue"


def lines(count: int) -> bytes:
    return b"".join(
        json.dumps(operation("insert", str(n), "thing")).encode() + b"\n" for n in range(count)
    )


def test_a_body_of_the_limit_is_taken(small: Target) -> None:
    reply = small.post(lines(1).ljust(BODY, b" "), NDJSON)
    assert (reply.status, reply.json) == (200, {"ingested": 1})


HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"


def test_a_body_over_the_limit_is_refused_before_it_is_sent(small: Target) -> None:
    reply = small.exchange(HEAD + b"Content-Length: %d\r\n\r\n" % (BODY + 1))
    assert reply.status == 413
    assert f"{BODY:,}" in reply.problem()


@pytest.mark.parametrize("chunk", [100, BODY + 1])
def test_a_body_in_chunks_over_the_limit_is_refused(small: Target, chunk: int) -> None:
    head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    body = b" " * (BODY + 1)
    pieces = [body[start : start + chunk] for start in range(0, len(body), chunk)]
    reply = small.exchange(
        head + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    )
    assert reply.status == 413
    assert f"{BODY:,}" in reply.problem()


@pytest.mark.parametrize("parts", [1, 50])
def test_a_body_over_the_limit_once_decompressed_is_refused(small: Target, parts: int) -> None:
    body = b"".join(gzip.compress(b" " * (100 * BODY // parts)) for _ in range(parts))
    assert len(body) < BODY
    reply = small.post(body, {**JSON, "Content-Encoding": "gzip"})
    assert reply.status == 413
    assert f"{BODY:,}" in reply.problem()


@pytest.mark.parametrize("form", ["ndjson", "array"])
def test_more_operations_than_the_queue_can_hold_are_refused_with_413(
    small: Target, queue: str, form: str
) -> None:
    before = small.status()
    for count, status in ((QUEUED, 200), (QUEUED + 1, 413)):
        body = lines(count)
        if form == "array":
            body = b"[" + body.strip().replace(b"\n", b",") + b"]"
        reply = small.post(body, NDJSON if form == "ndjson" else JSON)
        assert reply.status == status
    assert f"are more than {queue} holds ({QUEUED}; see --max-queued-events)" in reply.problem()
    assert reply.header("Retry-After") is None
    after = small.status()
    grown = {
        name: after[name] - before[name]
        for name in ("events_received", "events_ingested", "events_discarded")
    }
    assert grown == {
        "events_received": 2 * QUEUED + 1,
        "events_ingested": QUEUED,
        "events_discarded": QUEUED + 1,
    }


@pytest.mark.parametrize("name", ["system/oplog", "ns/topic"])
def test_more_messages_than_the_queue_can_hold_are_refused_with_413(
    small: Target, queue: str, name: str
) -> None:
    messages = [operation("insert", str(n), "thing") for n in range(QUEUED + 1)]
    if name != "system/oplog":
        messages = [{"payload": json.dumps(each)} for each in messages]
    reply = TopicClient(small, name).publish(*messages)
    assert reply.status == 413
    assert f"the messages are more than {queue} holds ({QUEUED}; see" in reply.problem()


def test_more_bytes_than_the_queue_can_hold_are_refused_with_413(small: Target, queue: str) -> None:
    reply = small.post([operation("insert", str(n), "thing", "p" * 30_000) for n in range(3)])
    assert reply.status == 413
    assert f"the 3 operations are more than {queue} holds (10 operations, " in reply.problem()
    assert reply.header("Retry-After") is None


def test_a_consumer_too_many_is_told_to_come_later(small: Target) -> None:
    with small.follow() as first, small.follow() as second:
        reply = small.request("GET", "/ops", headers=SSE)
        assert reply.status == 503
        assert int(reply.header("Retry-After") or 0) > 0
        assert "2 consumers" in reply.problem()
        small.store(operation("insert", "a", "thing"))
        assert said(first.block()) == said(second.block()) == ("insert", "a")
    assert wait_until(lambda: small.status()["clients"] == 0)
    with small.follow(), small.follow():
        assert small.status()["clients"] == 2


def test_a_stream_ends_properly_at_its_age_and_goes_on_at_its_last_id(
    store_kind: StoreKind, tmp_path: Path
) -> None:
    clock = MovedClock(tmp_path)
    with store_kind.agent(tmp_path, "--max-connection-age", "1h", clock=clock) as agent:
        target = Target.of(agent)
        with target.follow("0") as stream:
            assert [said(block) for block in stream.take(2)] == [("reset", ""), ("live", "")]
            target.store(operation("insert", "a", "thing"))
            first = stream.block()
            clock.move(2 * HOUR)
            assert stream.rest() == []
        assert agent.wait_status(clients=0)["status"] == "OK"
        target.store(operation("insert", "b", "thing"))
        with target.follow(id_of(first)) as stream:
            assert said(stream.block()) == ("insert", "b")
            clock.move(2 * HOUR)
            assert stream.rest() == []


@on_each_queue
def test_a_full_queue_and_a_store_that_is_away_ask_to_try_again(
    store_kind: StoreKind, tmp_path: Path
) -> None:
    """The queue holds 3 operations: one being written, one of a waiting request, one by UDP."""
    with store_kind.held_agent(tmp_path, "--max-queued-events", "3") as (agent, hold):
        target = Target.of(agent)
        waited: list[Reply] = []
        with hold():
            agent.send_udp(operation("insert", "written", "thing"))
            agent.wait_status(queue_size=1)
            post = threading.Thread(
                target=lambda: waited.append(target.post(operation("insert", "waits", "thing")))
            )
            post.start()
            agent.wait_status(queue_size=2)
            agent.send_udp(operation("insert", "queued", "thing"))
            agent.wait_status(queue_size=3)
            agent.send_udp(operation("insert", "dropped", "thing"))
            agent.wait_status(events_discarded=1)
            full = target.post(operation("insert", "refused", "thing"))
            assert full.status == 503
            assert int(full.header("Retry-After") or 0) > 0
            assert "full" in full.problem()

            post.join(DEADLINE)
            away = target.post(operation("insert", "refused", "thing"))
            for reply in (*waited, away):
                assert reply.status == 503
                assert int(reply.header("Retry-After") or 0) > 0
                assert "store" in reply.problem()
            assert len(waited) == 1
            status = target.request("GET", "/status")
            assert (status.status, status.json["status"]) == (503, "DEGRADED")
            assert status.json["queue_size"] == 2
            assert target.request("GET", "/ready").status == 503
            assert target.request("GET", "/live").status == 200
            metrics = target.request("GET", "/metrics").body.decode()
            (up,) = [
                family
                for family in text_string_to_metric_families(metrics)
                if family.name == "oplog_store_up"
            ]
            assert up.samples[0].value == 0
        agent.wait_status(status="OK", queue_size=0)
        counts = agent.status()
        assert (
            counts["events_received"],
            counts["events_ingested"],
            counts["events_discarded"],
        ) == (6, 2, 4)
        assert set(agent.replicate()) == {"thing/written", "thing/queued"}

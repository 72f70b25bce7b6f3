"""Producers against a real agent and against a scripted server."""

import asyncio
import threading
from pathlib import Path

import pytest

from oplogc import AsyncProducer, BufferFullError, FlushError, OperationError, Overflow, Producer
from tests.kits.agents.agent import Agent
from tests.kits.clients.restart import agent_on
from tests.kits.contract.wire import wait_until
from tests.kits.proxies.chaos import ChaosProxy
from tests.kits.servers.ports import free_port
from tests.kits.servers.scripted import ScriptedServer, answer

FAST = (0.01, 0.05)
OK = answer("200 OK", "%COUNT%")
FULL = answer("503 Service Unavailable", '{"detail":"the queue is full"}', "Retry-After: 0")


def test_udp_from_many_threads_is_counted_exactly(tmp_path: Path) -> None:
    with (
        Agent(tmp_path) as agent,
        agent.follow() as stream,
        Producer(f"udp://127.0.0.1:{agent.udp_port}") as producer,
    ):

        def send(name: int) -> None:
            for number in range(250):
                producer.send("insert", "video", f"{name}-{number}", parents=["user/1"])

        threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
        assert {event.key for event in stream.take(1000)} == {
            f"video/{a}-{b}" for a in range(4) for b in range(250)
        }
        counters = producer.counters
        assert (counters.sent, counters.delivered, counters.dropped) == (1000, 1000, 0)


def test_udp_goes_on_when_the_agent_comes_back(tmp_path: Path) -> None:
    port = free_port()
    with Producer(f"udp://127.0.0.1:{port}") as producer:
        for _ in range(3):  # no receiver: no error now or later
            producer.send("insert", "video", "lost")
        with agent_on(port, tmp_path) as agent, agent.follow() as stream:
            producer.send("insert", "video", "first")
            assert stream.take(1)[0].key == "video/first"


async def test_async_udp_goes_on_when_the_agent_comes_back(tmp_path: Path) -> None:
    port = free_port()
    async with AsyncProducer(f"udp://127.0.0.1:{port}") as producer:
        for _ in range(3):
            await producer.send("insert", "video", "lost")
        with agent_on(port, tmp_path) as agent, agent.follow() as stream:
            await producer.send("insert", "video", "first", timestamp="2014-11-06T11:04:39+01:00")
            await producer.flush()
            event = await asyncio.to_thread(stream.take, 1)
            assert (event[0].key, event[0].operation["timestamp"]) == (
                "video/first",
                "2014-11-06T10:04:39.000Z",
            )
        assert producer.counters.delivered == producer.counters.sent == 4


def test_http_delivers_in_order_and_flush_means_durable(tmp_path: Path) -> None:
    with Agent(tmp_path, "--ingest-password", "sécret") as agent, agent.follow() as stream:
        with Producer(agent.url, password="sécret", batch_size=70) as producer:
            for number in range(1000):
                producer.send("insert", "video", str(number))
            producer.flush()
            assert agent.status()["events_ingested"] == 1000
            counters = producer.counters
            assert (counters.sent, counters.delivered, counters.buffered) == (1000, 1000, 0)
        assert [event.operation["id"] for event in stream.take(1000)] == [
            str(number) for number in range(1000)
        ]


async def test_async_http_delivers_in_order_and_flush_means_durable(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent, agent.follow() as stream:
        async with AsyncProducer(agent.url, batch_size=70, max_buffered=100) as producer:
            for number in range(1000):
                await producer.send("insert", "video", str(number))
            await producer.flush()
            assert producer.counters.delivered == 1000
        events = await asyncio.to_thread(stream.take, 1000)
        assert [event.operation["id"] for event in events] == [
            str(number) for number in range(1000)
        ]


def test_http_survives_a_restart_of_the_agent(tmp_path: Path) -> None:
    port = free_port()
    with Producer(f"http://127.0.0.1:{port}", backoff=FAST, batch_size=10) as producer:
        with agent_on(port, tmp_path):
            for number in range(100):
                producer.send("insert", "video", str(number))
            producer.flush()
            for number in range(100, 200):
                producer.send("insert", "video", str(number))
            # leaving the block kills the agent while these are on their way
        producer.send("insert", "video", "200")
        with pytest.raises(FlushError):
            producer.flush(0)
        with agent_on(port, tmp_path) as agent:
            producer.flush()
            assert set(agent.replicate()) == {f"video/{number}" for number in range(201)}
            assert producer.counters.delivered == 201


async def test_async_http_survives_a_restart_of_the_agent(tmp_path: Path) -> None:
    port = free_port()
    async with AsyncProducer(f"http://127.0.0.1:{port}", backoff=FAST) as producer:
        for number in range(100):
            await producer.send("insert", "video", str(number))
        with pytest.raises(FlushError, match="100 operations are not delivered"):
            await producer.flush(0.05)
        with agent_on(port, tmp_path) as agent:
            await producer.flush()
            assert agent.status()["events_ingested"] == 100


def test_a_503_is_heeded_and_the_same_batch_repeated() -> None:
    later = answer("503 Service Unavailable", '{"detail":"the queue is full"}', "Retry-After: 1")
    with (
        ScriptedServer([later, None, FULL, OK]) as server,
        Producer(server.url, backoff=FAST) as producer,
    ):
        producer.send("insert", "video", "a")
        producer.flush()
        assert server.bodies == [b'{"event":"insert","type":"video","id":"a"}'] * 4
        assert (producer.counters.delivered, producer.counters.retried) == (1, 3)


def test_a_wrong_password_ends_a_flush_at_once_and_loses_nothing(tmp_path: Path) -> None:
    with Agent(tmp_path, "--ingest-password", "right") as agent:
        producer = Producer(agent.url, password="wrong")
        producer.send("insert", "video", "a")
        with pytest.raises(FlushError, match="password") as raised:
            producer.flush(None)
        assert raised.value.pending == producer.counters.buffered == 1
        with pytest.raises(FlushError):
            producer.close()


def test_what_the_agent_calls_invalid_is_counted_and_the_rest_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "oplogc.wire.operation.check_rfc3339", lambda text: None
    )  # as a client older than its agent
    with Agent(tmp_path) as agent, Producer(agent.url) as producer:
        producer.send("insert", "video", "a", timestamp="yesterday")
        producer.send("insert", "video", "b")
        producer.flush()
        assert (producer.counters.delivered, producer.counters.rejected) == (1, 1)
        assert set(agent.replicate()) == {"video/b"}
    assert "timestamp: not an RFC 3339 time" in caplog.text


@pytest.mark.parametrize(
    ("overflow", "kept"),
    [("raise", "012"), ("drop_new", "012"), ("drop_old", "078"), ("block", "012")],
)
def test_overflow_policies(overflow: Overflow, kept: str) -> None:
    with ScriptedServer([None]) as server:
        producer = Producer(
            server.url,
            max_buffered=3,
            batch_size=1,
            overflow=overflow,
            block_timeout=0.01,
            backoff=FAST,
        )
        refused = 0
        producer.send("insert", "video", "0")
        assert wait_until(lambda: producer.counters.retried > 0)  # the first batch is in flight
        for number in range(1, 9):
            try:
                producer.send("insert", "video", str(number))
            except BufferFullError:
                refused += 1
        counters = producer.counters
        assert (counters.sent, counters.dropped, counters.buffered) == (9, 6, 3)
        assert refused == (6 if overflow in ("raise", "block") else 0)
        server.answer_with(OK)
        producer.close()
        assert server.accepted == [
            b'{"event":"insert","type":"video","id":"%s"}' % number.encode() for number in kept
        ]


def test_a_blocked_sender_goes_on_when_there_is_room() -> None:
    with (
        ScriptedServer([FULL, FULL, OK]) as server,
        Producer(server.url, max_buffered=1, batch_size=1, backoff=FAST) as producer,
    ):
        for number in range(20):
            producer.send("insert", "video", str(number))
        producer.flush()
        assert producer.counters.delivered == 20


async def test_a_blocked_async_sender_goes_on_when_there_is_room() -> None:
    with ScriptedServer([FULL, FULL, OK]) as server:
        async with AsyncProducer(
            server.url, max_buffered=1, batch_size=1, backoff=FAST
        ) as producer:
            for number in range(20):
                await producer.send("insert", "video", str(number))
            await producer.flush()
            assert producer.counters.delivered == 20


def test_lost_answers_may_repeat_operations_but_lose_none(tmp_path: Path) -> None:
    with (
        Agent(tmp_path) as agent,
        ChaosProxy(agent.port, seed=1, most_bytes=600) as proxy,
        Producer(proxy.url, backoff=FAST, batch_size=50) as producer,
        agent.follow() as stream,
    ):
        for number in range(2000):
            producer.send("insert", "video", str(number))
        producer.flush()
        assert proxy.cuts > 5
        assert producer.counters.delivered == 2000
        stored = agent.status()["events_ingested"]
        assert {event.operation["id"] for event in stream.take(stored)} == {
            str(number) for number in range(2000)
        }


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8042",
        "ftp://host",
        "http://",
        "udp://",
        "udp://host:port",
        "udp://host:99999",
        "http://foo..bar",
        "http://host:99999",
        "http://host:0",
        "udp://foo..bar",
        f"http://{'x' * 64}.com",
        "http://[",
        "udp://[",
        "",
    ],
)
def test_an_address_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"address|host"):
        Producer(url)


async def test_an_unknown_host_is_named() -> None:
    with pytest.raises(OSError, match=r"the host 'no-such-host\.invalid' is not known"):
        Producer("udp://no-such-host.invalid")
    with pytest.raises(OSError, match=r"the host 'no-such-host\.invalid' is not known"):
        async with AsyncProducer("udp://no-such-host.invalid"):
            pass


def test_a_closed_producer_says_so(tmp_path: Path) -> None:
    for url in ("udp://127.0.0.1:9", "http://127.0.0.1:9"):
        producer = Producer(url)
        producer.close()
        with pytest.raises(ValueError, match="closed"):
            producer.send("insert", "video", "a")


def test_an_operation_too_large_for_a_datagram_is_refused() -> None:
    parents = ["p" * 1000] * 65 + ["q" * 270]
    with Producer("udp://127.0.0.1:9") as producer, pytest.raises(OperationError):
        producer.send("insert", "video", "a", parents=parents)

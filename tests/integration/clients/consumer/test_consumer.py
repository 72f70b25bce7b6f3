"""The consumer against a real agent, in all its ways of use."""

import ast
import asyncio
import math
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from oplogc import (
    Consumer,
    Live,
    Operation,
    ProtocolError,
    RefusedError,
    Reset,
    StateFileError,
)
from oplogc.topics import TopicConsumer
from tests.integration.clients.copies import FAST, ids, operations, take
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clients.restart import agent_on
from tests.kits.servers.ports import free_port
from tests.kits.servers.scripted import ScriptedServer, answer
from tests.kits.servers.server import Server


async def test_a_copy_then_what_happens(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        agent.post(operations(2000))
        agent.post({"event": "delete", "type": "video", "id": "0"})
        async with Consumer(agent.url, start="0") as consumer:
            reset, *copy, live = await take(consumer, 2001)
            assert isinstance(reset, Reset)
            assert isinstance(live, Live)
            assert sorted(map(int, ids(copy))) == list(range(1, 2000))
            assert consumer.position == live.event_id
            agent.post(
                {
                    "event": "update",
                    "type": "video",
                    "id": "7",
                    "timestamp": "2014-11-06T11:04:39.041Z",
                }
            )
            (update,) = await take(consumer, 1)
            assert isinstance(update, Operation)
            assert (update.event, update.key, update.parents) == ("update", "video/7", ())
            assert update.timestamp == datetime(2014, 11, 6, 11, 4, 39, 41000, UTC)


async def test_filters_password_and_ref(tmp_path: Path) -> None:
    flags = ("--password", "geheim", "--object-url", "http://api/{{type}}/{{id}}")
    with Agent(tmp_path, *flags) as agent:
        agent.post(operations(6))
        agent.post(operations(6, "user"))
        agent.post({"event": "insert", "type": "video", "id": "x", "parents": ["a,b"]})
        async with Consumer(
            agent.url, types=["Video"], parents=["user/1"], start="0", password="geheim"
        ) as consumer:
            events = await take(consumer, 4)
            assert ids(events) == ["1", "4"]
            assert [event.ref for event in events if isinstance(event, Operation)] == [
                "http://api/video/1",
                "http://api/video/4",
            ]
        async with Consumer(agent.url, parents=["a,b"], start="0", password="geheim") as consumer:
            assert ids(await take(consumer, 3)) == ["x"]
        async with Consumer(
            agent.url, ids=["x", "2"], events=["update", "delete"], start="0", password="geheim"
        ) as consumer:
            assert ids(await take(consumer, 5)) == ["2", "2", "x"]
        async with Consumer(agent.url, password="wrong") as consumer:
            with pytest.raises(RefusedError, match="password") as raised:
                await anext(consumer)
            assert raised.value.status == 401


async def test_a_start_in_time_brings_what_changed_since(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        agent.post(operations(3))
        async with Consumer(
            agent.url, start=datetime.now(UTC) - timedelta(milliseconds=1)
        ) as consumer:
            agent.post(operations(1, first=9))
            events = await take(consumer, 2)
            while "9" not in ids(events):
                events += await take(consumer, 1)


async def test_the_agent_restarts_in_the_middle(tmp_path: Path) -> None:
    port = free_port()
    async with Consumer(f"http://127.0.0.1:{port}", start="0", backoff=FAST) as consumer:
        with agent_on(port, tmp_path) as agent:
            agent.post(operations(100))
            assert len(await take(consumer, 102)) == 102
            agent.post(operations(50, first=100))
            assert ids(await take(consumer, 20)) == [str(n) for n in range(100, 120)]
            assert await asyncio.to_thread(agent.stop) == 0
        with Agent(tmp_path) as elsewhere:  # these are there before it can come back
            elsewhere.post(operations(10, first=150))
        with agent_on(port, tmp_path):
            assert ids(await take(consumer, 40)) == [str(n) for n in range(120, 160)]
        with agent_on(port, tmp_path) as agent:  # killed, not stopped
            agent.post(operations(10, first=160))
            assert ids(await take(consumer, 10)) == [str(n) for n in range(160, 170)]


def test_blocking_use(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with Agent(tmp_path) as agent:
        agent.post(operations(5))
        with Consumer(agent.url, start="0", state_file=state) as consumer:
            got = []
            for event in consumer:
                got.append(event)
                consumer.ack(event)
                if len(got) == 3:
                    break
            assert ids(got) == ["0", "1"]
            for event in consumer:  # goes on where the first loop ended
                consumer.ack(event)
                if isinstance(event, Live):
                    consumer.stop()
        assert state.read_text() == event.event_id


def test_stop_ends_a_wait_from_another_thread(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent, Consumer(agent.url) as consumer:
        follower = threading.Thread(target=lambda: list(consumer))
        follower.start()
        agent.wait_status(clients=1)
        consumer.stop()
        follower.join(DEADLINE)
        assert not follower.is_alive()


def test_a_silent_connection_is_given_up(tmp_path: Path) -> None:
    connections = 0

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
            b"id: 5\nevent: live\ndata:\n\nid: 6"
        )
        await writer.drain()
        await reader.read()

    with (
        Server(silent) as server,
        Consumer(server.url, heartbeat_timeout=0.05, backoff=FAST) as consumer,
    ):
        for number, event in enumerate(consumer, 1):
            assert event == Live("5")
            assert connections >= number  # more where the first bytes came too late
            if number == 3:
                break


async def test_an_agent_that_asks_to_come_later_is_heeded() -> None:
    stream = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        b"id: 5\nevent: live\n\n"
    )
    later = answer("503 Service Unavailable", "", "Retry-After: 1")
    with ScriptedServer([later, None, stream]) as server:
        async with Consumer(server.url, backoff=FAST) as consumer:
            began = asyncio.get_running_loop().time()
            assert await take(consumer, 1) == [Live("5")]
            assert asyncio.get_running_loop().time() - began >= 1


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (answer("404 Not Found", '{"detail":"there is nothing"}'), RefusedError),
        (answer("200 OK", "{}"), ProtocolError),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
            b"id: x\nevent: live\n\n",
            ProtocolError,
        ),
    ],
)
async def test_what_is_no_agent_is_told_at_once(raw: bytes, error: type[Exception]) -> None:
    with ScriptedServer([raw]) as server:
        async with Consumer(server.url) as consumer:
            with pytest.raises(error):
                await anext(consumer)


async def test_a_proxy_is_used(tmp_path: Path) -> None:
    seen = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        seen.append(head.split(b"\r\n")[0])
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nid: 5\nevent: live\n\n"
        )
        await writer.drain()
        await reader.read()

    with Server(proxy) as server:
        async with Consumer("http://agent.example:8042/below", proxy=server.url) as consumer:
            assert await take(consumer, 1) == [Live("5")]
    assert seen == [b"GET http://agent.example:8042/below/ops?checkpoint=1 HTTP/1.1"]


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="list of names"):
        Consumer(types="video")
    with pytest.raises(ValueError, match="event id"):
        Consumer(start="yesterday")
    for number in (0, 1_415_271_879_041):
        with pytest.raises(ValueError, match=rf"^start: give text .* not {number}$"):
            Consumer(start=number)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=rf"^start: give text .* not {number}$"):
            TopicConsumer("http://localhost:8042", "t", start=number)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="address"):
        Consumer("localhost:8042")
    with pytest.raises(ValueError, match="backoff"):
        Consumer(backoff=(0, 1))
    with pytest.raises(ValueError, match="max_unacked"):
        Consumer(max_unacked=0)
    for interval in (-1, math.nan):
        with pytest.raises(ValueError, match="save_interval"):
            Consumer(save_interval=interval)
    (tmp_path / "state").write_text("what?")
    with pytest.raises(StateFileError):
        Consumer(state_file=tmp_path / "state")


def test_the_client_needs_nothing_of_the_server() -> None:
    code = (
        "import sys, oplogc, oplogc.tail.cli; "
        "print(sorted({m.split('.')[0] for m in sys.modules} - sys.stdlib_module_names))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    loaded = set(ast.literal_eval(shown))
    assert loaded >= {"oplogc", "httpx", "asyncudp"}
    assert loaded.isdisjoint(
        {"oplogd", "msgspec", "fastapi", "starlette", "uvicorn", "uvloop", "pymongo", "pydantic"}
    )

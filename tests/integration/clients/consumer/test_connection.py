"""A consumer keeps, gives up and repeats its connection."""

import asyncio
import time
from pathlib import Path

import pytest

from oplogc import Consumer, Live
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clients.streams import FAST, HEAD, Streams, keys, operation, take
from tests.kits.contract.wire import wait_until
from tests.kits.servers.ports import free_port
from tests.kits.servers.server import Server


async def test_a_time_out_of_the_caller_keeps_the_connection(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        async with Consumer(agent.url) as consumer:
            for _ in range(20):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(consumer), 0.02)
            while not consumer.connections:
                await asyncio.sleep(0.001)
            agent.wait_status(clients=1)
            agent.post({"event": "insert", "type": "video", "id": "a"})
            assert keys(await take(consumer, 1)) == ["video/a"]
            assert consumer.connections == 1


async def _give_up_once_connected(consumer: Consumer) -> None:
    """Wait for an event, and give up when the connection stands and its events have come."""
    waiting = asyncio.create_task(anext(consumer))
    async with asyncio.timeout(DEADLINE):
        while not consumer.connections and not waiting.done():
            await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()
    receiving = [task for task in asyncio.all_tasks() if task.get_name() == "oplogc-receive"]
    if receiving:  # otherwise its events have come already
        await asyncio.wait(receiving, timeout=DEADLINE)


async def test_a_refused_connection_asks_for_the_agent(caplog: pytest.LogCaptureFixture) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    async with Consumer(url, backoff=(1000, 1000)) as consumer:
        waiting = asyncio.create_task(anext(consumer))
        await asyncio.to_thread(wait_until, lambda: bool(caplog.records))
        waiting.cancel()
    (said,) = caplog.messages
    assert said.startswith(f"{url}/ops: connection refused: is oplogd running there?; trying again")


async def test_events_that_came_after_the_caller_gave_up_are_not_lost() -> None:
    with Streams(operation("a") + operation("b", number=1), operation("c", number=2)) as server:
        async with Consumer(server.url, backoff=FAST) as consumer:
            await _give_up_once_connected(consumer)
            assert keys(await take(consumer, 3)) == ["video/a", "video/b", "video/c"]


async def test_events_that_nobody_took_before_a_close_come_again() -> None:
    with Streams(operation("a"), operation("b", number=1)) as server:
        async with Consumer(server.url, backoff=FAST, start="5") as consumer:
            await _give_up_once_connected(consumer)
            await consumer.aclose()
            await take(consumer, 1)
        assert server.last_ids()[:2] == ["5", "5"]


async def test_checkpoints_alone_do_not_make_the_next_attempt_come_soon(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Streams(
        *[b"id: 5\n\n"] * 6, b"id: 6\nevent: live\n\n", b"id: 6\n\n", b"id: 7\nevent: live\n\n"
    ) as server:
        async with Consumer(server.url, backoff=(0.01, 100)) as consumer:
            await take(consumer, 1)
            waits = [
                float(record.getMessage().rpartition(" in ")[2].split()[0])
                for record in caplog.records
            ]
            assert len(waits) == 6
            assert waits[-1] >= 0.3  # 0.01 doubled five times
            caplog.clear()
            await take(consumer, 1)
            assert float(caplog.records[0].getMessage().rpartition(" in ")[2].split()[0]) <= 0.1
        assert server.last_ids() == ["5"] * 6 + ["6", "6"]


def test_a_handler_slower_than_the_heartbeats_keeps_the_connection() -> None:
    """With ``for``, and with ``async for`` beside work that holds up the event loop."""
    beats = Streams(
        [b"id: 5\nevent: live\n\n", *[b":\n"] * 100, operation("a"), operation("b", number=1)]
    )
    with beats as server, Consumer(server.url, heartbeat_timeout=1.0, backoff=FAST) as consumer:
        got = []
        for event in consumer:
            time.sleep(1.2)
            got.append(event)
            if len(got) == 3:
                break
        assert keys(got) == ["live", "video/a", "video/b"]
        assert consumer.connections == 1


async def test_work_that_holds_up_the_event_loop_keeps_the_connection(tmp_path: Path) -> None:
    with Agent(tmp_path, "--heartbeat", "100ms") as agent:
        async with Consumer(agent.url, heartbeat_timeout=2.0) as consumer:
            waiting = asyncio.create_task(anext(consumer))
            while not consumer.position:
                await asyncio.sleep(0.001)
            for _ in range(2):
                time.sleep(2.5)  # noqa: ASYNC251
                await asyncio.sleep(0)
            await asyncio.to_thread(agent.post, {"event": "insert", "type": "video", "id": "a"})
            assert keys([await asyncio.wait_for(waiting, DEADLINE)]) == ["video/a"]
            assert consumer.connections == 1


async def test_comments_keep_a_connection_alive() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"\r\n")
        for _ in range(25):
            await writer.drain()
            await asyncio.sleep(0.1)
            writer.write(b":\n")
        writer.write(b"id: 5\nevent: live\n\n")
        await reader.read()

    with Server(handle) as server:
        async with Consumer(server.url, heartbeat_timeout=2.0) as consumer:
            assert await take(consumer, 1) == [Live("5")]
            assert consumer.connections == 1

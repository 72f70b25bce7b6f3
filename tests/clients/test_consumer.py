"""The consumer against a real agent, in all its ways of use."""

import ast
import asyncio
import math
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from oplogc import (
    Consumer,
    Event,
    Live,
    Operation,
    ProtocolError,
    RefusedError,
    Reset,
    StateFileError,
)
from tests.agents import DEADLINE, Agent
from tests.clients.chaos import ScriptedAgent, Server, answer
from tests.clients.restart import agent_on, free_port

FAST = (0.01, 0.05)


def operations(count: int, type_: str = "video", first: int = 0) -> list[dict[str, object]]:
    return [
        {"event": "insert", "type": type_, "id": str(n), "parents": [f"user/{n % 3}"]}
        for n in range(first, first + count)
    ]


def ids(events: list[Event]) -> list[str]:
    return [event.id for event in events if isinstance(event, Operation)]


async def take(consumer: Consumer, count: int) -> list[Event]:
    async with asyncio.timeout(DEADLINE):
        return [await anext(consumer) for _ in range(count)]


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


async def test_a_position_is_kept_before_the_first_event(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with Agent(tmp_path) as agent:
        agent.post(operations(1))
        consumer = Consumer(agent.url, state_file=state)
        agent.post(operations(1, first=1))
        waiting = asyncio.create_task(anext(consumer))
        while not consumer.position:  # the agent tells it when the stream opens
            await asyncio.sleep(0.001)
        waiting.cancel()
        await asyncio.wait({waiting})
        await consumer.aclose()
        agent.post(operations(3, first=2))
        async with Consumer(agent.url, state_file=state) as consumer:
            assert ids(await take(consumer, 3)) == ["2", "3", "4"]


async def test_what_was_not_acknowledged_comes_again(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with Agent(tmp_path) as agent:
        agent.post(operations(10))
        async with Consumer(agent.url, start="0", state_file=state) as consumer:
            events = await take(consumer, 12)
            for event in reversed(events[1:]):
                consumer.ack(event)
        assert state.read_text() == "0"  # reset was not acknowledged: it must come again
        async with Consumer(agent.url, state_file=state) as consumer:
            events = await take(consumer, 12)
            assert isinstance(events[0], Reset)
            for event in events[:5]:
                consumer.ack(event)
                consumer.ack(event)
            consumer.ack(events[11])
        assert state.read_text() == events[4].event_id
        async with Consumer(agent.url, state_file=state) as consumer:
            again = await take(consumer, 7)
            while not isinstance(again[-1], Live):
                again += await take(consumer, 1)
            assert set(ids(events[5:])) <= set(ids(again))
            for event in again:
                consumer.ack(event)
        assert state.read_text() == again[-1].event_id
        agent.post(operations(1, first=10))
        async with Consumer(agent.url, state_file=state, start="0") as consumer:
            assert ids(await take(consumer, 1)) == ["10"]


async def test_waiting_for_acknowledgements_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Agent(tmp_path) as agent:
        agent.post(operations(10))
        async with Consumer(
            agent.url, start="0", state_file=tmp_path / "state", max_unacked=3
        ) as consumer:
            events = await take(consumer, 3)
            for event in events:
                waiting = asyncio.create_task(anext(consumer))
                await asyncio.wait({waiting}, timeout=0.02)
                consumer.ack(event)
                events.append(await asyncio.wait_for(waiting, DEADLINE))
                if len(events) == 10:
                    break
            assert [record.getMessage() for record in caplog.records] == [
                "3 events are not acknowledged: waiting"
            ]
            for event in events:  # and again in the next episode
                consumer.ack(event)
            await take(consumer, 2)
            waiting = asyncio.create_task(anext(consumer))
            await asyncio.wait({waiting}, timeout=0.02)
            consumer.stop()
            await asyncio.wait({waiting})
            assert isinstance(
                waiting.exception(), StopAsyncIteration | StopIteration | type(None) | RuntimeError
            )


async def test_iteration_waits_when_too_much_is_not_acknowledged(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        agent.post(operations(10))
        async with Consumer(
            agent.url, start="0", state_file=tmp_path / "state", max_unacked=3
        ) as consumer:
            events = await take(consumer, 3)
            waiting = asyncio.create_task(anext(consumer))
            await asyncio.wait({waiting}, timeout=0.05)
            assert not waiting.done()
            thread = threading.Thread(target=consumer.ack, args=(events[1],))
            thread.start()
            events.append(await asyncio.wait_for(waiting, DEADLINE))
            thread.join()
            assert ids(events) == ["0", "1", "2"]


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


def test_callbacks(tmp_path: Path) -> None:
    state = tmp_path / "state"
    got: list[str] = []
    with Agent(tmp_path) as agent:
        agent.post(operations(2))
        for type_ in ("user", "comment", "live", "reset"):
            agent.post(operations(1, type_))
        consumer = Consumer(agent.url, start="0", state_file=state)

        @consumer.on("Video", "user", "reset")
        def on_object(operation: Operation) -> None:
            got.append(operation.key)

        @consumer.on_reset
        async def on_reset(event: Reset) -> None:
            got.append("reset")

        @consumer.on_live
        def on_live(event: Live) -> None:
            got.append("live")
            consumer.stop()

        for register in (consumer.on("USER"), consumer.on_live, consumer.on_reset):
            with pytest.raises(ValueError, match="already"):
                register(on_object)
        consumer.run()
        assert got == ["reset", "video/0", "video/1", "user/0", "reset/0", "live"]
        assert len(state.read_text()) == 24


def test_the_old_names_of_the_two_events_never_take_an_operation(tmp_path: Path) -> None:
    got: list[str] = []
    with Agent(tmp_path) as agent:
        for type_ in ("live", "reset"):
            agent.post(operations(1, type_))
        consumer = Consumer(agent.url, start="0")

        @consumer.on()
        def on_others(operation: Operation) -> None:
            got.append(operation.key)

        @consumer.on("reset", "live")
        def on_event(event: Reset | Live) -> None:
            got.append(event.event)
            if event.event == "live":
                consumer.stop()

        with pytest.warns(DeprecationWarning, match="use on_") as warned:
            consumer.run()
        assert [str(warning.message) for warning in warned] == [
            f'on("{name}") for the event {name} is deprecated: use on_{name}'
            for name in ("reset", "live")
        ]
        assert got == ["reset", "live/0", "reset/0", "live"]


def test_an_operation_whose_callback_fails_comes_again(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with Agent(tmp_path) as agent:
        for operation in operations(3):
            agent.post(operation)
        for number in range(3):
            got = []
            consumer = Consumer(agent.url, start="0", state_file=state)

            @consumer.on()
            def on_any(operation: Operation) -> None:
                got.append(operation.id)  # noqa: B023
                if operation.id == str(number):  # noqa: B023
                    raise RuntimeError("no")

            with pytest.raises(RuntimeError):
                consumer.run()
            assert got[-1] == str(number)


def test_a_silent_connection_is_given_up(tmp_path: Path) -> None:
    connections = 0

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nid: 5\nevent: live\ndata:\n\nid: 6"
        )
        await writer.drain()
        await reader.read()

    with (
        Server(silent) as server,
        Consumer(server.url, heartbeat_timeout=0.05, backoff=FAST) as consumer,
    ):
        for number, event in enumerate(consumer, 1):
            assert event == Live("5")
            assert connections == number
            if number == 3:
                break


async def test_an_agent_that_asks_to_come_later_is_heeded() -> None:
    stream = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\nid: 5\nevent: live\n\n"
    later = answer("503 Service Unavailable", "", "Retry-After: 1")
    with ScriptedAgent([later, None, stream]) as server:
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
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\nid: x\nevent: live\n\n",
            ProtocolError,
        ),
    ],
)
async def test_what_is_no_agent_is_told_at_once(raw: bytes, error: type[Exception]) -> None:
    with ScriptedAgent([raw]) as server:
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


def test_ctrl_c_ends_a_blocking_loop_and_saves_the_position(tmp_path: Path) -> None:
    state = tmp_path / "state"
    code = f"""
from oplogc import Consumer
try:
    with Consumer(sys.argv[1], start="0", state_file={str(state)!r}, save_interval=60) as consumer:
        for event in consumer:
            consumer.ack(event)
            print(event.event, flush=True)
except KeyboardInterrupt:
    print("interrupted")
"""
    with Agent(tmp_path) as agent:
        agent.post(operations(1))
        command = [sys.executable, "-W", "error", "-c", f"import sys\n{code}", agent.url]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert [process.stdout.readline() for _ in range(3)] == [
                "reset\n",
                "insert\n",
                "live\n",
            ]
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=DEADLINE)
        assert (out, err, process.returncode) == ("interrupted\n", "", 0)
        with agent.follow(state.read_text()) as stream:
            agent.post(operations(1, first=1))
            assert stream.take(1)[0].key == "video/1"


def test_the_client_needs_nothing_of_the_server() -> None:
    code = "import sys, oplogc, oplogc.tail; print(sorted({m.split('.')[0] for m in sys.modules} - sys.stdlib_module_names))"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    loaded = set(ast.literal_eval(shown))
    assert loaded >= {"oplogc", "httpx", "asyncudp"}
    assert loaded.isdisjoint(
        {"oplogd", "msgspec", "fastapi", "starlette", "uvicorn", "uvloop", "pymongo", "pydantic"}
    )

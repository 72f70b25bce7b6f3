"""What a consumer makes of a stream's bytes, of answers that are none, and of connections that come to nothing."""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import count
from pathlib import Path

import pytest

from oplogc import Consumer, Event, Live, Operation, ProtocolError, RefusedError, Reset
from tests.agents import DEADLINE, Agent
from tests.clients.chaos import ScriptedAgent, Server, answer

FAST = (0.01, 0.05)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
IDS = [f"545b55c7f095528dd0f386{number:02x}" for number in range(10)]


def operation(id_: str, type_: str = "video", event: str = "insert", number: int = 0) -> bytes:
    data = (
        f'{{"timestamp":"2014-11-06T11:04:39.041Z","parents":["é"],"type":"{type_}","id":"{id_}"}}'
    )
    return f"id: {IDS[number]}\nevent: {event}\ndata: {data}\n\n".encode()


class Streams(Server):
    """Answers each request with the next of ``streams`` and ends the connection; the last one is held open.

    ``asked`` are the requests' heads.
    """

    def __init__(
        self, *streams: Sequence[bytes] | bytes, head: bytes = HEAD + b"Connection: close\r\n\r\n"
    ) -> None:
        super().__init__(self._answer)
        self._streams = [[stream] if isinstance(stream, bytes) else stream for stream in streams]
        self._head = head
        self.asked: list[str] = []

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
        last = len(self._streams) == 1
        pieces = self._streams[0] if last else self._streams.pop(0)
        writer.write(self._head)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        if last:
            await reader.read()
        writer.close()
        await writer.wait_closed()

    def last_ids(self) -> list[str]:
        names = [
            line.partition(": ")[2]
            for head in self.asked
            for line in head.split("\r\n")
            if "last-event" in line.lower()
        ]
        return names


async def take(consumer: Consumer, number: int) -> list[Event]:
    async with asyncio.timeout(DEADLINE):
        return [await anext(consumer) for _ in range(number)]


def keys(events: list[Event]) -> list[str]:
    return [event.key if isinstance(event, Operation) else event.event for event in events]


def chunked(piece: bytes) -> bytes:
    return b"%x;name=value\r\n%s\r\n" % (len(piece), piece)


async def test_a_block_cut_anywhere_in_two_chunks_is_one_event() -> None:
    block = operation("é")
    head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    for k in range(1, len(block)):
        with Streams([chunked(block[:k]), chunked(block[k:])], head=head) as server:
            async with Consumer(server.url) as consumer:
                assert keys(await take(consumer, 1)) == ["video/é"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
async def test_any_end_of_a_line_byte_by_byte_behind_a_byte_order_mark(end: bytes) -> None:
    raw = b"\xef\xbb\xbf" + b"".join(
        operation(name, number=number) for number, name in enumerate("ab")
    )
    raw = raw.replace(b"\n", end)
    with Streams([bytes([byte]) for byte in raw]) as server:
        async with Consumer(server.url) as consumer:
            assert keys(await take(consumer, 2)) == ["video/a", "video/b"]


async def test_fields_are_read_as_the_standard_says() -> None:
    data = b'data:{"timestamp":"2014-11-06T11:04:39.041Z",\ndata: "parents":[],"type":"video","id":"a"}\n\n'
    raw = (
        b": comment\nid:7\nevent:insert\nretry: 5\nnew\nother: x\n:\n"
        + data
        + b"id: 8\nevent: live\ndata\n\n"
    )
    with Streams(raw) as server:
        async with Consumer(server.url) as consumer:
            assert [(event.event, event.event_id) for event in await take(consumer, 2)] == [
                ("insert", "7"),
                ("live", "8"),
            ]


async def test_unknown_events_move_the_position_and_are_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unknown = b"event: of another age\ndata: ?\n\ndata: ?\n\nid: 6\nevent: new\n\nid: 7\ndata: ?\nretry: 1\n\nevent: new\n\n"
    with Streams(b"id: 5\nevent: live\n\n" + unknown, b"id: 9\nevent: live\n\n") as server:
        async with Consumer(server.url, backoff=FAST) as consumer:
            assert await take(consumer, 2) == [Live("5"), Live("9")]
        assert server.last_ids() == ["7"]
    assert [
        record.getMessage() for record in caplog.records if "does not know" in record.getMessage()
    ] == ["the stream has events that this client does not know, such as 'of another age'"]


async def test_an_event_without_an_id_has_the_last_one_received() -> None:
    without = operation("b").partition(b"\n")[2]
    with Streams(
        operation("a", number=3) + without + b"event: live\n\n", b"event: reset\n\n"
    ) as server:
        async with Consumer(server.url, backoff=FAST, start="5") as consumer:
            events = await take(consumer, 4)
            assert keys(events) == ["video/a", "video/b", "live", "reset"]
            assert {event.event_id for event in events} == {IDS[3]}
        assert server.last_ids() == ["5", IDS[3]]


@pytest.mark.parametrize(
    "bad",
    [
        b"id: x\nevent: live\n\n", b"id: 9\nevent: insert\ndata: {\n\n", b"id: 9\nevent: insert\ndata: {}\n\n",
        operation("b", number=2).replace(b'["\xc3\xa9"]', b'"e"'), b"id: 9\nevent: live\ndata: \xff\n\n",
        b"id: 9\nevent: insert\ndata: " + b"x" * 1_100_000 + b"\n\n", b"id: 9\ndata: " + b"x" * 1_100_000, b"id:\nevent: live\n\n",
        b"id: 9\nevent: insert\ndata: " + b"[" * 100_000 + b"\n\n",
    ],
)  # fmt: skip
async def test_a_broken_block_ends_a_consumer_behind_the_events_before_it(
    tmp_path: Path, bad: bytes
) -> None:
    state = tmp_path / "state"
    with Streams(operation("a", number=1) + bad + operation("c", number=3)) as server:
        async with Consumer(server.url, state_file=state) as consumer:
            (event,) = await take(consumer, 1)
            assert keys([event]) == ["video/a"]
            consumer.ack(event)
            with pytest.raises(ProtocolError):
                await take(consumer, 1)
    assert state.read_text() == IDS[1]


async def test_a_block_cut_off_by_the_end_is_no_event() -> None:
    with Streams(
        operation("a") + operation("b", number=1)[:-1], operation("c", number=2)
    ) as server:
        async with Consumer(server.url, backoff=FAST) as consumer:
            assert keys(await take(consumer, 2)) == ["video/a", "video/c"]
        assert server.last_ids() == [IDS[0]]


async def test_types_that_are_called_as_the_two_events_are_operations() -> None:
    with Streams(
        operation("a", "live") + operation("b", "reset") + b"id: 5\nevent: reset\n\n"
    ) as server:
        async with Consumer(server.url) as consumer:
            events = await take(consumer, 3)
    assert keys(events) == ["live/a", "reset/b", "reset"]
    assert [type(event) for event in events] == [Operation, Operation, Reset]


async def test_names_of_types_are_lower_case_in_the_filter() -> None:
    with Streams(b"id: 5\nevent: live\n\n") as server:
        async with Consumer(server.url, types=["Video", "ÉTÉ"], parents=["User/A"]) as consumer:
            await take(consumer, 1)
        assert "types=video%2C%C3%A9t%C3%A9&parents=User%2FA" in server.asked[0]


@pytest.mark.parametrize(
    ("raw", "error", "sentence"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 0\r\n\r\n", ProtocolError, "is it an agent"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ProtocolError, "no content type: is it an agent"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", ProtocolError, "is it an agent"),
        (answer("302 Found", ""), RefusedError, "Found"),
        (answer("302 Found", "", "Location: ftp://host/"), ProtocolError, "none of HTTP"),
        *((answer(f"{status} No", '{"detail":"for a reason"}'), RefusedError, "for a reason") for status in (400, 401, 403, 404, 406, 410)),
    ],
)  # fmt: skip
async def test_what_is_no_stream_is_told_at_once(
    raw: bytes, error: type[Exception], sentence: str
) -> None:
    with ScriptedAgent([raw]) as server:
        async with Consumer(server.url) as consumer:
            with pytest.raises(error, match=sentence):
                await take(consumer, 1)
        assert len(server.bodies) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_followed_but_not_for_ever(status: int) -> None:
    stream = HEAD + b"Connection: close\r\n\r\nid: 5\nevent: live\n\n"
    step = answer(f"{status} Go", "", "Location: /further?x=1", "Connection: close")
    for steps, ends in ((20, True), (21, False)):
        with ScriptedAgent([*[step] * steps, stream]) as server:
            async with Consumer(server.url) as consumer:
                if ends:
                    assert await take(consumer, 1) == [Live("5")]
                else:
                    with pytest.raises(ProtocolError, match="redirects without end"):
                        await take(consumer, 1)
            assert len(server.bodies) == 21


def _in_seconds(seconds: int) -> str:
    return str(seconds)


def _as_date(seconds: int) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize("form", [_in_seconds, _as_date])
async def test_retry_after_is_heeded_in_both_forms(form: Callable[[int], str]) -> None:
    began = time.time()
    stream = HEAD + b"Connection: close\r\n\r\nid: 5\nevent: live\n\n"
    with ScriptedAgent([answer("503 Busy", "", f"Retry-After: {form(2)}"), stream]) as server:
        async with Consumer(server.url, backoff=FAST) as consumer:
            await take(consumer, 1)
    assert time.time() - began >= (2 if form is _in_seconds else 1)  # a date has whole seconds


@pytest.mark.parametrize(
    ("head", "drop"),
    [
        (b"", b""),
        (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 100000\r\n\r\n", b" "),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 100000\r\n\r\n", b""),
        (b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 100000\r\n\r\n", b""),
    ],
)
async def test_an_answer_without_end_is_given_up_in_time(head: bytes, drop: bytes) -> None:
    connections = count(1)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if next(connections) == 3:
            writer.write(HEAD + b"\r\nid: 5\nevent: live\n\n")
            await reader.read()
        writer.write(head)
        while not reader.at_eof():
            await writer.drain()
            await asyncio.sleep(0.01)
            writer.write(drop)

    with Server(handle) as server:
        async with Consumer(server.url, backoff=FAST, timeout=0.2) as consumer:
            assert await take(consumer, 1) == [Live("5")]
    assert next(connections) >= 4


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
    receiving = consumer._receiver._receiving
    assert receiving is not None
    await asyncio.wait({receiving}, timeout=DEADLINE)


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
    with beats as server, Consumer(server.url, heartbeat_timeout=0.2, backoff=FAST) as consumer:
        got = []
        for event in consumer:
            time.sleep(0.5)
            got.append(event)
            if len(got) == 3:
                break
        assert keys(got) == ["live", "video/a", "video/b"]
        assert consumer.connections == 1


async def test_work_that_holds_up_the_event_loop_keeps_the_connection(tmp_path: Path) -> None:
    with Agent(tmp_path, "--heartbeat", "100ms") as agent:
        async with Consumer(agent.url, heartbeat_timeout=0.4) as consumer:
            waiting = asyncio.create_task(anext(consumer))
            while not consumer.position:
                await asyncio.sleep(0.001)
            for _ in range(3):
                time.sleep(0.6)  # noqa: ASYNC251
                await asyncio.sleep(0)
            await asyncio.to_thread(agent.post, {"event": "insert", "type": "video", "id": "a"})
            assert keys([await asyncio.wait_for(waiting, DEADLINE)]) == ["video/a"]
            assert consumer.connections == 1


async def test_comments_keep_a_connection_alive() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"\r\n")
        for _ in range(20):
            await writer.drain()
            await asyncio.sleep(0.05)
            writer.write(b":\n")
        writer.write(b"id: 5\nevent: live\n\n")
        await reader.read()

    with Server(handle) as server:
        async with Consumer(server.url, heartbeat_timeout=0.5) as consumer:
            assert await take(consumer, 1) == [Live("5")]
            assert consumer.connections == 1

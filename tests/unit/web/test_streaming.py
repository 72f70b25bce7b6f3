"""A connection that writes a stream without a task, without sockets and without an agent."""

import asyncio
import logging
from functools import partial
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from oplogd.config.settings import Settings
from oplogd.errors import StoreUnavailableError
from oplogd.host.descriptors import Descriptors
from oplogd.stream.connection import StreamConnection
from oplogd.stream.response import EventStream
from oplogd.web.connection.edge import end_in_order
from oplogd.web.connection.protocol import HttpProtocol, protocol_class
from oplogd.web.connection.short_way import ShortWay
from oplogd.web.http.error_handlers import Refusals
from oplogd.web.http.plain import Answer, Begin, PlainRequest, Work, answered_by
from tests.unit.web.transports import FakeTransport

REQUEST = b"GET /ops HTTP/1.1\r\nHost: a\r\n\r\n"
OTHER = b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n"
END = b""


class FakeConsumer:
    """Has ``chunks``, and nothing yet behind them. An error among them is raised."""

    id = 7
    address = "test:1"
    connection: Any = None
    is_asleep = False

    def __init__(self, *chunks: bytes | Exception) -> None:
        self.chunks = list(chunks)
        self.paused = 0

    def take(self) -> bytes | None:
        if not self.chunks:
            return None
        chunk = self.chunks.pop(0)
        if isinstance(chunk, Exception):
            raise chunk
        return chunk

    def pause(self, _seconds: float) -> None:
        self.paused += 1

    def add(self, *chunks: bytes | Exception) -> None:
        self.chunks += chunks
        self.connection.go_on()


class Bench:
    """A connection whose app, or short way, answers /ops with the stream of ``consumer``."""

    is_short = False

    def __init__(self, consumer: FakeConsumer) -> None:
        self.consumer: Any = consumer
        self.gone: list[Any] = []
        self.disconnect = self.gone.append  # of the hub
        self.state = ServerState()
        self.transport = FakeTransport()
        made = protocol_class(Settings(), Descriptors(), ShortWay(self._find, Refusals()))
        config = uvicorn.Config(
            self._app, http=made, lifespan="off", log_config=None, interface="asgi3",
            proxy_headers=False,
        )  # fmt: skip
        config.load()
        self.protocol: HttpProtocol = made(config=config, server_state=self.state, app_state={})
        self.transport.connection_lost = self.protocol.connection_lost
        self.protocol.connection_made(self.transport)

    def _find(self, method: bytes, path: bytes) -> Begin | None:
        return self._begin if self.is_short and (method, path) == (b"GET", b"/ops") else None

    def _begin(self, _: PlainRequest) -> Work:
        async def answer() -> Answer:
            hub: Any = self
            return Answer(200, b"", stream=partial(StreamConnection, hub, self.consumer))

        return answered_by(answer())

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/ops":
            hub: Any = self
            await end_in_order(EventStream(hub, self.consumer, {}), scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def send(self, *packets: bytes) -> None:
        for packet in packets:
            self.protocol.data_received(packet)
            await settle()

    @property
    def written(self) -> bytes:
        """Everything behind the head of the stream."""
        return b"".join(self.transport.written).partition(b"\r\n\r\n")[2]


@pytest.fixture(params=[False, True], ids=["app", "short way"], autouse=True)
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "is_short", request.param)


async def settle() -> None:
    """Let all callbacks run."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_stream_has_no_task_no_request_and_no_parser() -> None:
    bench = Bench(FakeConsumer(b"one", b"two"))
    await bench.send(REQUEST)
    assert bench.written == b"3\r\none\r\n3\r\ntwo\r\n"
    assert b"content-length" not in b"".join(bench.transport.written)
    assert bench.state.tasks == set()
    protocol: Any = bench.protocol
    assert (protocol.scope, protocol.headers, protocol.parser) == (None, None, None)


async def test_consumers_of_the_same_bytes_share_their_chunk() -> None:
    same = b"x" * 1000
    benches = [Bench(FakeConsumer(same)) for _ in range(3)]
    for bench in benches:
        await bench.send(REQUEST)
    assert len({id(bench.transport.written[-1]) for bench in benches}) == 1


async def test_nothing_is_taken_while_the_connection_is_full() -> None:
    consumer = FakeConsumer()
    bench = Bench(consumer)
    await bench.send(REQUEST)
    bench.protocol.pause_writing()
    consumer.add(b"one", END)
    assert consumer.connection.is_full
    assert consumer.chunks == [b"one", END]
    bench.protocol.resume_writing()
    await settle()
    assert bench.written == b"3\r\none\r\n0\r\n\r\n"
    assert bench.gone == [consumer]


@pytest.mark.parametrize("when", ["in one packet", "during the stream", "in halves", "after it"])
async def test_a_request_behind_a_stream_is_answered_after_its_end(when: str) -> None:
    consumer = FakeConsumer()
    bench = Bench(consumer)
    packets = {
        "in one packet": [REQUEST + OTHER],
        "during the stream": [REQUEST, OTHER],
        "in halves": [REQUEST, OTHER[:9]],
        "after it": [REQUEST],
    }[when]
    await bench.send(*packets)
    consumer.add(b"one", END)
    await settle()
    rest = {"in halves": OTHER[9:], "after it": OTHER}.get(when)
    if rest is not None:
        assert bench.written == b"3\r\none\r\n0\r\n\r\n"
        await bench.send(rest)
    body, _, answer = bench.written.partition(b"0\r\n\r\n")
    assert body == b"3\r\none\r\n"
    assert answer.startswith(b"HTTP/1.1 204 ")
    assert not bench.transport.is_closed


@pytest.mark.parametrize("cut", [1, 4, 9, 20, 30, len(OTHER) - 2])
@pytest.mark.parametrize("in_two", [False, True], ids=["one packet", "two packets"])
async def test_a_request_cut_before_the_stream_begins_is_answered_after_its_end(
    cut: int, in_two: bool
) -> None:
    consumer = FakeConsumer()
    bench = Bench(consumer)
    if in_two:
        bench.protocol.data_received(REQUEST)
        bench.protocol.data_received(OTHER[:cut])
        await settle()
    else:
        await bench.send(REQUEST + OTHER[:cut])
    consumer.add(b"one")
    await bench.send(OTHER[cut:])
    consumer.add(END)
    await settle()
    body, _, answer = bench.written.partition(b"0\r\n\r\n")
    assert body == b"3\r\none\r\n"
    assert answer.startswith(b"HTTP/1.1 204 ")
    assert not bench.transport.is_closed


async def test_a_connection_has_one_stream_after_another() -> None:
    consumer = FakeConsumer(b"one", END)
    bench = Bench(consumer)
    await bench.send(REQUEST)
    consumer.chunks = [b"two"]
    await bench.send(REQUEST)
    consumer.add(END)
    first, _, second = bench.written.partition(b"0\r\n\r\n")
    assert first == b"3\r\none\r\n"
    assert second.endswith(b"\r\n\r\n3\r\ntwo\r\n0\r\n\r\n")
    assert bench.gone == [consumer] * 2


async def test_bytes_behind_a_stream_that_are_not_http_are_refused_after_its_end() -> None:
    consumer = FakeConsumer()
    bench = Bench(consumer)
    await bench.send(REQUEST, b"\0\r\n")
    consumer.add(b"one", END)
    await settle()
    body, _, answer = bench.written.partition(b"0\r\n\r\n")
    assert body == b"3\r\none\r\n"
    assert answer.startswith(b"HTTP/1.1 400 ")


async def test_a_request_with_rubbish_in_its_packet_gets_no_stream() -> None:
    consumer = FakeConsumer(b"one")
    bench = Bench(consumer)
    await bench.send(REQUEST + b"\0\r\n")
    assert bench.transport.written[0].startswith(b"HTTP/1.1 400 ")
    assert len(bench.transport.written) == 1
    assert bench.gone == ([] if bench.is_short else [consumer])


async def test_rubbish_before_a_stream_begins_refuses_it() -> None:
    consumer = FakeConsumer(b"one")
    bench = Bench(consumer)
    bench.protocol.data_received(REQUEST)
    bench.protocol.data_received(b"\0\r\n")
    await settle()
    assert bench.transport.written[0].startswith(b"HTTP/1.1 400 ")
    assert (len(bench.transport.written), bench.gone) == (1, [consumer])
    assert not bench.protocol.flow.read_paused  # it notices that the client goes


@pytest.mark.parametrize("version", [b"1.0", b"1.1\r\nConnection: close"])
async def test_the_end_of_a_last_answer_ends_its_connection(version: bytes) -> None:
    consumer = FakeConsumer()
    bench = Bench(consumer)
    await bench.send(REQUEST.replace(b"1.1", version), OTHER)
    consumer.add(b"one", END)
    await settle()
    assert bench.transport.is_closed
    assert b" 204 " not in bench.written


async def test_the_body_of_a_request_that_streams_is_dropped() -> None:
    consumer = FakeConsumer()
    bench = Bench(consumer)
    request = REQUEST.replace(b"\r\n\r\n", b"\r\nContent-Length: 200000\r\n\r\n")
    await bench.send(request, *[b"x" * 50_000] * 4)
    assert not bench.protocol.flow.read_paused
    await bench.send(OTHER)
    consumer.add(b"one", END)
    await settle()
    assert b"HTTP/1.1 204 " in bench.written


@pytest.mark.parametrize("is_begun", [True, False])
async def test_a_consumer_whose_client_goes_is_disconnected_at_once(is_begun: bool) -> None:
    consumer = FakeConsumer()
    bench = Bench(consumer)
    if not is_begun:
        bench.protocol.pause_writing()  # the head of the stream waits
    await bench.send(REQUEST)
    bench.protocol.connection_lost(None)
    if is_begun:
        assert bench.gone == [consumer]
    await settle()
    assert bench.gone == [consumer]
    assert bench.written == b""
    assert bench.state.tasks == set()


async def test_the_end_of_the_agent_cuts_off_a_stream_whose_head_waits() -> None:
    consumer = FakeConsumer(b"one")
    bench = Bench(consumer)
    bench.protocol.pause_writing()
    await bench.send(REQUEST)
    (task,) = bench.state.tasks
    task.cancel()
    await settle()
    assert (bench.gone, bench.transport.written) == ([consumer], [])
    assert bench.transport.is_aborted


async def test_a_consumer_that_is_cut_off_is_disconnected_once() -> None:
    consumer = FakeConsumer()
    bench = Bench(consumer)
    await bench.send(REQUEST)
    connection = consumer.connection
    assert (connection.abort(), connection.abort()) == (True, False)
    await settle()
    assert bench.transport.is_aborted
    assert bench.gone == [consumer]


async def test_a_stream_that_fails_ends_its_connection_with_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    consumer = FakeConsumer(b"one", ValueError("broken"))
    bench = Bench(consumer)
    await bench.send(REQUEST)
    assert bench.written == b"3\r\none\r\n"
    assert bench.transport.is_closed
    assert bench.gone == [consumer]
    (line,) = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert line.getMessage() == ("the stream of consumer 7 at test:1 failed: ValueError('broken')")


async def test_a_stream_waits_for_an_unreachable_store() -> None:
    consumer = FakeConsumer(StoreUnavailableError("away"))
    bench = Bench(consumer)
    await bench.send(REQUEST)
    assert (consumer.paused, bench.written, bench.gone) == (1, b"", [])
    consumer.add(b"one")
    assert bench.written == b"3\r\none\r\n"

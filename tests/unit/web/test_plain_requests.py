"""A connection that answers plain requests itself, without sockets and without an agent."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from oplogd.config.settings import Settings
from oplogd.errors import TopicNotFoundError
from oplogd.host.descriptors import Descriptors
from oplogd.web.connection.protocol import HttpProtocol, protocol_class
from oplogd.web.connection.short_way import ShortWay
from oplogd.web.http.error_handlers import Refusals
from oplogd.web.http.plain import Answer, PlainRequest, Work
from tests.unit.web.transports import FakeTransport

REQUEST = b"POST /ops HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
STREAM = b"GET /streams HTTP/1.1\r\nHost: a\r\n\r\n"


class Bench:
    """A connection whose short way has ``begin`` as the endpoint of /ops."""

    def __init__(self, begin: Callable[[PlainRequest], Work | None]) -> None:
        self.refusals = Refusals()
        self.state = ServerState()
        self.transport = FakeTransport()
        self.asked: list[str] = []
        find = {(b"POST", b"/ops"): begin, (b"GET", b"/streams"): begin}.get
        way = ShortWay(lambda *asked: find(asked), self.refusals)
        made = protocol_class(Settings(), Descriptors(), way)
        config = uvicorn.Config(
            self._app, http=made, lifespan="off", log_config=None, interface="asgi3",
            proxy_headers=False,
        )  # fmt: skip
        config.load()
        self.protocol: HttpProtocol = made(config=config, server_state=self.state, app_state={})
        self.transport.connection_lost = self.protocol.connection_lost
        self.protocol.connection_made(self.transport)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.append(scope["raw_path"].decode())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def settle(self) -> str:
        """Let all callbacks run, and return the status lines of the answers so far."""
        for _ in range(10):
            await asyncio.sleep(0)
        told = b"".join(self.transport.written)
        return " ".join(part[:3].decode() for part in told.split(b"HTTP/1.1 ")[1:])


class Later:
    """Work that the test ends."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answered = 0

    def begin(self, request: PlainRequest) -> Work:
        return Work(self.done, self._answer, lambda error: error)

    def _answer(self) -> Answer:
        self.answered += 1
        return Answer(204, b"")


async def test_an_answer_waits_while_the_client_does_not_read() -> None:
    later = Later()
    bench = Bench(later.begin)
    bench.protocol.data_received(REQUEST)
    bench.protocol.pause_writing()
    later.done.set_result(None)
    assert await bench.settle() == ""
    bench.protocol.resume_writing()
    assert await bench.settle() == "204"
    assert (bench.asked, bench.state.tasks) == ([], set())


@pytest.mark.parametrize("error", [None, TopicNotFoundError("gone")], ids=["answer", "refusal"])
async def test_the_end_of_the_agent_cuts_off_a_client_that_does_not_read(
    error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    later = Later()
    bench = Bench(later.begin)
    bench.protocol.data_received(REQUEST)
    bench.protocol.pause_writing()
    if error is None:
        later.done.set_result(None)
    else:
        later.done.set_exception(error)
    await bench.settle()
    (task,) = bench.state.tasks
    task.cancel()
    assert await bench.settle() == ""
    assert bench.transport.is_aborted
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


async def test_the_end_of_the_agent_answers_a_request_at_work() -> None:
    later = Later()
    bench = Bench(later.begin)
    bench.protocol.data_received(REQUEST)
    (task,) = bench.state.tasks
    task.cancel()
    assert await bench.settle() == "503"
    assert b"not confirmed, it may still be stored" in bench.transport.written[-1]


async def test_an_endpoint_that_fails_ends_the_connection_with_500(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def begin(request: PlainRequest) -> Work:
        raise ZeroDivisionError

    bench = Bench(begin)
    bench.protocol.data_received(REQUEST)
    assert await bench.settle() == "500"
    assert bench.transport.is_closed
    assert caplog.records[-1].exc_info is not None


async def test_a_client_that_has_gone_is_not_answered_but_counted() -> None:
    later = Later()
    bench = Bench(later.begin)
    bench.protocol.data_received(REQUEST)
    bench.protocol.connection_lost(None)
    later.done.set_result(None)
    assert (await bench.settle(), later.answered) == ("", 1)


@pytest.mark.parametrize(
    "request_",
    [
        REQUEST[:-1],
        REQUEST.replace(b"Host", b"X-Host"),
        REQUEST.replace(b"Host: a", b"Host: a\r\nHost: a"),
        REQUEST.replace(b"Host: a", b"Connection: close"),
        REQUEST.replace(b"/ops", b"/ops?"),
        REQUEST.replace(b"/ops", b"/"),
        REQUEST.replace(b"POST", b"PUT"),
        STREAM.replace(b"/streams", b"/streams#a"),
        STREAM.replace(b"/streams", b"/streams?a#b"),
        STREAM.replace(b"\r\n\r\n", b"\r\nContent-Length: 0\r\n\r\n"),
        STREAM.replace(b"Host: a", b"X-Forwarded-For: 192.0.2.1"),
        STREAM.replace(b"Host: a", b"Cookie: oplog=1"),
        REQUEST.replace(b"Host: a", b"Last-Event-ID: 1"),
    ],
)
async def test_the_app_answers_what_is_not_plain(request_: bytes) -> None:
    later = Later()
    bench = Bench(later.begin)
    bench.protocol.data_received(request_)
    assert await bench.settle() == "200"
    assert len(bench.asked) == 1


@pytest.mark.parametrize("query", [b"", b"?", b"?types=a,b&parents=%20&x=?"])
async def test_an_endpoint_of_a_get_gets_the_query_and_the_client(query: bytes) -> None:
    seen: list[PlainRequest] = []
    bench = Bench(lambda request: seen.append(request))
    bench.protocol.data_received(STREAM.replace(b"/streams", b"/streams" + query))
    assert await bench.settle() == "200"
    assert bench.asked == ["/streams"]
    (request,) = seen
    assert (request.query, request.address, request.port) == (query[1:], "127.0.0.1", 1)


async def test_requests_in_one_packet_are_answered_in_their_order() -> None:
    later = Later()
    bench = Bench(later.begin)
    bench.protocol.data_received(REQUEST + REQUEST.replace(b"POST", b"GET") + REQUEST)
    assert await bench.settle() == ""
    later.done.set_result(None)
    assert await bench.settle() == "204 200 200"
    assert bench.asked == ["/ops", "/ops"]

"""Answers that are streams: the connection writes their bodies without a task.

The request, its task and its parser are dropped when a stream has begun. So a waiting consumer
costs little more memory than its connection.
"""

from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from oplogd.stream.connection import Outlet, StreamConnection
from oplogd.stream.response import TAKE_OVER
from oplogd.web.connection.answering import AnsweringProtocol
from oplogd.web.connection.framing import RawHeader
from oplogd.web.connection.unsent import unsent_bytes


class Chunks:
    """Frames the parts of bodies as chunks, once for all consumers that get the same bytes."""

    __slots__ = ("_framed", "_part")

    def __init__(self) -> None:
        self._part = self._framed = b""

    def framed(self, part: bytes) -> bytes:
        if part is not self._part:
            self._part, self._framed = part, b"%x\r\n%b\r\n" % (len(part), part)
        return self._framed


class StreamCycle(Outlet):
    """A request answered by a stream. The names are those of uvicorn's RequestResponseCycle."""

    __slots__ = (
        "_is_chunked", "_protocol", "disconnected", "keep_alive", "more_body", "response_complete",
        "stream", "transport",
    )  # fmt: skip

    response_started = True
    waiting_for_100_continue = False

    def __init__(self, protocol: "StreamingProtocol", request: RequestResponseCycle) -> None:
        self._protocol: Any = protocol
        self._is_chunked = bool(request.chunked_encoding)
        self.transport = request.transport
        self.keep_alive = request.keep_alive
        self.more_body = request.more_body
        self.disconnected = request.disconnected
        self.response_complete = False
        self.stream: StreamConnection | None = None

    @property
    def body(self) -> bytearray:
        """The body of the request. Nothing reads it."""
        return bytearray()

    @body.setter
    def body(self, body: bytearray) -> None:
        """Drop a part."""

    @property
    def message_event(self) -> "StreamCycle":
        return self

    def set(self) -> None:
        """Notice that the client has gone."""
        if self.disconnected:
            self._end()

    def is_set(self) -> bool:
        return False

    @property
    def is_full(self) -> bool:
        """See ``Outlet``."""
        return bool(self._protocol.flow.write_paused)

    def write(self, chunk: bytes) -> None:
        """See ``Outlet``."""
        self.transport.write(self._protocol.chunks.framed(chunk) if self._is_chunked else chunk)

    def complete(self) -> None:
        """See ``Outlet``."""
        protocol = self._protocol
        if self._is_chunked:
            self.transport.write(b"0\r\n\r\n")
        self._end()
        if not self.keep_alive:
            self.transport.close()
        protocol.on_response_complete()

    def fail(self) -> None:
        """See ``Outlet``."""
        self.transport.close()

    def abort(self) -> None:
        """See ``Outlet``."""
        self._protocol.transport.abort()

    def unsent(self) -> int:
        """See ``Outlet``."""
        return unsent_bytes(self._protocol.transport)

    def _end(self) -> None:
        self.response_complete = True
        self._protocol = None  # else a cycle is left to the garbage collector
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.close()


class StreamingProtocol(AnsweringProtocol):
    """Answers with streams."""

    __slots__ = ()

    chunks = Chunks()

    def _scope(self, headers: list[RawHeader]) -> Any:
        scope = super()._scope(headers)
        scope["extensions"][TAKE_OVER] = self._take_over
        return scope

    def _take_over(self, connect: Callable[[Outlet], StreamConnection]) -> None:
        """Write the body of the answer whose head was sent. Its task has no part in it."""
        request = self._running
        assert request is not None
        cycle: Any = StreamCycle(self, request)
        stream = cycle.stream = connect(cycle)
        request.response_complete = True
        self._running = cycle
        if self.cycle is request:
            self.cycle = cycle
            self._drop_request()
        if cycle.disconnected:
            cycle.set()
            return
        self.flow.resume_reading()  # a client that goes is noticed by reading
        stream.go_on()

    def _drop_request(self) -> None:
        none: Any = None
        self.scope = none
        if self._waits_for == "headers":  # those at hand are of the next request
            return
        self.headers, self.url = none, b""
        # A parser in the midst of a request is needed. So is one that takes no further request.
        if self._waits_for == "request" and not self._unparsed and self.cycle.keep_alive:
            self.parser = none

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        cycle: Any = self._running
        if isinstance(cycle, StreamCycle):
            # What they refer to has this protocol: a cycle would be left to the garbage collector.
            none: Any = None
            cycle.transport = self.cycle = self._running = none

    def resume_writing(self) -> None:
        super().resume_writing()
        cycle: Any = self._running
        if isinstance(cycle, StreamCycle) and cycle.stream is not None:
            self.loop.call_soon(cycle.stream.go_on)

"""The short way: a connection answers plain requests itself, see ``oplogd.web.http.plain``.

A plain request begins when all received bytes are parsed: bytes behind it that are not HTTP refuse
it, as they refuse a request of the app. A request that its endpoint leaves becomes one of the app.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from oplogd.errors import OplogError
from oplogd.web.connection.edge import end_in_order
from oplogd.web.connection.forwarded import plain_address
from oplogd.web.connection.streaming import StreamingProtocol
from oplogd.web.http.error_handlers import Refusals
from oplogd.web.http.plain import Begin, PlainRequest, Work
from oplogd.web.http.problem import not_confirmed_at_stop

# Requests with any other header go to the app.
_PLAIN_HEADERS_OF_POST = frozenset(
    b"accept accept-encoding accept-language authorization cache-control connection content-length"
    b" content-type host pragma traceparent tracestate user-agent x-request-id".split()
)
_PLAIN_HEADERS = {
    b"POST": _PLAIN_HEADERS_OF_POST,
    b"GET": _PLAIN_HEADERS_OF_POST - {b"content-length"} | {b"last-event-id"},
}
_KEEP_ALIVE = frozenset((b"keep-alive", b"Keep-Alive"))


class ShortWay:
    """Says which requests take it.

    ``find`` returns the endpoint of a method and a path, None without one.
    """

    def __init__(self, find: Callable[[bytes, bytes], Begin | None], refusals: Refusals) -> None:
        self.find = find
        self.refusals = refusals
        self._headers: list[tuple[bytes, bytes]] = []
        self._lines = b""

    def lines(self, default_headers: list[tuple[bytes, bytes]]) -> bytes:
        """Return the lines of the headers of all answers. They change once per second."""
        if default_headers is not self._headers:
            self._headers = default_headers
            self._lines = b"".join(
                b"%s: %s\r\n" % (name.lower(), value) for name, value in default_headers
            )
        return self._lines


class PlainCycle:
    """A plain request and its answer. The names are those of uvicorn's RequestResponseCycle."""

    __slots__ = (
        "begin", "body", "disconnected", "fields", "is_begun", "keep_alive", "method", "more_body",
        "path", "query", "response_complete", "response_started", "scope", "transport",
        "waiting_for_100_continue",
    )  # fmt: skip

    # Of a stream.
    transport: asyncio.Transport
    chunked_encoding = True

    def __init__(
        self,
        begin: Begin,
        method: bytes,
        path: bytes,
        query: bytes,
        headers: list[tuple[bytes, bytes]],
        fields: dict[bytes, bytes],
    ) -> None:
        self.begin = begin
        self.method, self.path, self.query = method, path, query
        self.fields = fields
        self.scope = {"headers": headers}
        self.body = bytearray()
        self.more_body = self.keep_alive = True
        self.is_begun = self.disconnected = self.waiting_for_100_continue = False
        self.response_started = self.response_complete = False

    @property
    def message_event(self) -> "PlainCycle":
        return self

    def set(self) -> None:
        """Do nothing: nobody waits for the body."""

    def is_set(self) -> bool:
        """Return whether nothing has taken the body. Nothing takes the empty one of a GET."""
        return not self.is_begun or self.method == b"GET"


class ShortWayProtocol(StreamingProtocol):
    """Answers plain requests."""

    __slots__ = ("_plain",)

    short_way: ShortWay

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # A plain request that is not yet looked at.
        self._plain: PlainCycle | None = None

    def _take_short_way(self) -> bool:
        """Return whether the request whose headers have come is plain. Then hold it."""
        parser, method = self.parser, self.parser.get_method()
        path, mark, query = self.url.partition(b"?")
        if (
            self._unanswered() is not None
            or parser.get_http_version() != "1.1"
            or not parser.should_keep_alive()
            or (begin := self.short_way.find(method, path)) is None
        ):
            return False
        fields = dict(self.headers)
        if (
            (mark and method == b"POST")
            or b"#" in query
            or len(fields) != len(self.headers)
            or not fields.keys() <= _PLAIN_HEADERS[method]
            or fields.get(b"connection", b"keep-alive") not in _KEEP_ALIVE
        ):
            return False
        cycle: Any = PlainCycle(begin, method, path, query, self.headers, fields)
        self._plain = self.cycle = self._running = cycle
        return True

    def _begin_plain(self) -> None:
        """Begin to answer the plain request. The app answers it if it is not whole."""
        if (cycle := self._plain) is None:
            return
        self._plain = None
        if cycle.disconnected:  # refused for the bytes behind it
            return
        work = None
        if not cycle.more_body:
            host, port = self.client or ("", 0)
            address = plain_address(host) or ""
            try:
                work = cycle.begin(
                    PlainRequest(cycle.fields, cycle.body, address, port, cycle.query)
                )
            except Exception as error:
                self._leave(cycle, self._refusing(error))
                return
        if work is None:
            self._leave(cycle, self.app)
            return
        cycle.is_begun = True
        cycle.body = bytearray()
        done: Any = work.done
        self.tasks.add(done)
        done.add_done_callback(lambda _: self._done(cycle, work))

    def _done(self, cycle: PlainCycle, work: Work) -> None:
        done: Any = work.done
        self.tasks.discard(done)
        error: Exception | None
        if done.cancelled():
            error = not_confirmed_at_stop()
        elif (error := done.exception()) is not None:
            error = work.refusal(error) if isinstance(error, OplogError) else error
        if error is not None:
            self._leave(cycle, self._refusing(error))
        elif self.flow.write_paused and not cycle.disconnected:
            drained = self.loop.create_task(self.flow.drain())
            self.tasks.add(drained)
            drained.add_done_callback(lambda _: self._drained(cycle, work, drained))
        else:
            self._send(cycle, work)

    def _drained(self, cycle: PlainCycle, work: Work, task: "asyncio.Task[None]") -> None:
        self.tasks.discard(task)
        if task.cancelled():  # by the end of the agent
            self.transport.abort()
            cycle.disconnected = True
        self._send(cycle, work)

    def _send(self, cycle: PlainCycle, work: Work) -> None:
        answer = work.answer()
        if not cycle.disconnected:
            self.transport.write(
                b"".join(
                    (
                        STATUS_LINE[answer.status],
                        self.short_way.lines(self.server_state.default_headers),
                        answer.lines,
                        b"" if cycle.keep_alive else b"connection: close\r\n",
                        b"transfer-encoding: chunked\r\n" if answer.stream else b"",
                        b"\r\n",
                        answer.body,
                    )
                )
            )
        if answer.stream is not None:
            cycle.transport = self.transport
            self._take_over(answer.stream)
            return
        if cycle.disconnected:
            return
        cycle.response_started = cycle.response_complete = True
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _leave(self, plain: PlainCycle, app: ASGI3Application) -> None:
        """Let an app answer a plain request."""
        scope = self._scope(plain.scope["headers"])
        scope |= {
            "method": plain.method.decode(),
            "path": plain.path.decode("ascii"),
            "raw_path": plain.path,
            "query_string": plain.query,
        }
        cycle = RequestResponseCycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=plain.keep_alive,
            on_response=self.on_response_complete,
        )
        cycle.body, cycle.more_body = plain.body, plain.more_body
        cycle.disconnected = plain.disconnected
        if cycle.body or not cycle.more_body:
            cycle.message_event.set()
        current: Any = self.cycle
        if current is plain:
            self.cycle = cycle
        self._start_asgi_task(cycle, app)

    def _refusing(self, error: Exception) -> ASGI3Application:
        """Return the app that answers with an error, as FastAPI's app does."""
        refusals = self.short_way.refusals

        async def refuse(scope: Any, receive: Any, send: Any) -> None:
            response = refusals.answer(scope, error)
            await end_in_order(response, scope, receive, send)
            if response.status_code == 500:
                raise error  # uvicorn logs it

        return refuse

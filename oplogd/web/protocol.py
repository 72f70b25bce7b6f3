"""One HTTP connection: uvicorn's protocol with bounds on size and time, deaf to upgrades, and with problem+json.

uvicorn stops at a request that offers an upgrade and loses its body. Here the request is parsed again without the offer.
A request is refused on the connection itself when the bytes are not HTTP, when its headers are too large, or when they or the body
take too long. Pipelined requests wait as bytes until the requests before them are answered.
"""

import asyncio
import logging
from typing import Any, NamedTuple

import httptools
from uvicorn._types import ASGI3Application, HTTPScope
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from oplogd.logs import Episode
from oplogd.settings import Settings
from oplogd.web.flow import Flow, LastAnswer
from oplogd.web.forwarded import plain_address
from oplogd.web.problem import Problem
from oplogd.web.refusals import (
    body_too_slow,
    broken_off,
    headers_too_large,
    headers_too_slow,
    not_http,
)
from oplogd.web.unsent import unsent_bytes

MAX_HEADERS = 256
MIN_BODY_RATE = 4096
"""Bytes per second that a body must reach on average once ``--body-timeout`` is over."""

_PIECE = 4096
"""Bytes parsed at a time: how far a bound is exceeded at most, and how many pipelined requests can be begun."""

_LINGER_SECONDS = 2.0
"""How long a refused client may read its answer. Closed at once, the connection is reset and the answer lost."""

_QUIET_SECONDS = 60.0

logger = logging.getLogger("oplogd.http")


class Limits(NamedTuple):
    """Sizes in bytes, times in seconds."""

    header_size: int
    header_seconds: float
    body_seconds: float


class Protocol(HttpToolsProtocol):
    """Subclassed by ``protocol_class``, since uvicorn makes the instances."""

    limits: Limits
    refusals: Episode

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # uvicorn's own parser skips bytes after a request with `Connection: close`, and so a body longer than announced.
        self.parser = httptools.HttpRequestParser(self)
        self._running: RequestResponseCycle | None = None
        self._waits_for = "request"  # then "headers", then "body"
        self._unparsed = (
            0  # bytes since something was complete: the beginning of headers, a chunk's or trailers
        )
        self._head_bytes = 0
        self._body_bytes = 0
        self._body_due = 0.0
        self._held = b""
        self._fault: Problem | None = None
        self._deferred: Problem | None = None
        self._refused = False
        self._is_last = False  # all requests are here: an answer has closed the connection, or the client its side
        self._timer: asyncio.TimerHandle | None = None
        self._timed = ""

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self.flow = Flow(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_timer("", 0)
        self._held = b""
        if (running := self._unanswered()) is not None:
            running.disconnected = True
            running.message_event.set()
            if self._waits_for == "body" and not self._refused:
                self._log_refusal(broken_off())
        self.pipeline.clear()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn never stays
        """Return whether the connection stays open, for the answers to requests that came whole."""
        if self._refused:
            return False
        running = self._unanswered()
        if self._waits_for == "body" and not self._deferred:
            if running is None:  # answered early
                return False
            self._refuse(broken_off())
            if self._refused:
                return False
        # With TLS nothing can be sent any more. A consumer that ends its side is gone.
        self._is_last = (
            running is not None
            and not running.response_started
            and not _wants_stream(running.scope)
        )
        return self._is_last and self.transport.can_write_eof()

    def shutdown(self) -> None:
        if self._refused:
            self.transport.close()
        super().shutdown()

    def data_received(self, data: bytes) -> None:
        if self._refused or self._deferred:
            return
        self._unset_keepalive_if_required()
        if self._held:
            self._held += data
            return
        self._parse(data)

    def _parse(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if self.pipeline:
                self._held = data[at:]
                self._flow_hold(True)
                break
            try:
                at += self._parse_piece(data[at : at + _PIECE])
            except httptools.HttpParserError as error:
                self._refuse(self._fault or not_http(str(error)))
                return
        self._watch()

    def _parse_piece(self, piece: bytes) -> int:
        """Return how many bytes were parsed. Raises HttpParserError; ``_fault`` then may know better."""
        self._unparsed += len(piece)
        used = len(piece)
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as offer:
            used = offer.args[0]
            self._parse_without_upgrade()
        if self._unparsed > self.limits.header_size:
            self._fail(headers_too_large(self.limits.header_size))
        return used

    def _parse_without_upgrade(self) -> None:
        """Parse the headers again less ``Upgrade``, so that the body after them belongs to the request."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        if method == b"CONNECT":
            self._fail(
                Problem(
                    405,
                    "CONNECT is not allowed; this is no proxy",
                    {"Allow": "GET, HEAD, OPTIONS, POST"},
                )
            )
        lines = [b"%s %s HTTP/%s" % (method, self.url, version)]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(b"\r\n".join([*lines, b"", b""]))

    # What the parser finds

    def on_message_begin(self) -> None:
        super().on_message_begin()
        transport = self.transport
        # A stream cuts off a consumer that takes nothing; ASGI has no message for that.
        extensions: Any = {
            "oplog.abort": transport.abort,
            "oplog.unsent": lambda: unsent_bytes(transport),
        }
        self.scope["extensions"] = extensions
        self._waits_for = "headers"
        self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        self.url += url
        self._head_bytes += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._waits_for == "body":  # a trailer, which must not pass for a header
            return
        name = name.lower()
        self._head_bytes += len(name) + len(value) + 4
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))
        if len(self.headers) > MAX_HEADERS:
            self._fail(Problem(431, f"the request has more than {MAX_HEADERS} headers"))

    def on_headers_complete(self) -> None:
        if self._head_bytes > self.limits.header_size:
            self._fail(headers_too_large(self.limits.header_size))
        if self.parser.should_upgrade():
            return  # HttpParserUpgrade follows
        self._refuse_unknown_framing()
        self._unparsed = 0
        self._waits_for = "body"
        self._body_due = self.loop.time() + self.limits.body_seconds
        super().on_headers_complete()
        if not self.cycle.keep_alive:
            self.cycle.transport = LastAnswer(self.transport, self._close_after_body)

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        cycle = self.cycle
        if not cycle.response_complete:
            longest = self.loop.time() + self.limits.body_seconds
            self._body_due = min(self._body_due + len(body) / MIN_BODY_RATE, longest)
            cycle.body += body
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            cycle.message_event.set()

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._unparsed = 0
        self._waits_for = "request"
        super().on_message_complete()
        if self._is_last and self._unanswered() is None:
            self.transport.close()

    def _refuse_unknown_framing(self) -> None:
        version = self.parser.get_http_version()
        if version not in ("1.0", "1.1"):
            self._fail(Problem(400, f"HTTP/{version} is not spoken here; use HTTP/1.1"))
        for name, value in self.headers:
            if name == b"transfer-encoding" and (
                version == "1.0" or value.strip().lower() != b"chunked"
            ):
                self._fail(Problem(400, "Transfer-Encoding: must be chunked, and only in HTTP/1.1"))

    def _fail(self, fault: Problem) -> None:
        """End the parsing, from within one of the parser's calls, too."""
        self._fault = fault
        raise httptools.HttpParserError(fault.detail)

    # Requests and answers

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _unanswered(self) -> RequestResponseCycle | None:
        """The request whose turn it is, None if all so far are answered."""
        running = self._running
        return None if running is None or running.response_complete else running

    def _close_after_body(self) -> None:
        """Close, but not while the client still sends: the connection would be reset and the answer lost."""
        if self._waits_for != "body" or self._running is not self.cycle:
            self.transport.close()
            return
        self._is_last = True
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.refusals.active:
            self.refusals.end()
        if self.pipeline or self.transport.is_closing():
            return
        is_idle = self._unanswered() is None  # else the next request has just begun
        if self._held:
            self.loop.call_soon(self._parse_held)
        elif is_idle and self._deferred is not None:
            self._say(self._deferred)
        elif is_idle and self._is_last and self._waits_for != "body":
            self.transport.close()
        else:
            self._body_due = self.loop.time() + self.limits.body_seconds
            self._watch()

    def _parse_held(self) -> None:
        if self.transport.is_closing() or self._refused:
            return
        self._unset_keepalive_if_required()
        held, self._held = self._held, b""
        self._flow_hold(False)
        self._parse(held)

    def _flow_hold(self, hold: bool) -> None:
        assert isinstance(self.flow, Flow)
        self.flow.hold(hold)

    def _refuse(self, problem: Problem) -> None:
        """Answer with a problem and close, after the answer that is being made if there is one."""
        if self.transport.is_closing():
            return
        self._log_refusal(problem)
        running = self._unanswered()
        if self._waits_for == "body":
            if running is None:  # the request at fault has had its answer
                self._linger()
                return
            if self.pipeline:
                self.pipeline.popleft()  # the request at fault; those before it are whole
        if running is not None:
            has_read_all = not running.more_body and not running.message_event.is_set()
            if running.response_started or has_read_all or running is not self.cycle:
                self._deferred = problem
                self._flow_hold(True)
                self._set_timer("", 0)
                return
            running.disconnected = True  # it must not store the part of its body that came
            running.waiting_for_100_continue = False
            running.message_event.set()
        self._say(problem)

    def _log_refusal(self, problem: Problem) -> None:
        self.refusals.again(detail=f"{_peer(self.client)}: {problem.detail}")

    def _say(self, problem: Problem) -> None:
        response = problem.response()
        headers = [
            *self.server_state.default_headers,
            *response.raw_headers,
            (b"connection", b"close"),
        ]
        lines = [b"%s: %s\r\n" % header for header in headers]
        self.transport.write(
            b"".join([STATUS_LINE[problem.status], *lines, b"\r\n", bytes(response.body)])
        )
        self._linger()

    def _linger(self) -> None:
        """Take no more requests, and close when the client has had the time to read its answer."""
        self._refused = True
        self._held = b""
        self._unset_keepalive_if_required()
        self._flow_hold(False)
        if self.transport.can_write_eof():  # not with TLS
            self.transport.write_eof()
        self._set_timer("end", _LINGER_SECONDS)

    # Time

    def _watch(self) -> None:
        """Time the part of a request that the client owes; not the answer that we owe."""
        answered = self._unanswered() is None
        if self._held or self._refused:
            self._set_timer("", 0)
        elif self._waits_for == "body":
            self._set_timer("body", self.limits.body_seconds)
        elif answered and self.timeout_keep_alive_task is None:
            self._set_timer("headers", self.limits.header_seconds)
        else:
            self._set_timer("", 0)

    def _set_timer(self, what: str, seconds: float) -> None:
        if what and what == self._timed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timed = what
        self._timer = self.loop.call_later(seconds, self._on_time) if what else None

    def _on_time(self) -> None:
        what, self._timed, self._timer = self._timed, "", None
        if self.transport.is_closing():
            return
        if what == "body":
            self._on_body_time()
        elif what == "headers" and (self._unparsed or self._waits_for == "headers"):
            self._refuse(headers_too_slow(self.limits.header_seconds))
        else:
            self.transport.close()

    def _on_body_time(self) -> None:
        running, now, seconds = self._unanswered(), self.loop.time(), self.limits.body_seconds
        if running is not None and running.response_started:
            return  # a stream, whose request nobody reads
        if running is not None and (
            running is not self.cycle or self.flow.read_paused
        ):  # we are the slow ones
            self._body_due = now + seconds
        if now < self._body_due:
            self._set_timer("body", self._body_due - now)
        elif running is None:  # answered early: the rest may come for a while
            self.transport.close()
        else:
            self._refuse(body_too_slow(seconds, MIN_BODY_RATE))


def protocol_class(settings: Settings) -> type[Protocol]:
    """Return the class for uvicorn's ``http``, with the settings' limits."""

    class Limited(Protocol):
        limits = Limits(settings.max_header_size, settings.header_timeout, settings.body_timeout)
        refusals = Episode(logger, "refused a request", quiet=_QUIET_SECONDS, level=logging.INFO)

    return Limited


def _peer(client: tuple[str, int] | None) -> str:
    return (plain_address(client[0]) if client else None) or "unknown"


def _wants_stream(scope: HTTPScope) -> bool:
    return any(
        name == b"accept" and b"event-stream" in value.lower() for name, value in scope["headers"]
    )

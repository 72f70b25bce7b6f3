"""One HTTP connection: uvicorn's protocol with bounds on size and time, and without upgrades.

uvicorn stops at a request that offers an upgrade, and loses its body. Here the request is parsed
again without the offer. The connection itself refuses a request if the bytes are not HTTP, if its
headers are too large, or if headers or body are too slow. Pipelined requests wait as bytes until
the requests before them are answered.
"""

import asyncio
from typing import Any, Literal

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from oplogd.host.descriptors import Descriptors
from oplogd.host.logs import Episode
from oplogd.web.connection import refusals
from oplogd.web.connection.flow import HoldableFlow, LastAnswerTransport
from oplogd.web.connection.forwarded import plain_address
from oplogd.web.connection.framing import (
    framing_problem,
    head_without_upgrade,
    plain_cookies,
    wants_stream,
)
from oplogd.web.connection.limits import MAX_HEADERS, RequestLimits
from oplogd.web.connection.timing import BodyDeadline, Timer, TimerPurpose
from oplogd.web.connection.unsent import AnswerWatch, unsent_bytes
from oplogd.web.http.problem import Problem

# Bytes parsed at a time. The bounds are checked after each piece. A piece also bounds the number of
# pipelined requests.
_PIECE = 4096

# Time for a refused client to read its answer. An immediate close would reset the connection and
# lose the answer.
_LINGER_SECONDS = 2.0
# The same while the agent stops. The server then waits two seconds for its connections.
_STOP_LINGER_SECONDS = 1.0


class HttpProtocol(HttpToolsProtocol):
    """Subclassed by ``limited.protocol_class``, since uvicorn makes the instances."""

    limits: RequestLimits
    refused_requests: Episode
    descriptors: Descriptors

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # uvicorn's own parser skips bytes after a request with `Connection: close`, so it would
        # miss a body that is longer than announced.
        self.parser = httptools.HttpRequestParser(self)
        self._running: RequestResponseCycle | None = None
        # The part of a request that the parser expects next.
        self._waits_for: Literal["request", "headers", "body"] = "request"
        # Bytes received since the headers, a chunk or the trailers were complete.
        self._unparsed = 0
        self._head_bytes = 0
        self._body_deadline = BodyDeadline(self.limits.body_seconds)
        self._timer = Timer(self.loop, self._on_timeout)
        # Pipelined requests, not yet parsed.
        self._held = b""
        # The reason for which a callback ended the parsing.
        self._fault: Problem | None = None
        # A refusal that is sent after the answer that has begun.
        self._deferred: Problem | None = None
        self._is_refused = False
        # No request follows: an answer or the client has ended the connection.
        self._is_last = False
        self._answer_watch = AnswerWatch(self.loop, self.limits.answer_seconds)

    # Connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = HoldableFlow(transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and not self.descriptors.admits(sock.fileno()):
            headers = self.server_state.default_headers
            transport.write(refusals.answer(refusals.no_descriptor(), headers))
            self._is_refused = True
            transport.close()
            return
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.stop()
        self._answer_watch.stop()
        self._held = b""
        if (running := self._unanswered()) is not None:
            running.disconnected = True
            running.message_event.set()
            if self._waits_for == "body" and not self._is_refused:
                self._log_refusal(refusals.incomplete_body())
        self.pipeline.clear()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn always closes
        """Return whether the connection stays open, to answer requests that are complete."""
        if self._is_refused:
            return False
        running = self._unanswered()
        if self._waits_for == "body" and not self._deferred:
            if running is None:  # answered before its body was complete
                return False
            self._refuse(refusals.incomplete_body())
            if self._is_refused:
                return False
        # With TLS nothing can be sent any more. A consumer that ends its side counts as gone.
        self._is_last = (
            running is not None
            and not running.response_started
            and not wants_stream(running.scope["headers"])
        )
        return self._is_last and self.transport.can_write_eof()

    def shutdown(self) -> None:
        if self._is_refused:
            self.transport.close()
        elif self._waits_for == "body" and self._unanswered() is self.cycle:
            self._refuse(refusals.stopping())
            if self._is_refused:
                self._timer.stop()
                self._timer.start("end", _STOP_LINGER_SECONDS)
        super().shutdown()

    def data_received(self, data: bytes) -> None:
        if self._is_refused or self._deferred:
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
                self._pausable.hold()
                break
            try:
                at += self._parse_piece(data[at : at + _PIECE])
            except httptools.HttpParserError as error:
                self._refuse(self._fault or refusals.not_http(str(error)))
                return
        self._watch()

    def _parse_piece(self, piece: bytes) -> int:
        """Return the number of parsed bytes. Raises HttpParserError; see ``_fault``."""
        self._unparsed += len(piece)
        used = len(piece)
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as offer:
            used = offer.args[0]
            self._parse_without_upgrade()
        if self._unparsed > self.limits.header_size:
            self._fail(refusals.headers_too_large(self.limits.header_size))
        return used

    def _parse_without_upgrade(self) -> None:
        """Parse the headers again without ``Upgrade``, so that the body belongs to the request."""
        method, version = self.parser.get_method(), self.parser.get_http_version()
        if method == b"CONNECT":
            self._fail(refusals.tunnel())
        head = head_without_upgrade(method, self.url, version, self.headers)
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(head)

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        super().on_message_begin()
        transport = self.transport
        # The stream cuts off a consumer that takes nothing. ASGI has no message for that.
        extensions: Any = {
            "oplog.abort": transport.abort,
            "oplog.end": self._end_after_answer,
            "oplog.unsent": lambda: unsent_bytes(transport),
            "oplog.watch": self._answer_watch.expect_parts,
        }
        self.scope["extensions"] = extensions
        self._waits_for = "headers"
        self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        self.url += url
        self._head_bytes += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._waits_for == "body":  # a trailer is not a header
            return
        name = name.lower()
        self._head_bytes += len(name) + len(value) + 4
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        elif name == b"cookie":
            value = plain_cookies(value)
        self.headers.append((name, value))
        if len(self.headers) > MAX_HEADERS:
            self._fail(refusals.too_many_headers())

    def on_headers_complete(self) -> None:
        if self._head_bytes > self.limits.header_size:
            self._fail(refusals.headers_too_large(self.limits.header_size))
        if self.parser.should_upgrade():
            return  # HttpParserUpgrade follows
        if problem := framing_problem(self.parser.get_http_version(), self.headers):
            self._fail(problem)
        self._unparsed = 0
        self._waits_for = "body"
        self._body_deadline.restart(self.loop.time())
        super().on_headers_complete()
        if not self.cycle.keep_alive:
            self.cycle.transport = LastAnswerTransport(self.transport, self._close_after_body)

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        cycle = self.cycle
        if not cycle.response_complete:
            self._body_deadline.extend(self.loop.time(), len(body))
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

    def _fail(self, fault: Problem) -> None:
        """End the parsing, also from a callback of the parser."""
        self._fault = fault
        raise httptools.HttpParserError(fault.detail)

    # Requests and answers

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _unanswered(self) -> RequestResponseCycle | None:
        """Return the request that is being answered, None if there is none."""
        running = self._running
        return None if running is None or running.response_complete else running

    def _close_after_body(self) -> None:
        """Close once the client has sent its whole body.

        An earlier close would reset the connection and lose the answer.
        """
        if self._waits_for != "body" or self._running is not self.cycle:
            self.transport.close()
            return
        self._is_last = True
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._answer_watch.pause(self.transport)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._answer_watch.start(self.transport)
        if self._is_refused:  # by this answer
            return
        if self.refused_requests.active:
            self.refused_requests.end()
        if self.pipeline or self.transport.is_closing():
            return
        is_idle = self._unanswered() is None  # else the next request has just begun
        if self._held:
            self.loop.call_soon(self._parse_held)
        elif is_idle and self._deferred is not None:
            self._send_refusal(self._deferred)
        elif is_idle and self._is_last and self._waits_for != "body":
            self.transport.close()
        else:
            self._body_deadline.restart(self.loop.time())
            self._watch()

    def _parse_held(self) -> None:
        if self.transport.is_closing() or self._is_refused:
            return
        self._unset_keepalive_if_required()
        held, self._held = self._held, b""
        self._pausable.release()
        self._parse(held)

    def _end_after_answer(self) -> None:
        """Let no request follow the one that is being answered, and read no more of its body."""
        if (running := self._unanswered()) is not None:
            running.transport = LastAnswerTransport(self.transport, self._end_without_rest)

    def _end_without_rest(self) -> None:
        self.pipeline.clear()
        self._linger()

    @property
    def _pausable(self) -> HoldableFlow:
        assert isinstance(self.flow, HoldableFlow)
        return self.flow

    # Refusals

    def _refuse(self, problem: Problem) -> None:
        """Answer with a problem and close. An answer that has begun is completed first."""
        if self.transport.is_closing():
            return
        self._log_refusal(problem)
        running = self._unanswered()
        if self._waits_for == "body":
            if running is None:  # the faulty request already has its answer
                self._linger()
                return
            if self.pipeline:
                self.pipeline.popleft()  # the faulty request; the requests before it are complete
        if running is not None:
            has_read_all = not running.more_body and not running.message_event.is_set()
            if running.response_started or has_read_all or running is not self.cycle:
                self._deferred = problem
                self._pausable.hold()
                self._timer.stop()
                return
            running.disconnected = True  # it must not store the part of its body that came
            running.waiting_for_100_continue = False
            running.message_event.set()
        self._send_refusal(problem)

    def _log_refusal(self, problem: Problem) -> None:
        peer = plain_address(self.client[0]) if self.client else None
        self.refused_requests.occurred(detail=f"{peer or 'unknown'}: {problem.detail}")

    def _send_refusal(self, problem: Problem) -> None:
        self.transport.write(refusals.answer(problem, self.server_state.default_headers))
        self._linger()

    def _linger(self) -> None:
        """Take no more requests. Close after the client has had time to read its answer."""
        self._is_refused = True
        self._held = b""
        self._unset_keepalive_if_required()
        self._pausable.release()
        if self.transport.can_write_eof():  # not with TLS
            self.transport.write_eof()
        self._timer.start("end", _LINGER_SECONDS)

    # Time

    def _watch(self) -> None:
        """Start the timer if the client must send the next bytes; stop it if the agent must."""
        if self._held or self._is_refused:
            self._timer.stop()
        elif self._waits_for == "body":
            self._timer.start("body", self.limits.body_seconds)
        elif self._unanswered() is None and self.timeout_keep_alive_task is None:
            self._timer.start("headers", self.limits.header_seconds)
        else:
            self._timer.stop()

    def _on_timeout(self, purpose: TimerPurpose) -> None:
        if self.transport.is_closing():
            return
        if purpose == "body":
            self._on_body_timeout()
        elif purpose == "headers" and (self._unparsed or self._waits_for == "headers"):
            self._refuse(refusals.headers_too_slow(self.limits.header_seconds))
        else:
            self.transport.close()

    def _on_body_timeout(self) -> None:
        running, now = self._unanswered(), self.loop.time()
        if running is not None and running.response_started:
            return  # a stream; nobody reads the body of its request
        if running is not None and (running is not self.cycle or self.flow.read_paused):
            self._body_deadline.restart(now)  # the agent is slow, not the client
        left = self._body_deadline.left(now)
        if left > 0:
            self._timer.start("body", left)
        elif running is None:  # answered before its body was complete
            self.transport.close()
        else:
            self._refuse(refusals.body_too_slow(self.limits.body_seconds))

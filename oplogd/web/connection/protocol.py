"""One HTTP connection: uvicorn's protocol with bounds on size and time, and without upgrades.

uvicorn stops at a request that offers an upgrade, and loses its body. Here the request is parsed
again without the offer. The connection itself refuses a request if the bytes are not HTTP, if its
headers are too large, or if headers or body are too slow. Pipelined requests wait as bytes until
the requests before them are answered.
"""

import asyncio
import logging
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from oplogd.config.settings import Settings
from oplogd.errors import StartupError
from oplogd.host.descriptors import Descriptors
from oplogd.host.logs import Episode
from oplogd.web.connection.flow import HoldableFlow, LastAnswerTransport
from oplogd.web.connection.framing import (
    expects_100_continue,
    framing_problem,
    head_without_upgrade,
    incomplete_body,
    not_http,
    wants_stream,
    whole_answer,
    with_plain_cookies,
)
from oplogd.web.connection.short_way import ShortWay, ShortWayProtocol
from oplogd.web.http.problem import RETRY_AFTER, Problem

MAX_HEADERS = 256

# Bytes parsed at a time. The bounds are checked after each piece. A piece also bounds the number of
# pipelined requests.
_PIECE = 4096

# Time for a refused client to read its answer while the agent stops. The server then waits two
# seconds for its connections.
_STOP_LINGER_SECONDS = 1.0

_QUIET_SECONDS = 60.0

# Parts of uvicorn that ``HttpProtocol`` overrides or calls although they are not public.
_PARTS = (
    "_start_asgi_task",
    "_unset_keepalive_if_required",
    "on_response_complete",
    "timeout_keep_alive_handler",
)

logger = logging.getLogger("oplogd.http")


class HttpProtocol(ShortWayProtocol):
    """Subclassed by ``protocol_class``, since uvicorn makes the instances."""

    __slots__ = ("_fault", "_head_bytes")

    descriptors: Descriptors

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # uvicorn's own parser skips bytes after a request with `Connection: close`, so it would
        # miss a body longer than announced.
        self.parser = httptools.HttpRequestParser(self)
        self._head_bytes = 0
        # The reason for which a callback ended the parsing.
        self._fault: Problem | None = None

    # Connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = HoldableFlow(transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and not self.descriptors.admits(sock.fileno()):
            problem = Problem(
                503, "the agent has too many connections; try again later", RETRY_AFTER
            )
            transport.write(whole_answer(problem, self.server_state.default_headers))
            self._is_refused = True
            transport.close()
            return
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.end()
        self._idle.end()
        self._answer_watch.stop()
        self._held = b""
        if (running := self._unanswered()) is not None:
            running.disconnected = True
            running.message_event.set()
            if self._waits_for == "body" and not self._is_refused:
                self._log_refusal(incomplete_body())
        self.pipeline.clear()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn always closes
        """Return whether the connection stays open, to answer complete requests."""
        if self._is_refused:
            return False
        running = self._unanswered()
        if self._waits_for == "body" and not self._deferred:
            if running is None:  # answered before its body was complete
                return False
            self._refuse(incomplete_body())
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
            self._refuse(
                Problem(
                    503,
                    "the agent is stopping; send the whole body again, to another agent or later",
                    RETRY_AFTER,
                )
            )
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
                self._refuse(self._fault or not_http(str(error)))
                self._begin_plain()
                return
        self._begin_plain()
        self._watch()

    def _parse_piece(self, piece: bytes) -> int:
        """Return the number of parsed bytes. Raises HttpParserError. See ``_fault``."""
        self._unparsed += len(piece)
        used = len(piece)
        if self.parser is None:  # a stream has dropped it
            self.parser = httptools.HttpRequestParser(self)
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as offer:
            used = offer.args[0]
            self._parse_without_upgrade()
        if self._unparsed:
            self._require_small_headers(self._unparsed)
        return used

    def _parse_without_upgrade(self) -> None:
        """Parse the headers again without ``Upgrade``, so that the body belongs to the request."""
        method, version = self.parser.get_method(), self.parser.get_http_version()
        if method == b"CONNECT":
            self._fail(
                Problem(
                    405,
                    "CONNECT is not allowed; the agent is not a proxy",
                    {"Allow": "GET, HEAD, OPTIONS, POST"},
                )
            )
        head = head_without_upgrade(method, self.url, version, self.headers)
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(head)

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self._waits_for = "headers"
        self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        self.url += url
        self._head_bytes += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._waits_for == "body":  # a trailer is not a header
            return
        self._head_bytes += len(name) + len(value) + 4
        self.headers.append((name.lower(), value))
        if len(self.headers) > MAX_HEADERS:
            self._fail(Problem(431, f"the request has more than {MAX_HEADERS} headers"))

    def on_headers_complete(self) -> None:
        self._require_small_headers(self._head_bytes)
        if self.parser.should_upgrade():
            return  # HttpParserUpgrade follows
        if problem := framing_problem(self.parser.get_http_version(), self.headers):
            self._fail(problem)
        self._unparsed = 0
        self._waits_for = "body"
        self._body_deadline.restart(self.loop.time())
        if self._take_short_way():
            return
        self.expect_100_continue = expects_100_continue(self.headers)
        self.headers = with_plain_cookies(self.headers)
        self.scope = self._scope(self.headers)
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

    def _require_small_headers(self, size: int) -> None:
        most = self.settings.max_header_size
        if size > most:
            self._fail(
                Problem(431, f"the headers have more than {most:,} bytes (--max-header-size)")
            )

    def _fail(self, fault: Problem) -> None:
        """End the parsing, also from a callback of the parser."""
        self._fault = fault
        raise httptools.HttpParserError(fault.detail)


def protocol_class(
    agent_settings: Settings, agent_descriptors: Descriptors, agent_short_way: ShortWay
) -> type[HttpProtocol]:
    """Return the class for uvicorn's option ``http``.

    Raises StartupError if uvicorn lacks a part: without it requests would have no bound on their
    time.
    """
    if missing := [name for name in _PARTS if not hasattr(HttpToolsProtocol, name)]:
        raise StartupError(
            f"uvicorn {uvicorn.__version__} does not fit: it has no {', '.join(missing)};"
            " install oplog with -c constraints.txt"
        )

    class LimitedHttpProtocol(HttpProtocol):
        __slots__ = ()
        descriptors = agent_descriptors
        settings = agent_settings
        short_way = agent_short_way
        refused_requests = Episode(
            logger, "refused a request", quiet=_QUIET_SECONDS, level=logging.INFO
        )

    return LimitedHttpProtocol

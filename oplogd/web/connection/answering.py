"""One HTTP connection: its answers, refusals and time. ``protocol`` parses its requests."""

from typing import Any, Literal

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from oplogd.config.settings import Settings
from oplogd.host.logs import Episode
from oplogd.web.connection.flow import HoldableFlow, LastAnswerTransport, Pipeline
from oplogd.web.connection.forwarded import plain_address
from oplogd.web.connection.framing import RawHeader, whole_answer
from oplogd.web.connection.timing import (
    MIN_BODY_RATE,
    BodyDeadline,
    IdleTimer,
    Timer,
    TimerPurpose,
)
from oplogd.web.connection.unsent import AnswerWatch
from oplogd.web.http.problem import Problem

# Time for a refused client to read its answer. An immediate close would reset the connection and
# lose the answer.
_LINGER_SECONDS = 2.0


class AnsweringProtocol(HttpToolsProtocol):
    """Answers requests one after another, and refuses faulty and slow ones."""

    # uvicorn's attributes are in a dictionary, which more of them would make five times as large.
    __slots__ = (
        "_answer_watch", "_body_deadline", "_deferred", "_held", "_idle", "_is_last", "_is_refused",
        "_running", "_timer", "_unparsed", "_waits_for",
    )  # fmt: skip

    settings: Settings
    refused_requests: Episode

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pipeline = Pipeline()  # type: ignore[assignment]  # uvicorn has a deque
        self._running: RequestResponseCycle | None = None
        # The next part of a request for the parser.
        self._waits_for: Literal["request", "headers", "body"] = "request"
        # Bytes received since the headers, a chunk or the trailers were complete.
        self._unparsed = 0
        self._body_deadline = BodyDeadline(self.settings.body_timeout)
        self._timer = Timer(self.loop, self._on_timeout)
        self._idle: Any = IdleTimer(
            self.loop, self.timeout_keep_alive, self.timeout_keep_alive_handler
        )
        # Pipelined requests, not yet parsed.
        self._held = b""
        # A refusal to send after the present answer.
        self._deferred: Problem | None = None
        self._is_refused = False
        # No request follows: an answer or the client has ended the connection.
        self._is_last = False
        self._answer_watch = AnswerWatch(self.loop, self.settings.stall_timeout)

    def _parse(self, data: bytes) -> None:
        """Parse requests."""
        raise NotImplementedError

    # Requests and answers

    def _scope(self, headers: list[RawHeader]) -> Any:
        """Return the scope of a request, still without its method and path."""
        # ASGI has no messages for these.
        extensions = {
            "oplog.abort": self.transport.abort,
            "oplog.end": self._end_after_answer,
            "oplog.watch": self._answer_watch.expect_parts,
        }
        return {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": "1.1",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": self.root_path,
            "headers": headers,
            "state": self.app_state.copy(),
            "extensions": extensions,
        }

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _unanswered(self) -> RequestResponseCycle | None:
        """Return the request being answered, None if there is none."""
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
        """Begin the next request, as uvicorn does, or wait for it."""
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self._unset_keepalive_if_required()
            self.flow.resume_reading()
            if self.pipeline:
                cycle, app = self.pipeline.pop()
                self._start_asgi_task(cycle, app)
            else:
                self._idle.restart()
                self.timeout_keep_alive_task = self._idle
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
        """Let no request follow the one being answered, and read no more of its body."""
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
        """Answer with a problem and close. An answer already begun is completed first."""
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
        self.transport.write(whole_answer(problem, self.server_state.default_headers))
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
        """Start the timer if the client must send the next bytes, else stop it."""
        if self._held or self._is_refused:
            self._timer.stop()
        elif self._waits_for == "body":
            self._timer.start("body", self.settings.body_timeout)
        elif self._unanswered() is None and self.timeout_keep_alive_task is None:
            self._timer.start("headers", self.settings.header_timeout)
        else:
            self._timer.stop()

    def _on_timeout(self, purpose: TimerPurpose) -> None:
        if self.transport.is_closing():
            return
        if purpose == "body":
            self._on_body_timeout()
        elif purpose == "headers" and (self._unparsed or self._waits_for == "headers"):
            seconds = self.settings.header_timeout
            self._refuse(
                Problem(408, f"the headers took longer than {seconds:g} s (--header-timeout)")
            )
        else:
            self.transport.close()

    def _on_body_timeout(self) -> None:
        running, now = self._unanswered(), self.loop.time()
        if running is not None and running.response_started:
            return  # a stream: the body of its request is not read
        if running is not None and (running is not self.cycle or self.flow.read_paused):
            self._body_deadline.restart(now)  # the agent is slow, not the client
        left = self._body_deadline.left(now)
        if left > 0:
            self._timer.start("body", left)
        elif running is None:  # answered before its body was complete
            self.transport.close()
        else:
            seconds = self.settings.body_timeout
            self._refuse(
                Problem(
                    408,
                    f"the body came too slowly: nothing for {seconds:g} s (--body-timeout),"
                    f" or less than {MIN_BODY_RATE:,} bytes per second",
                )
            )

"""The sink for a URL with POST, a webhook."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import httpx
import msgspec

from oplog_pipe.errors import SinkError, TargetError
from oplog_pipe.message import Message
from oplog_pipe.model import checks
from oplog_pipe.model.fields import TLS, USER, Field, Kind, timeout
from oplog_pipe.model.options import SinkOptions, TlsOptions
from oplog_pipe.model.reasons import of_status, of_url
from oplog_pipe.sinks.base import Sink
from oplog_pipe.sinks.parts.calls import Requests, check_headers
from oplog_pipe.sinks.parts.lines import encode_lines, full_line, version_text
from oplogc.http.address import Endpoint
from oplogc.http.answers import Answer
from oplogc.http.client import NoAnswer

_MAX_ANSWER_BYTES = 64_000
_TOO_LARGE = 413
# Whatever the message: wrong password, wrong address.
_OF_TARGET = (401, 403, 404, 405, 407, 410)


@dataclass(frozen=True)
class HttpSinkOptions(SinkOptions):
    """``headers``: sent with each request; they may hold secrets."""

    type_name = "http"
    hints = ("rest", "webhook")
    settings = (
        Field(
            "url",
            Kind.HOOK,
            "Address to which batches are sent with POST. Its path and query are hidden.",
            check=checks.http_url,
            required="give the address of the receiver, such as https://host/path",
            hints=("target",),
        ),
        Field(
            "format",
            Kind.CHOICE,
            "A JSON array, or a JSON object per line.",
            choices=("json", "ndjson"),
        ),
        *USER,
        Field("headers", Kind.SECRET_MAPPING, "Headers of each request. Their values are hidden."),
        timeout("Time for one request."),
        Field("copies", Kind.FLAG, "Tell the receiver when copies begin and end."),
        *TLS,
    )

    url: str = field(repr=False)
    format: Literal["json", "ndjson"] = "json"
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 10.0
    copies: bool = False
    tls: TlsOptions = field(default_factory=TlsOptions)

    def sink(self, namespace: str, root: Path) -> "HttpSink":
        return HttpSink(self)


class HttpSink(Sink):
    """Sends each batch in one POST request. A status of 2xx acknowledges it. Opening sends nothing.

    - No answer, 408, 425, 429 and 5xx are transient. ``Retry-After`` delays the next request.
    - After 413 the batch is sent in two halves, one after the other.
    - Every other status is permanent. Redirects are not followed.

    Errors have no path, which may be a secret, and no body, which may quote messages.
    """

    def __init__(
        self, options: HttpSinkOptions, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``clock``: seconds. Raises ValueError for an unusable option."""
        self._to = _endpoint(options)
        self._url = of_url(str(self._to.url))
        self._is_array = options.format == "json"
        self.removes_at_end_of_copy = options.copies
        media_type = "application/json" if self._is_array else "application/x-ndjson"
        check_headers(options.headers, "headers")
        self._headers = {"Content-Type": media_type, **options.headers}
        self._requests = Requests(options.tls, options.timeout, _MAX_ANSWER_BYTES)
        self._clock = clock
        self._wait_until = 0.0

    def write(self, messages: Sequence[Message]) -> None:
        self._post(encode_lines(messages, full_line), 0)

    def begin_copy(self, generation: int, source: str) -> None:
        self._announce("begin_copy", generation, source)

    def end_copy(self, generation: int, source: str) -> None:
        self._announce("end_copy", generation, source)

    def abandon_copy(self, generation: int, source: str) -> None:
        self._announce("abandon_copy", generation, source)

    def close(self) -> None:
        self._requests.close()

    def _announce(self, op: str, generation: int, source: str) -> None:
        if self.removes_at_end_of_copy:
            notice = {"op": op, "source": source, "generation": version_text(generation)}
            self._post([msgspec.json.encode(notice) + b"\n"], None)

    def _post(self, lines: Sequence[bytes], start: int | None) -> None:
        """Send lines. ``start``: number of the first one in the batch; None: of a notice."""
        body = b"[" + b",".join(line[:-1] for line in lines) + b"]"
        answer = self._ask(body if self._is_array else b"".join(lines))
        if answer.status // 100 == 2:
            return
        if answer.status == _TOO_LARGE and len(lines) > 1 and start is not None:
            half = len(lines) // 2
            self._post(lines[:half], start)
            self._post(lines[half:], start + half)
            return
        reason = f"{self._url}: {of_status(answer.status)}"
        if answer.passes:
            self._wait_until = self._clock() + answer.retry_after
            raise SinkError(reason, transient=True)
        if answer.status // 100 == 3:
            to = f" to {of_url(answer.location)}" if answer.location else ""
            raise TargetError(f"url: {self._url} redirects{to}; give the address of the receiver")
        if answer.status in _OF_TARGET:
            raise TargetError(reason)
        raise SinkError(reason, index=start if len(lines) == 1 else None)

    def _ask(self, body: bytes) -> Answer:
        left = self._wait_until - self._clock()
        if left > 0:
            raise SinkError(f"{self._url}: asks for a pause, {left:.0f} s are left", transient=True)
        answer = self._requests.ask("POST", self._to, body, self._headers)
        if isinstance(answer, NoAnswer):
            raise SinkError(f"{self._url}: {answer.reason}", transient=True)
        return answer


def _endpoint(options: HttpSinkOptions) -> Endpoint:
    """Return the address, with user and password as Basic auth. Raises ValueError."""
    try:
        urlsplit(options.url).port  # noqa: B018  # raises for a number beyond 65535
        url = httpx.URL(options.url)
        url.host.encode("idna")
    except (ValueError, httpx.InvalidURL):
        url = httpx.URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError("url: is no address such as https://receiver.example/hook")
    user, password = options.user or url.username, options.password or url.password
    auth = httpx.BasicAuth(user, password) if user or password else None
    return Endpoint(url.copy_with(userinfo=b"", fragment=None), auth)

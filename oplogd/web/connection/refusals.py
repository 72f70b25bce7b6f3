"""Answers that a connection itself gives to requests that it refuses. No I/O."""

from collections.abc import Iterable

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from oplogd.web.connection.limits import MAX_HEADERS, MIN_BODY_RATE
from oplogd.web.http.problem import Problem

_RETRY = {"Retry-After": "1"}


def incomplete_body() -> Problem:
    return Problem(400, "the connection ended before the whole body came")


def no_descriptor() -> Problem:
    return Problem(503, "the agent has too many connections; try again later", _RETRY)


def stopping() -> Problem:
    return Problem(
        503, "the agent is stopping; send the whole body again, to another agent or later", _RETRY
    )


def unconfirmed() -> Problem:
    return Problem(
        503, "not confirmed, it may still be stored: the agent is stopping; try again", _RETRY
    )


def not_http(reason: str) -> Problem:
    if "PRI/Upgrade" in reason:
        return Problem(400, "HTTP/2 is not supported; use HTTP/1.1")
    return Problem(400, f"the request is not HTTP/1.1: {reason}")


def tunnel() -> Problem:
    return Problem(
        405,
        "CONNECT is not allowed; the agent is not a proxy",
        {"Allow": "GET, HEAD, OPTIONS, POST"},
    )


def too_many_headers() -> Problem:
    return Problem(431, f"the request has more than {MAX_HEADERS} headers")


def headers_too_large(size: int) -> Problem:
    return Problem(431, f"the headers have more than {size:,} bytes (--max-header-size)")


def headers_too_slow(seconds: float) -> Problem:
    return Problem(408, f"the headers took longer than {seconds:g} s (--header-timeout)")


def body_too_slow(seconds: float) -> Problem:
    return Problem(
        408,
        f"the body came too slowly: nothing for {seconds:g} s (--body-timeout),"
        f" or less than {MIN_BODY_RATE:,} bytes per second",
    )


def answer(problem: Problem, default_headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the bytes of the whole answer, the last of its connection."""
    response = problem.response()
    headers = [*default_headers, *response.raw_headers, (b"connection", b"close")]
    lines = [b"%s: %s\r\n" % header for header in headers]
    return b"".join([STATUS_LINE[problem.status], *lines, b"\r\n", bytes(response.body)])

"""Answers that a connection itself gives to requests that it refuses. No I/O."""

from collections.abc import Iterable

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from oplogd.web.http.problem import Problem


def incomplete_body() -> Problem:
    return Problem(400, "the connection ended before the whole body came")


def not_http(reason: str) -> Problem:
    if "PRI/Upgrade" in reason:
        return Problem(400, "HTTP/2 is not supported; use HTTP/1.1")
    return Problem(400, f"the request is not HTTP/1.1: {reason}")


def whole_answer(problem: Problem, default_headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the bytes of the whole answer, the last of its connection."""
    response = problem.response()
    headers = [*default_headers, *response.raw_headers, (b"connection", b"close")]
    lines = [b"%s: %s\r\n" % header for header in headers]
    return b"".join([STATUS_LINE[problem.status], *lines, b"\r\n", bytes(response.body)])

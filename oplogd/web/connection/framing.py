"""Rules on the framing headers of a request, and answers to requests against the rules. No I/O."""

from collections.abc import Iterable, Sequence

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from oplogd.web.http.problem import Problem

RawHeader = tuple[bytes, bytes]


def framing_problem(version: str, headers: Iterable[RawHeader]) -> Problem | None:
    """Return the reason to refuse a version of HTTP or a Transfer-Encoding, None if both are good.

    Names in ``headers`` are in lower case.
    """
    if version not in ("1.0", "1.1"):
        return Problem(400, f"HTTP/{version} is not supported; use HTTP/1.1")
    for name, value in headers:
        if name == b"transfer-encoding" and (
            version == "1.0" or value.strip().lower() != b"chunked"
        ):
            return Problem(400, "Transfer-Encoding: must be chunked, and only in HTTP/1.1")
    return None


def head_without_upgrade(
    method: bytes, target: bytes, version: str, headers: Iterable[RawHeader]
) -> bytes:
    """Return the request line and headers as bytes, without the header ``Upgrade``."""
    lines = [b"%s %s HTTP/%s" % (method, target, version.encode())]
    lines += [b"%s: %s" % header for header in headers if header[0] != b"upgrade"]
    return b"\r\n".join([*lines, b"", b""])


def with_plain_cookies(headers: Sequence[RawHeader]) -> list[RawHeader]:
    """Return the headers with each ``Cookie`` without backslashes, which no cookie may hold.

    ``http.cookies`` of Python before 3.11.10 takes seconds to read 60 KB of escapes.
    """
    return [
        (name, value.replace(b"\\", b"")) if name == b"cookie" else (name, value)
        for name, value in headers
    ]


def expects_100_continue(headers: Iterable[RawHeader]) -> bool:
    """Return whether the client waits for ``100 Continue`` before it sends the body."""
    return any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)


def wants_stream(headers: Iterable[RawHeader]) -> bool:
    """Return whether the header Accept asks for a stream."""
    return any(name == b"accept" and b"event-stream" in value.lower() for name, value in headers)


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

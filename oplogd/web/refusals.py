"""What a connection says when it refuses a request itself. No I/O."""

from oplogd.web.problem import Problem


def broken_off() -> Problem:
    return Problem(400, "the connection ended before the whole body came")


def not_http(reason: str) -> Problem:
    if "PRI/Upgrade" in reason:
        return Problem(400, "HTTP/2 is not spoken here; use HTTP/1.1")
    return Problem(400, f"the request is not HTTP/1.1: {reason}")


def headers_too_large(size: int) -> Problem:
    return Problem(431, f"the headers have more than {size:,} bytes (--max-header-size)")


def headers_too_slow(seconds: float) -> Problem:
    return Problem(408, f"the headers took longer than {seconds:g} s (--header-timeout)")


def body_too_slow(seconds: float, rate: int) -> Problem:
    return Problem(
        408,
        f"the body came too slowly: nothing for {seconds:g} s (--body-timeout), or less than {rate:,} bytes per second",
    )

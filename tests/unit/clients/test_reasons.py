"""The reason of a request without an answer."""

import errno
import socket
import ssl

import httpx
import pytest

from oplogc.http.answers import describe

REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed")
NO_ROUTE = OSError(errno.EHOSTUNREACH, "Connect call failed")
ALL_FAILED = "All connection attempts failed"


def failed(*causes: Exception, text: str = ALL_FAILED) -> httpx.ConnectError:
    """Return the error of a client whose attempts at some addresses failed."""
    error = httpx.ConnectError(text)
    error.__cause__ = OSError(text)
    error.__cause__.__cause__ = causes[0] if len(causes) == 1 else ExceptionGroup("all", causes)
    return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (failed(REFUSED), "connection refused: is oplogd running there?"),
        (failed(NO_ROUTE, REFUSED), "connection refused: is oplogd running there?"),
        (failed(NO_ROUTE), "no route to host"),
        (failed(ssl.SSLError(1, "no trust"), text="no trust"), "no trust"),
        (failed(socket.gaierror(-2, "unknown"), text="unknown"), "unknown"),
        (httpx.ConnectError("something else"), "something else"),
        (httpx.ReadError(""), "ReadError"),
    ],
)
def test_a_reason_names_the_cause(error: httpx.RequestError, reason: str) -> None:
    assert describe(error, "oplogd") == reason


def test_a_server_of_another_kind_is_not_asked_for() -> None:
    assert describe(failed(REFUSED)) == "connection refused"

"""Plain requests, which may take the short way: their connection answers them without the app.

An endpoint of the short way begins the work of a request, or leaves the request to the app. It
leaves all that it does not know exactly and all that it would refuse, before it has counted or
stored anything. So the rules and the words of a refusal stand in one place.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from oplogd.errors import OplogError
from oplogd.stream.connection import Outlet, StreamConnection


class PlainRequest(NamedTuple):
    """A whole POST without a query, or a GET without a body.

    ``address``, ``port``: of the client. Without an address it is unknown.
    """

    headers: Mapping[bytes, bytes]
    body: bytearray
    address: str
    port: int = 0
    query: bytes = b""


class Answer(NamedTuple):
    """``lines``: its own headers, see ``header_lines``.

    ``stream``: makes the stream that is its body. It must be called.
    """

    status: int
    lines: bytes
    body: bytes = b""
    stream: Callable[[Outlet], StreamConnection] | None = None


class Work(NamedTuple):
    """The work on a request. ``done``: ends it.

    ``answer``: called once it has ended without an error. ``refusal``: returns the error to answer
    with for an error of the agent.
    """

    done: "asyncio.Future[Any]"
    answer: Callable[[], Answer]
    refusal: Callable[[OplogError], Exception]


# Begins to answer a request. None: the app must answer it.
Begin = Callable[[PlainRequest], Work | None]


def answered_by(answering: Coroutine[Any, Any, Answer]) -> Work:
    """Return the work of a coroutine that returns or raises what to answer with."""
    task = asyncio.get_running_loop().create_task(answering)
    return Work(task, task.result, lambda error: error)


def header_lines(headers: Mapping[str, str], body: bytes | None, media_type: str = "") -> bytes:
    """Return the lines of an answer's own headers, as an answer of the app has them.

    ``body`` None: a status without a body.
    """
    lines = [f"{name.lower()}: {value}\r\n" for name, value in headers.items()]
    if body is not None:
        lines.append(f"content-length: {len(body)}\r\n")
    if media_type:
        lines.append(f"content-type: {media_type}\r\n")
    return "".join(lines).encode("latin-1")

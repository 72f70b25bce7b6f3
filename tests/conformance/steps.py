"""Steps of a scripted answer: raw bytes, or the values of this module. No I/O.

The server replaces some words in bytes: ``%HERE%`` and ``%OTHER%`` by its two ports, ``%DATE+n%``
by an HTTP date n to n + 1 seconds ahead.
"""

import enum
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class Do(enum.Enum):
    READ = "wait until the client has read all bytes sent"
    HOLD = "wait until the client closes the connection"
    CLOSE = "close the connection"
    RESET = "reset the connection"
    LISTEN = "first step only: refuse connections until the client has logged a failure"
    FILL_DISK = "fill the file system of the state file"


@dataclass(frozen=True)
class Printed:
    """Wait until the client has printed this many events."""

    events: int


@dataclass(frozen=True)
class Told:
    """Wait until the client's stderr matches this pattern."""

    pattern: str


@dataclass(frozen=True)
class Drip:
    """Send ``piece`` every ``seconds``, until the client has printed ``events`` or closes."""

    piece: bytes
    seconds: float = 0.05
    events: int | None = None
    times: int | None = None


@dataclass(frozen=True)
class Signal:
    """Send a signal to the client."""

    number: int = signal.SIGTERM


@dataclass(frozen=True)
class WriteState:
    """Replace the state file."""

    text: str


@dataclass(frozen=True)
class StateHolds:
    """Wait until the state file holds this text."""

    text: str


@dataclass(frozen=True)
class Ingest:
    """Answer a batch as an agent: 413 beyond ``lines`` operations or with one of ``too_large``.

    ``bad``: ids of invalid operations. The answer is 400 and names their lines. ``wide_after``:
    number of requests after which the limit ends.
    """

    lines: int = 1_000_000
    too_large: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()
    wide_after: int = 1_000_000


Step = bytes | Do | Printed | Told | Drip | Signal | WriteState | StateHolds | Ingest
Script = Sequence[Step]

JSON = "Content-Type: application/json"
PROBLEM = "Content-Type: application/problem+json"
SSE = "Content-Type: text/event-stream; charset=utf-8"
# Every client tries again after these.
BUSY = (
    "408 Request Timeout",
    "425 Too Early",
    "429 Too Many Requests",
    "500 Internal Server Error",
    "502 Bad Gateway",
    "503 Service Unavailable",
    "504 Gateway Timeout",
)


def answer(status: str, body: bytes | str = b"", *headers: str) -> bytes:
    """Return a whole answer with its length. The connection stays open."""
    raw = body.encode() if isinstance(body, str) else body
    return (
        "\r\n".join(
            [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(raw)}", "", ""]
        ).encode()
        + raw
    )


def problem(status: str, detail: str, *headers: str) -> bytes:
    body = f'{{"title": "{status[4:]}", "status": {status[:3]}, "detail": "{detail}"}}'
    return answer(status, body, PROBLEM, *headers)


def head(*headers: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode()


EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </style>\r\n\r\n"
STREAM_HEAD = head(
    SSE, "Cache-Control: no-cache", "Transfer-Encoding: chunked", "Connection: close"
)
UNCHUNKED_HEAD = head(SSE, "Cache-Control: no-cache", "Connection: close")
LAST_CHUNK = b"0\r\n\r\n"


def chunk(data: bytes, extension: str = "") -> bytes:
    return f"{len(data):x}{extension}\r\n".encode() + data + b"\r\n"


def pieces(step: Step) -> Step:
    """Make a chunk of bytes. Other steps stay."""
    match step:
        case bytes():
            return chunk(step)
        case Drip(piece):
            return Drip(chunk(piece), step.seconds, step.events, step.times)
        case _:
            return step


def stream(*steps: Step, end: Script = (LAST_CHUNK, Do.CLOSE)) -> Script:
    """Return an event stream with one chunk for each ``bytes``, and its end."""
    return [STREAM_HEAD, *map(pieces, steps), *end]


def cut_at(block: bytes, place: int) -> Script:
    return [block[:place], Do.READ, block[place:]]


def byte_by_byte(block: bytes) -> Script:
    return [step for byte in block for step in (bytes([byte]), Do.READ)]


def flat(scripts: Iterable[Script]) -> Script:
    return [step for script in scripts for step in script]

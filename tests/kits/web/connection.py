"""A connection that sends any bytes to an agent and reads the answers."""

import json
import socket
from collections.abc import Iterable
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.kits.agents.agent import DEADLINE, Agent

H2C = (
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"
)
NDJSON = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-ndjson\r\n"


class RawReply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def problem(self) -> str:
        """Check the form of a problem. Return its sentence."""
        assert self.headers["content-type"] == "application/problem+json", self
        assert self.json["status"] == self.status
        sentence: str = self.json["detail"]
        return sentence


class RawConnection:
    def __init__(self, agent: Agent) -> None:
        self.socket = socket.create_connection(("127.0.0.1", agent.port), timeout=DEADLINE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self.socket.makefile("rb")

    def send(self, *packets: bytes) -> Self:
        for packet in packets:
            self.socket.sendall(packet)
        return self

    def reply(self) -> RawReply:
        """Return the next answer, skipping 100."""
        first = self._file.readline()
        assert first.startswith(b"HTTP/1.1 "), first
        headers = {}
        while (line := self._file.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        status = int(first.split()[1])
        if status == 100:
            return self.reply()
        return RawReply(status, headers, self._file.read(int(headers.get("content-length", 0))))

    def rest(self) -> bytes:
        """Return all bytes until the agent closes the connection."""
        return self._file.read()

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Growth:
    """Counts the operations stored since this object was made."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._before = agent.status()["events_ingested"]

    def __call__(self) -> int:
        grown: int = self._agent.status()["events_ingested"] - self._before
        return grown


def lines(count: int, first: int = 0) -> bytes:
    """Return NDJSON with ``count`` operations."""
    numbers = range(first, first + count)
    return b"".join(b'{"event":"insert","type":"thing","id":"%d"}\n' % number for number in numbers)


def length(body: bytes) -> bytes:
    """Return the Content-Length of a body and the end of the headers."""
    return b"Content-Length: %d\r\n\r\n" % len(body)


def chunked(pieces: Iterable[bytes]) -> bytes:
    """Return pieces as chunks, after the header Transfer-Encoding."""
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"

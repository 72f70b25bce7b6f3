"""HTTP over a plain socket, and event streams as bytes. Nothing an agent sends is repaired or
hidden.
"""

import json
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self
from urllib.parse import quote, urlsplit

from tests.kits.agents.agent import DEADLINE, Agent

JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}
SSE = {"Accept": "text/event-stream"}

RESET = b"id: 1\nevent: reset\ndata:\n\n"
HEX_ID = re.compile(rb"[0-9a-f]{24}")

Headers = Mapping[str, str] | Sequence[tuple[str, str]]


class Reply(NamedTuple):
    """``headers`` as sent, in their order."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return _one(self.headers, name)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def problem(self) -> str:
        """Check the form of an error answer. Return its sentence."""
        assert self.header("Content-Type") == "application/problem+json"
        problem = self.json
        assert problem["status"] == self.status
        assert problem["title"]
        assert " " in problem["detail"]
        sentence: str = problem["detail"]
        return sentence


class Target:
    """An agent under test: its address and the requests of the tests."""

    def __init__(
        self, url: str, udp: tuple[str, int] | None = None, context: ssl.SSLContext | None = None
    ) -> None:
        where = urlsplit(url)
        assert where.hostname
        self.url = url.rstrip("/")
        self.host = where.hostname
        self.port = where.port or (443 if where.scheme == "https" else 80)
        self.udp = udp or (self.host, self.port)
        self.context = context or (
            ssl.create_default_context() if where.scheme == "https" else None
        )

    @classmethod
    def of(cls, agent: Agent, context: ssl.SSLContext | None = None) -> Self:
        return cls(agent.url, ("127.0.0.1", agent.udp_port), context)

    def connect(self, receive_buffer: int | None = None) -> socket.socket:
        family = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0][0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.settimeout(DEADLINE)
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.connect((self.host, self.port))
        return self.context.wrap_socket(sock, server_hostname=self.host) if self.context else sock

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Headers = ()
    ) -> Reply:
        length = [("Content-Length", str(len(body)))] if body is not None else []
        return self.exchange(
            _head(method, path, self.host, [*_pairs(headers), *length]) + (body or b""), method
        )

    def exchange(self, raw: bytes, method: str = "GET") -> Reply:
        """Send bytes on a new connection and read one answer."""
        with self.connect() as sock, sock.makefile("rb") as file:
            sock.sendall(raw)
            status, headers = _read_head(file)
            if method == "HEAD" or status in (204, 304):
                return Reply(status, headers, b"")
            length = _one(headers, "Content-Length")
            assert length is not None, headers
            body = file.read(int(length))
            assert len(body) == int(length)
            return Reply(status, headers, body)

    def post(
        self, body: bytes | dict[str, Any] | list[Any], headers: Headers = JSON, path: str = "/"
    ) -> Reply:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request("POST", path, raw, headers)

    def store(self, *operations: dict[str, Any]) -> None:
        """Store operations in this order."""
        reply = self.post(list(operations))
        assert (reply.status, reply.json) == (200, {"ingested": len(operations)})

    def send_udp(self, *datagrams: bytes) -> None:
        kind = socket.AF_INET6 if ":" in self.udp[0] else socket.AF_INET
        with socket.socket(kind, socket.SOCK_DGRAM) as sock:
            for datagram in datagrams:
                sock.sendto(datagram, self.udp)

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.request("GET", "/status").json
        return status

    def follow(
        self, last_event_id: str | None = None, headers: Headers = SSE, /, **query: str | list[str]
    ) -> "RawStream":
        """Open a stream. Return once it has its position in the log."""
        given = [
            *_pairs(headers),
            *([("Last-Event-ID", last_event_id)] if last_event_id is not None else []),
        ]
        pairs = [
            (name, v)
            for name, value in query.items()
            for v in ([value] if isinstance(value, str) else value)
        ]
        return RawStream(self, path_with(pairs), given)


def path_with(query: Sequence[tuple[str, str]], path: str = "/ops") -> str:
    return path + (
        "?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in query) if query else ""
    )


class RawStream:
    """An event stream. ``received`` keeps all bytes of the body. Late data raises TimeoutError."""

    def __init__(
        self, target: Target, path: str, headers: Headers, receive_buffer: int | None = None
    ) -> None:
        self._socket = target.connect(receive_buffer)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._file = self._socket.makefile("rb", 0 if receive_buffer else -1)
        self._pending = b""
        self.received = bytearray()
        self.heartbeats = 0
        self._socket.sendall(_head("GET", path, target.host, _pairs(headers)))
        self.status, self.headers = _read_head(self._file)
        if self.status != 200:
            body = self._file.read(int(self.header("Content-Length") or 0))
            self.close()
            raise AssertionError(f"no stream: {self.status} {body!r}")

    def header(self, name: str) -> str | None:
        return _one(self.headers, name)

    def chunk(self) -> bytes:
        """Return one chunk of the body, empty at its proper end. Fail if the connection is cut."""
        line = self._file.readline()
        assert line.endswith(b"\r\n"), f"the stream was cut off: {line!r}"
        size = int(line, 16)
        chunk = b""
        while len(chunk) < size:
            more = self._file.read(size - len(chunk))
            assert more, "the stream was cut off"
            chunk += more
        assert self._file.readline() == b"\r\n"
        self.received += chunk
        return chunk

    def block(self) -> bytes:
        """Return the next block with its final blank line, empty at the end of the stream.

        Heartbeats are counted, not returned.
        """
        deadline = time.monotonic() + DEADLINE  # heartbeats keep the socket from its own
        while True:
            assert time.monotonic() < deadline, "nothing but heartbeats"
            while self._pending.startswith(b":\n"):
                self._pending = self._pending[2:]
                self.heartbeats += 1
            end = self._pending.find(b"\n\n")
            if end >= 0:
                block, self._pending = self._pending[: end + 2], self._pending[end + 2 :]
                return block
            chunk = self.chunk()
            if not chunk:
                assert not self._pending, f"the stream ended within a block: {self._pending!r}"
                return b""
            self._pending += chunk

    def take(self, count: int) -> list[bytes]:
        blocks = [self.block() for _ in range(count)]
        assert all(blocks), f"the stream ended: {blocks}"
        return blocks

    def until(self, event: str) -> list[bytes]:
        """Return the blocks up to the first with this event, inclusive."""
        blocks = self.take(1)
        while event_of(blocks[-1]) != event:
            blocks += self.take(1)
        return blocks

    def rest(self) -> list[bytes]:
        """Return the blocks until the agent ends the stream properly."""
        return list(iter(self.block, b""))

    def next_heartbeat(self) -> list[bytes]:
        """Wait for one more heartbeat. Return the blocks before it."""
        blocks = []
        while not self._pending.startswith(b":\n"):
            if b"\n\n" in self._pending:
                blocks.append(self.block())
            else:
                chunk = self.chunk()
                assert chunk, "the stream ended without a heartbeat"
                self._pending += chunk
        self._pending = self._pending[2:]
        self.heartbeats += 1
        return blocks

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def wait_until(condition: Callable[[], bool]) -> bool:
    """Repeat until the condition holds. Return False after the deadline."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def lines_of(block: bytes) -> Iterator[tuple[str, str]]:
    for line in block[:-2].decode().split("\n"):
        name, _, value = line.partition(":")
        yield name, value.removeprefix(" ")


def event_of(block: bytes) -> str:
    """Return the name of the event, empty for a block with only an id."""
    return dict(lines_of(block)).get("event", "")


def id_of(block: bytes) -> str:
    return dict(lines_of(block))["id"]


def data_of(block: bytes) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(dict(lines_of(block))["data"])
    return data


def said(block: bytes) -> tuple[str, str]:
    """Return the event and the object of a block, e.g. ``("insert", "a")``; reset and live have no
    object.
    """
    data = dict(lines_of(block)).get("data")
    return event_of(block), json.loads(data)["id"] if data else ""


def frame(id_: str, event: str, data: str) -> bytes:
    """Return a block in the form of the wire contract."""
    return f"id: {id_}\nevent: {event}\ndata: {data}\n\n".encode()


def operation(event: str, id_: str, type_: str, *parents: str) -> dict[str, Any]:
    return {"event": event, "type": type_, "id": id_, "parents": list(parents)}


def fresh_type() -> str:
    """Return an unused type, so that a filter passes only one test."""
    return "t" + os.urandom(8).hex()


def _pairs(headers: Headers) -> list[tuple[str, str]]:
    return list(headers.items()) if isinstance(headers, Mapping) else list(headers)


def _head(method: str, path: str, host: str, headers: list[tuple[str, str]]) -> bytes:
    name = f"[{host}]" if ":" in host else host
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {name}",
        *(f"{name}: {value}" for name, value in headers),
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def _read_head(file: Any) -> tuple[int, list[tuple[str, str]]]:
    first = file.readline()
    assert first.startswith(b"HTTP/1.1 "), first
    headers = []
    while (line := file.readline()) != b"\r\n":
        assert line.endswith(b"\r\n"), line
        name, _, value = line.decode("latin-1").partition(":")
        headers.append((name, value.strip()))
    return int(first.split()[1]), headers


def _one(headers: list[tuple[str, str]], name: str) -> str | None:
    values = [value for key, value in headers if key.lower() == name.lower()]
    assert len(values) <= 1, f"{name} was sent {len(values)} times"
    return values[0] if values else None

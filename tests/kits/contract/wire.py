"""HTTP over a plain socket, and event streams as bytes. Nothing an agent sends is repaired or
hidden.
"""

import json
import os
import re
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self
from urllib.parse import quote, urlsplit

from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clock.waiting import attempts
from tests.kits.sse.heads import Headers as Headers
from tests.kits.sse.heads import one, pairs_of, read_head, request_head
from tests.kits.sse.stream import Reader, connect, fields_of

JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}
SSE = {"Accept": "text/event-stream"}

RESET = b"id: 1\nevent: reset\ndata:\n\n"
HEX_ID = re.compile(rb"[0-9a-f]{24}")


class Reply(NamedTuple):
    """``headers`` as sent, in their order."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return one(self.headers, name)

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
        sock = connect(self.host, self.port, receive_buffer)
        return self.context.wrap_socket(sock, server_hostname=self.host) if self.context else sock

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Headers = ()
    ) -> Reply:
        length = [("Content-Length", str(len(body)))] if body is not None else []
        return self.exchange(
            request_head(method, path, self.host, [*pairs_of(headers), *length]) + (body or b""),
            method,
        )

    def exchange(self, raw: bytes, method: str = "GET") -> Reply:
        """Send bytes on a new connection and read one answer."""
        with self.connect() as sock, sock.makefile("rb") as file:
            sock.sendall(raw)
            status, headers = read_head(file)
            if method == "HEAD" or status in (204, 304):
                return Reply(status, headers, b"")
            length = one(headers, "Content-Length")
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
            *pairs_of(headers),
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


class RawStream(Reader[bytes]):
    """An event stream as bytes. ``received`` keeps all bytes of the body that were read."""

    def __init__(
        self, target: Target, path: str, headers: Headers, receive_buffer: int | None = None
    ) -> None:
        self.received = bytearray()
        super().__init__(
            target.connect(receive_buffer), request_head("GET", path, target.host, headers)
        )

    def _read(self, block: bytes) -> bytes:
        return block

    def chunk(self) -> bytes:
        chunk = super().chunk()
        self.received += chunk
        return chunk


def wait_until(condition: Callable[[], bool]) -> bool:
    """Repeat until the condition holds. Return False after the deadline."""
    return any(condition() for _ in attempts(DEADLINE))


def event_of(block: bytes) -> str:
    """Return the name of the event, empty for a block with only an id."""
    return fields_of(block).get("event", "")


def id_of(block: bytes) -> str:
    return fields_of(block)["id"]


def data_of(block: bytes) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(fields_of(block)["data"])
    return data


def said(block: bytes) -> tuple[str, str]:
    """Return the event and the object of a block, e.g. ``("insert", "a")``; reset and live have no
    object.
    """
    data = fields_of(block).get("data")
    return event_of(block), json.loads(data)["id"] if data else ""


def frame(id_: str, event: str, data: str) -> bytes:
    """Return a block in the form of the wire contract."""
    return f"id: {id_}\nevent: {event}\ndata: {data}\n\n".encode()


def operation(event: str, id_: str, type_: str, *parents: str) -> dict[str, Any]:
    return {"event": event, "type": type_, "id": id_, "parents": list(parents)}


def fresh_type() -> str:
    """Return an unused type, so that a filter passes only one test."""
    return "t" + os.urandom(8).hex()

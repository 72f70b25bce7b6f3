"""The reader of event streams, from bytes. It repairs and hides nothing that an agent sends."""

import io
import json
import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self, TypeVar
from urllib.parse import urlencode, urlsplit

from tests.kits.processes.logged import DEADLINE
from tests.kits.sse.heads import one, read_head, request_head

Item = TypeVar("Item")


class Event(NamedTuple):
    """A block of an event stream. A block with only an id has the event ``""``."""

    id: str
    event: str
    data: str

    @classmethod
    def parse(cls, block: bytes) -> Self:
        return cls(**{**dict.fromkeys(cls._fields, ""), **fields_of(block)})

    @property
    def operation(self) -> dict[str, Any]:
        operation: dict[str, Any] = json.loads(self.data)
        return operation

    @property
    def key(self) -> str:
        operation = self.operation
        return f"{operation['type']}/{operation['id']}"


class CutError(ConnectionError):
    """The connection ended before the proper end of the stream."""


class ChunkedBody:
    """Separates the head and the chunks of an HTTP/1.1 answer."""

    def __init__(self) -> None:
        self.head = b""
        self.ended = False
        self._raw = bytearray()

    def feed(self, received: bytes) -> list[bytes]:
        """Return the chunks that are complete now. The server sends one per write."""
        self._raw += received
        raw = self._raw
        if not self.head:
            end = raw.find(b"\r\n\r\n")
            if end < 0:
                return []
            self.head = bytes(raw[:end])
            assert self.head.startswith(b"HTTP/1.1 200"), bytes(raw)
            assert b"transfer-encoding: chunked" in self.head.lower(), self.head
            del raw[: end + 4]
        chunks = []
        start = 0
        while not self.ended and (line := raw.find(b"\r\n", start)) >= 0:
            size = int(raw[start:line], 16)
            end = line + 2 + size
            if len(raw) < end + 2:
                break
            assert raw[end : end + 2] == b"\r\n", bytes(raw[line : end + 2])
            self.ended = size == 0
            if size:
                chunks.append(bytes(raw[line + 2 : end]))
            start = end + 2
        del raw[:start]
        return chunks


class Reader(Generic[Item]):
    """An event stream over a socket. When it is made, it has its position in the log.

    ``heartbeats`` counts those that were read. A wait longer than the deadline raises
    TimeoutError.
    """

    def __init__(self, sock: socket.socket, request: bytes) -> None:
        self._socket = sock
        self._body = ChunkedBody()
        self._chunks: deque[bytes] = deque()
        self._pending = bytearray()
        self.heartbeats = 0
        try:
            self._begin(request)
        except BaseException:
            self.close()
            raise

    def _begin(self, request: bytes) -> None:
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._socket.sendall(request)
        raw = b""
        while b"\r\n\r\n" not in raw:
            # A test that reads no further leaves the rest to the kernel.
            more = self._socket.recv(1024)
            assert more, f"no answer: {raw!r}"
            raw += more
        self.status, self.headers = read_head(io.BytesIO(raw))
        if self.status != 200:
            body = raw.partition(b"\r\n\r\n")[2]
            while len(body) < int(self.header("Content-Length") or 0):
                body += self._socket.recv(1024)
            raise AssertionError(f"no stream: {self.status} {body.decode()}")
        self._chunks += self._body.feed(raw)

    def _read(self, block: bytes) -> Item:
        """Return a block as the items of this reader are."""
        raise NotImplementedError

    def header(self, name: str) -> str | None:
        return one(self.headers, name)

    def chunk(self) -> bytes:
        """Return one chunk of the body, empty at its proper end.

        Raises CutError if the connection ends before.
        """
        while not self._chunks:
            if self._body.ended:
                return b""
            received = self._socket.recv(1 << 18)
            if not received:
                raise CutError("the stream was cut off")
            self._chunks += self._body.feed(received)
        return self._chunks.popleft()

    def _fill(self) -> bool:
        """Read one more chunk. Return False at the end of the stream."""
        chunk = self.chunk()
        if chunk.find(b"\n") == len(chunk) - 1 and chunk[:1] == b":" and self._is_between_blocks():
            self.heartbeats += 1
        else:
            self._pending += chunk
        return bool(chunk)

    def _skip_heartbeats(self) -> None:
        while self._pending.startswith(b":") and (end := self._pending.find(b"\n")) >= 0:
            del self._pending[: end + 1]  # a comment line, which may name what holds the stream
            self.heartbeats += 1

    def _is_between_blocks(self) -> bool:
        return self._pending.endswith(b"\n\n")

    def block(self) -> bytes:
        """Return the next block with its final blank line, empty at the end of the stream."""
        deadline = time.monotonic() + DEADLINE  # heartbeats keep the socket from its own
        while True:
            self._skip_heartbeats()
            if (end := self._pending.find(b"\n\n")) >= 0:
                return self._take(end + 2)
            if time.monotonic() > deadline:
                raise TimeoutError("nothing but heartbeats")
            if not self._fill():
                assert not self._pending, f"the stream ended within a block: {self._pending!r}"
                return b""

    def next(self) -> Item | None:
        """Return the next block, None at the end of the stream."""
        block = self.block()
        return self._read(block) if block else None

    def take(self, count: int) -> list[Item]:
        """Return exactly ``count`` blocks."""
        return [self._read(self._next_of(number, count)) for number in range(count)]

    def until(self, event: str) -> list[Item]:
        """Return the blocks up to and including the first event of that name."""
        blocks = [self._next_of(0, 1)]
        while fields_of(blocks[-1]).get("event", "") != event:
            blocks.append(self._next_of(0, 1))
        return [self._read(block) for block in blocks]

    def rest(self) -> list[Item]:
        """Return all blocks until the agent ends the stream properly."""
        return [self._read(block) for block in iter(self.block, b"")]

    def blocks(self) -> Iterator[Item]:
        """Yield every whole block until the stream ends in any way."""
        while True:
            try:
                block = self.block()
            except ConnectionError:
                return
            if not block:
                return
            yield self._read(block)

    def read(self, count: int) -> bytes:
        """Return exactly ``count`` bytes, without heartbeats."""
        while len(self._pending) < count:
            assert self._fill(), f"the stream ended after {len(self._pending)} of {count} bytes"
            self._skip_heartbeats()
        return self._take(count)

    def read_past(self, mark: bytes) -> bytes:
        """Return all bytes up to and with the first block that contains ``mark``."""
        blocks = [self._next_of(0, 1)]
        while mark not in blocks[-1]:
            blocks.append(self._next_of(0, 1))
        return b"".join(blocks)

    def next_heartbeat(self) -> list[Item]:
        """Wait for one more heartbeat. Return the blocks before it."""
        blocks: list[Item] = []
        before = self.heartbeats
        while True:
            self._skip_heartbeats()
            if self.heartbeats > before:
                return blocks
            if b"\n\n" in self._pending:
                blocks.append(self._read(self.block()))
            else:
                assert self._fill(), "the stream ended without a heartbeat"

    def close(self) -> None:
        self._socket.close()

    def _next_of(self, number: int, count: int) -> bytes:
        block = self.block()
        assert block, f"the stream ended after {number} of {count} events"
        return block

    def _take(self, count: int) -> bytes:
        taken = bytes(self._pending[:count])
        del self._pending[:count]
        return taken

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Stream(Reader[Event]):
    """An event stream as events. ``receive_buffer``: bytes that the kernel may receive."""

    def __init__(
        self,
        url: str,
        last_event_id: str | None = None,
        query: Mapping[str, str] | None = None,
        *,
        path: str = "/ops",
        receive_buffer: int | None = None,
    ) -> None:
        where = urlsplit(url)
        assert where.hostname is not None
        assert where.port is not None
        self.last_id = last_event_id or ""
        super().__init__(
            connect(where.hostname, where.port, receive_buffer),
            stream_request(where.hostname, last_event_id, query, path),
        )

    def _read(self, block: bytes) -> Event:
        event = Event.parse(block)
        self.last_id = event.id or self.last_id
        return event


def connect(host: str, port: int, receive_buffer: int | None = None) -> socket.socket:
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(DEADLINE)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.connect((host, port))
    except BaseException:
        sock.close()
        raise
    return sock


def stream_request(
    host: str = "localhost",
    last_event_id: str | None = None,
    query: Mapping[str, str] | None = None,
    path: str = "/ops",
) -> bytes:
    headers = {"Accept": "text/event-stream"}
    if last_event_id is not None:
        headers["Last-Event-ID"] = last_event_id
    return request_head("GET", path + ("?" + urlencode(query) if query else ""), host, headers)


def fields_of(block: bytes) -> dict[str, str]:
    """Return the values of a block by name."""
    fields = {}
    for line in block[:-2].decode().split("\n"):
        name, _, value = line.partition(":")
        fields[name] = value.removeprefix(" ")
    return fields

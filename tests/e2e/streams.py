"""Event streams as bytes, for tests that read many streams, long ones, or slowly."""

import socket
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Self
from urllib.parse import urlencode

from tests.kits.agents.agent import DEADLINE, Agent, Event


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
            if len(raw) < line + 2 + size + 2:
                break
            self.ended = size == 0
            if size:
                chunks.append(bytes(raw[line + 2 : line + 2 + size]))
            start = line + 2 + size + 2
        del raw[:start]
        return chunks


def request(
    last_event_id: str | None = None,
    query: Mapping[str, str] | None = None,
    path: str = "/ops",
) -> bytes:
    path += "?" + urlencode(query) if query else ""
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Accept: text/event-stream"]
    if last_event_id is not None:
        lines.append(f"Last-Event-ID: {last_event_id}")
    return "\r\n".join([*lines, "", ""]).encode()


class ByteStream:
    """A stream over a plain socket, without its heartbeats.

    When the constructor returns, the stream has its position in the log. ``receive_buffer``: bytes
    that the kernel may receive for a test that does not read.
    """

    def __init__(
        self,
        agent: Agent,
        last_event_id: str | None = None,
        query: Mapping[str, str] | None = None,
        *,
        path: str = "/ops",
        receive_buffer: int | None = None,
    ) -> None:
        self._body = ChunkedBody()
        self._buffer = bytearray()
        self._silent_since: float | None = None
        self.last_id = last_event_id or ""
        self._socket = socket.socket()
        self._socket.settimeout(DEADLINE)
        try:
            if receive_buffer is not None:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            self._socket.connect(("127.0.0.1", agent.port))
            self._socket.sendall(request(last_event_id, query, path))
            while not self._body.head:
                assert self._fill(1024), "no answer"
        except BaseException:
            self._socket.close()
            raise

    def read(self, count: int) -> bytes:
        """Return exactly ``count`` bytes."""
        while len(self._buffer) < count:
            assert self._fill(), f"the stream ended after {len(self._buffer)} of {count} bytes"
        return self._take(count)

    def read_past(self, mark: bytes) -> bytes:
        """Return everything up to and with the first block that contains ``mark``."""
        at = 0
        while (found := self._buffer.find(mark, at)) < 0 or (
            end := self._buffer.find(b"\n\n", found)
        ) < 0:
            at = found if found >= 0 else max(0, len(self._buffer) - len(mark))
            assert self._fill(), f"the stream ended without {mark!r}"
        return self._take(end + 2)

    def blocks(self) -> Iterator[Event]:
        """Yield every whole block until the stream ends in any way."""
        while True:
            end = self._buffer.find(b"\n\n")
            if end >= 0:
                (event,) = parse(self._take(end + 2))
                self.last_id = event.id
                yield event
            else:
                try:
                    if not self._fill():
                        return
                except ConnectionError:
                    return

    def take(self, count: int) -> list[Event]:
        """Return exactly ``count`` blocks."""
        events = list(islice(self.blocks(), count))
        assert len(events) == count, f"the stream ended after {len(events)} of {count} events"
        return events

    def until_live(self) -> list[Event]:
        return self.until_offset(None)

    def until_offset(self, offset: int | None) -> list[Event]:
        """Return the blocks up to and with the operation at ``offset``; None: up to ``live``."""
        events = []
        for event in self.blocks():
            events.append(event)
            if (
                event.event == "live"
                if offset is None
                else event.event != "live" and offset_of(event.id) == offset
            ):
                return events
        raise AssertionError(f"the stream ended after {len(events)} events: {events[-3:]}")

    def close(self) -> None:
        self._socket.close()

    def _fill(self, at_most: int = 1 << 18) -> bool:
        if self._body.ended:
            return False
        received = self._socket.recv(at_most)
        chunks = self._body.feed(received)
        for chunk in chunks:
            if chunk != b":\n":
                self._buffer += chunk
        if set(chunks) != {b":\n"}:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = time.monotonic()
        elif time.monotonic() - self._silent_since > DEADLINE:
            raise TimeoutError("nothing but heartbeats")
        return bool(received)

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def parse(stream: bytes) -> list[Event]:
    """Return whole blocks, without comments, as events."""
    events = []
    for block in stream.decode().split("\n\n")[:-1]:
        fields = dict(line.split(":", 1) for line in block.split("\n"))
        events.append(Event(**{name: value.removeprefix(" ") for name, value in fields.items()}))
    return events


def offset_of(event_id: str) -> int:
    """Return the offset in an event id; 0 for a replication id."""
    return int(event_id[12:], 16) if len(event_id) == 24 else 0


def ms_of(event_id: str) -> int:
    return (
        int(event_id[:8], 16) * 1000 + int(event_id[8:12], 16)
        if len(event_id) == 24
        else int(event_id)
    )


def offsets(events: list[Event]) -> list[int]:
    """Return the offsets of operations; fail on any other block."""
    assert all(
        len(event.id) == 24 and event.event in ("insert", "update", "delete") for event in events
    )
    return [offset_of(event.id) for event in events]


def operation(event: str, id_: str, type_: str = "thing", *parents: str) -> dict[str, Any]:
    return {"event": event, "type": type_, "id": id_, "parents": list(parents)}

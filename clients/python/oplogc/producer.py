"""Sends operations from threads."""

import dataclasses
import socket
import threading
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Self

import httpx

from oplogc.address import is_udp, resolve
from oplogc.backoff import Backoff
from oplogc.operation import check_datagram, encode
from oplogc.outbox import OVERFLOWS, Counters, Outbox, Overflow
from oplogc.stream import basic_auth, describe, ops_url
from oplogc.verdict import Later, Verdict, judge

HEADERS = {"Content-Type": "application/x-ndjson"}
_END_SECONDS = 1.0


class Producer:
    """Sends operations; any thread may call any method.

    ``udp://host:8042`` is fire and forget: a call costs a few microseconds, never waits and never fails because of the
    network. The host is looked up once, here. ``http://host:8042`` delivers at least once: ``send`` puts operations into a
    buffer, from which a thread sends them in batches, the same batch again until the agent has it. Make a producer
    after a fork, not before.

    For HTTP only:
    - ``password``: the agent's ingest password. ``proxy``: the URL of an HTTP proxy; else the environment's.
    - ``timeout``: seconds that a request may take. ``batch_size``: operations in a request at most.
    - ``max_buffered``, ``max_buffered_bytes``: what the buffer holds; ``overflow`` says what ``send`` does beyond it:
      ``block`` (until there is room, at most ``block_timeout`` seconds, None: for ever), ``raise`` BufferFullError,
      ``drop_new`` or ``drop_old``, which are counted.
    - ``backoff``: seconds between attempts, the first and the longest; they double, with jitter. A ``Retry-After``
      of the agent is heeded.

    Raises ValueError for a bad argument and OSError for a host that is not known.
    """

    def __init__(
        self,
        url: str = "udp://localhost:8042",
        *,
        password: str | None = None,
        proxy: str | None = None,
        timeout: float = 30.0,
        batch_size: int = 1000,
        max_buffered: int = 10_000,
        max_buffered_bytes: int = 64 * 1024 * 1024,
        overflow: Overflow = "block",
        block_timeout: float | None = None,
        backoff: tuple[float, float] = (1.0, 30.0),
    ) -> None:
        self._way: _Udp | _Http
        if is_udp(url):
            self._way = _Udp(url)
        else:
            if overflow not in OVERFLOWS:
                raise ValueError(f"overflow: {overflow!r} is none of {', '.join(OVERFLOWS)}")
            outbox = Outbox(max_buffered, max_buffered_bytes, batch_size, Backoff(*backoff))
            client = httpx.Client(auth=basic_auth(password), proxy=proxy, timeout=timeout, headers=HEADERS)
            self._way = _Http(ops_url(url), client, outbox, overflow, block_timeout)

    def send(
        self,
        event: str,
        type: str,
        id: str,
        *,
        parents: Sequence[str] = (),
        timestamp: datetime | str | None = None,
    ) -> None:
        """Say that an object was inserted, updated or deleted.

        ``timestamp``: when, a datetime with a time zone or RFC 3339; None: when it arrives. Raises OperationError
        for what an agent would refuse; over HTTP, as ``overflow`` says, BufferFullError.
        """
        self._way.send(encode(event, type, id, parents, timestamp))

    def flush(self, timeout: float | None = 30.0) -> None:
        """Wait until all that was sent before is durable at the agent, or rejected by it. With UDP: nothing to do.

        Raises FlushError after ``timeout`` seconds (None: never), or at once when the agent refuses for a cause that
        does not pass by itself, such as a wrong password. The operations stay in the buffer, and are tried again.
        """
        self._way.flush(timeout)

    def close(self, timeout: float | None = 30.0) -> None:
        """``flush``, then end. Raises FlushError; what could not be delivered is then lost."""
        self._way.close(timeout)

    @property
    def counters(self) -> Counters:
        """A copy of what has been counted until now."""
        return self._way.counters()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Udp:
    def __init__(self, url: str) -> None:
        family, self._address = resolve(url)
        # Not connected: a connected socket spends a send on reporting that the one before found no agent.
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._lock = threading.Lock()
        self._sent = 0
        self._dropped = 0

    def send(self, raw: bytes) -> None:
        check_datagram(raw)
        dropped = 0
        try:
            self._socket.sendto(raw, self._address)
        except OSError:
            if self._socket.fileno() < 0:
                raise ValueError("the producer is closed") from None
            dropped = 1
        with self._lock:
            self._sent += 1
            self._dropped += dropped

    def flush(self, timeout: float | None) -> None:
        return

    def close(self, timeout: float | None) -> None:
        self._socket.close()

    def counters(self) -> Counters:
        with self._lock:
            return Counters(sent=self._sent, delivered=self._sent - self._dropped, dropped=self._dropped)


class _Http:
    def __init__(
        self, url: httpx.URL, client: httpx.Client, outbox: Outbox, overflow: Overflow, block_timeout: float | None
    ) -> None:
        self._url = url
        self._client = client
        self._outbox = outbox
        self._overflow = overflow
        self._block_timeout = block_timeout
        self._changed = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None

    def send(self, raw: bytes) -> None:
        outbox = self._outbox
        with self._changed:
            if not outbox.has_room(raw) and not self._make_room(raw):
                outbox.refuse(self._overflow)
                return
            if self._closing:
                raise ValueError("the producer is closed")
            outbox.add(raw)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="oplogc-producer", daemon=True)
                self._thread.start()
            elif outbox.counters.buffered == 1:
                self._changed.notify_all()

    def flush(self, timeout: float | None) -> None:
        outbox = self._outbox
        with self._changed:
            until = outbox.last
            self._changed.wait_for(lambda: outbox.is_flushed(until), timeout)
            outbox.check_flushed(until)

    def close(self, timeout: float | None) -> None:
        try:
            self.flush(timeout)
        finally:
            with self._changed:
                self._closing = True
                self._changed.notify_all()
            if self._thread is not None:
                self._thread.join(_END_SECONDS)  # it may hang in a request; it ends with the process
            else:
                self._client.close()

    def counters(self) -> Counters:
        with self._changed:
            return dataclasses.replace(self._outbox.counters)

    def _make_room(self, raw: bytes) -> bool:
        if self._overflow == "block":
            return self._changed.wait_for(lambda: self._outbox.has_room(raw) or self._closing, self._block_timeout)
        return self._overflow == "drop_old" and self._outbox.drop_old_for(raw)

    def _run(self) -> None:
        with self._client:
            while batch := self._next_batch():
                verdict = self._post(batch)
                with self._changed:
                    delay = self._outbox.apply(verdict)
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._closing, delay)

    def _next_batch(self) -> list[bytes]:
        """Empty when the producer is closed; whoever closes has waited for what is left."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._outbox.counters.buffered > 0)
            return [] if self._closing else self._outbox.batch()

    def _post(self, batch: list[bytes]) -> Verdict:
        try:
            return judge(self._client.post(self._url, content=b"\n".join(batch)), len(batch))
        except httpx.RequestError as error:
            return Later(describe(error))

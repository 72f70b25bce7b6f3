"""Sends operations from threads."""

import socket
import threading
import warnings
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Self

from oplogc.http.address import check_proxy, is_udp, ops_endpoint, resolve
from oplogc.http.backoff import Backoff
from oplogc.process.forks import after_fork
from oplogc.producers.delivery import CLOSED, Delivery
from oplogc.producers.outbox import OVERFLOWS, Counters, Outbox, Overflow
from oplogc.wire.operation import check_datagram, encode


class Producer:
    """Sends operations; any thread may call any method.

    With ``udp://host:8042`` nothing confirms that an operation arrives: a call takes a few
    microseconds, never waits and never fails because of the network. The host is looked up once,
    here. ``http://host:8042`` delivers at least once: ``send`` puts operations into a buffer, from
    which a thread sends them in batches, the same batch again until the agent has it. The child of
    a fork may use a producer: it begins with an empty buffer, and the parent delivers the
    operations sent before.

    For HTTP only:
    - ``password``: the agent's ingest password; user and password of the URL count, too.
      ``proxy``: the URL of an HTTP proxy; else the environment's.
    - ``timeout``: seconds that a request may take in total. ``batch_size``: operations in a request
      at most.
    - ``max_buffered``, ``max_buffered_bytes``: limits of the buffer; ``overflow``: policy of
      ``send`` when it is full: ``block`` (until there is room, at most ``block_timeout`` seconds,
      None: for ever), ``raise`` BufferFullError, ``drop_new`` or ``drop_old``, which are counted.
    - ``backoff``: seconds between attempts, the first and the longest; they double, with jitter. A
      ``Retry-After`` of the agent is heeded.

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
        self._way: _Udp | Delivery
        if is_udp(url):
            self._way = _Udp(url)
        else:
            check_http(proxy, timeout, overflow)
            endpoint = ops_endpoint(url, password)

            def make_outbox() -> Outbox:
                return Outbox(max_buffered, max_buffered_bytes, batch_size, Backoff(*backoff))

            self._way = Delivery(endpoint, proxy, timeout, make_outbox, overflow, block_timeout)

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

        ``timestamp``: time of the change, a datetime with a zone or RFC 3339; None: time of
        arrival. Raises OperationError for an operation that an agent would refuse; over HTTP, as
        ``overflow`` says, BufferFullError. Raises ValueError once ``close`` was called, also when
        it was waiting for room.
        """
        self._way.send(encode(event, type, id, parents, timestamp))

    def flush(self, timeout: float | None = 30.0) -> None:
        """Wait until all operations sent before are durable at the agent, or rejected by it. With
        UDP it does nothing.

        Raises FlushError after ``timeout`` seconds (None: never), or at once if the agent refuses
        for good, such as for a wrong password. The operations stay in the buffer, and are tried
        again.
        """
        self._way.flush(timeout)

    def close(self, timeout: float | None = 30.0) -> None:
        """Refuse further operations and flush. Raises FlushError; undelivered operations are then
        lost.

        A second call does nothing; while the first is still flushing it waits for that.
        """
        self._way.close(timeout)

    @property
    def counters(self) -> Counters:
        """Return a copy of the counters."""
        return self._way.counters()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        way = getattr(self, "_way", None)  # missing when __init__ raised
        if isinstance(way, Delivery) and way.abandon():
            warnings.warn(
                f"a producer was not closed: {way}", ResourceWarning, source=self, stacklevel=2
            )


def check_http(proxy: str | None, timeout: float, overflow: Overflow) -> None:
    """Raise ValueError for an argument that only a producer over HTTP reads."""
    check_proxy(proxy)
    if not timeout > 0:
        raise ValueError("timeout: give seconds, more than 0")
    if overflow not in OVERFLOWS:
        raise ValueError(f"overflow: {overflow!r} is none of {', '.join(OVERFLOWS)}")


class _Udp:
    def __init__(self, url: str) -> None:
        family, self._address = resolve(url)
        # Not connected: a connected socket fails at a send if the previous datagram found no agent.
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._unlock()
        after_fork(self, _Udp._unlock)
        self._closed = False
        self._sent = 0
        self._dropped = 0

    def _unlock(self) -> None:
        # Reentrant: a signal's handler may send while its thread sends.
        self._lock = threading.RLock()

    def send(self, raw: bytes) -> None:
        check_datagram(raw)
        with self._lock:
            if self._closed:
                raise ValueError(CLOSED)
            self._sent += 1
            try:
                self._socket.sendto(raw, self._address)
            except OSError:
                self._dropped += 1

    def flush(self, timeout: float | None) -> None:
        return

    def close(self, timeout: float | None) -> None:
        with self._lock:
            self._closed = True
            self._socket.close()

    def counters(self) -> Counters:
        with self._lock:
            return Counters(
                sent=self._sent, delivered=self._sent - self._dropped, dropped=self._dropped
            )

"""Sends operations from threads."""

import contextlib
import socket
import threading
import warnings
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Self

from oplogc.http.address import resolve, shown
from oplogc.process.at_exit import close_at_exit, open_ones
from oplogc.process.forks import after_fork
from oplogc.process.loop_thread import LoopThread
from oplogc.producers.options import CLOSED, ProducerBase, ProducerOptions
from oplogc.producers.outbox import Counters
from oplogc.producers.sender import HttpWay
from oplogc.wire.operation import check_datagram, encode


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
            return Counters(self._sent, self._sent - self._dropped, dropped=self._dropped)


class _Delivery(HttpWay):
    """Delivers with an event loop in a thread.

    In the child of a fork the buffer is empty: the parent delivers the operations sent before.
    """

    def __init__(self, options: ProducerOptions) -> None:
        super().__init__(options)
        after_fork(self, _Delivery._begin)

    def _begin(self) -> None:
        super()._begin()
        self._lock = self._changed = threading.Condition()
        self._thread = LoopThread("oplogc-producer")

    def __str__(self) -> str:
        buffered = self._outbox.counters.buffered
        return f"{buffered:,} operations are buffered for {shown(self._options.endpoint.url)}"

    def send(self, raw: bytes) -> None:
        with self._changed:
            has_room = self._outbox.has_room(raw) or self._has_room(raw)
            if not has_room and self._options.overflow == "block":
                timeout = _seconds(self._options.block_timeout)
                has_room = self._changed.wait_for(lambda: self._has_room(raw), timeout)
            self._put(raw, has_room)

    def flush(self, timeout: float | None) -> None:
        outbox = self._outbox
        with self._changed:
            until = outbox.last
            self._changed.wait_for(
                lambda: outbox.is_flushed(until) or self._ended, _seconds(timeout)
            )
            outbox.check_flushed(until)

    def close(self, timeout: float | None) -> None:
        with self._changed:
            if self._ended:
                return
            first = not self._closing
            self._closing = True
            self._notify()
        try:
            self.flush(timeout)
        finally:
            if first:
                self._end()

    def abandon(self) -> bool:
        """End once all is delivered, without ``close``. Return whether it was open."""
        with self._changed:
            was_open = self._is_started and not self._closing
            self._closing = True
            if was_open:
                self._in_loop(self._finish)
            return was_open

    def flush_at_exit(self, timeout: float) -> None:
        """Deliver the remaining operations if ``close`` was not called."""
        if self._is_started:
            buffered = self._outbox.counters.buffered
            close_at_exit(
                self,
                timeout,
                "operations are lost at the end of the program: close the producer",
                f"a producer was not closed at the end: {self}" if buffered else "",
            )

    def _end(self) -> None:
        with self._changed:
            self._ended = True
            self._notify()
        self._thread.end()
        open_ones.discard(self)

    def _start(self) -> None:
        self._thread.start(self._run)
        self._is_started = True
        open_ones.add(self)

    def _in_loop(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError, ValueError):  # the loop has ended
            self._thread.soon(call)

    def _notify(self) -> None:
        self._changed.notify_all()


def _seconds(timeout: float | None) -> float | None:
    """Return a time-out for a lock. Longer ones, such as infinity, are for ever."""
    return None if timeout is None or timeout > threading.TIMEOUT_MAX else timeout


class Producer(ProducerBase[_Udp | _Delivery]):
    """Sends operations. Any thread may call any method.

    With ``udp://host:8042`` nothing confirms the arrival of an operation. A call takes a few
    microseconds, never waits and never fails because of the network. The host is looked up here.
    ``http://host:8042`` delivers at least once: ``send`` puts operations into a buffer. A thread
    sends them in batches, and repeats a batch until the agent has it. The child of a fork begins
    with an empty buffer, and the parent delivers the operations sent before.

    Raises ValueError for a bad argument and OSError for an unknown host.
    """

    _udp = _Udp
    _http = _Delivery

    def send(
        self,
        event: str,
        type: str,
        id: str,
        *,
        parents: Sequence[str] = (),
        timestamp: datetime | str | None = None,
    ) -> None:
        """Send an operation: an object was inserted, updated or deleted.

        ``timestamp``: time of the change, a datetime with a zone or RFC 3339. None: time of
        arrival. Raises OperationError for an invalid operation, over HTTP BufferFullError as
        ``overflow`` says, and ValueError once ``close`` was called, also while waiting for room.
        The first call over HTTP raises RuntimeError or OSError if its thread cannot start.
        """
        self._way.send(encode(event, type, id, parents, timestamp))

    def flush(self, timeout: float | None = 30.0) -> None:
        """Wait until all operations sent before are durable at the agent, or rejected by it.

        Raises FlushError after ``timeout`` seconds (None: never), or at once if the agent refuses
        for good, such as for a wrong password. The operations are tried again. UDP: does nothing.
        """
        self._way.flush(timeout)

    def close(self, timeout: float | None = 30.0) -> None:
        """Refuse further operations and flush. Raises FlushError: undelivered ones are then lost.

        A second call does nothing. While the first call still flushes, the second waits for it.
        """
        self._way.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        way = getattr(self, "_way", None)  # missing when __init__ raised
        if isinstance(way, _Delivery) and way.abandon():
            warnings.warn(
                f"a producer was not closed: {way}", ResourceWarning, source=self, stacklevel=2
            )

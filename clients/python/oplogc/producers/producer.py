"""Sends operations from threads."""

import socket
import threading
import warnings
from collections.abc import Sequence
from datetime import datetime
from typing import Self

from oplogc.http.address import resolve
from oplogc.process.forks import after_fork
from oplogc.producers.delivery import Delivery
from oplogc.producers.options import CLOSED, ProducerBase
from oplogc.producers.outbox import Counters
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


class Producer(ProducerBase[_Udp | Delivery]):
    """Sends operations. Any thread may call any method.

    With ``udp://host:8042`` nothing confirms the arrival of an operation. A call takes a few
    microseconds, never waits and never fails because of the network. The host is looked up once,
    here. ``http://host:8042`` delivers at least once: ``send`` puts operations into a buffer. A
    thread sends them in batches, and repeats a batch until the agent has it. The child of a fork
    may use a producer: it begins with an empty buffer, and the parent delivers the operations sent
    before.

    Raises ValueError for a bad argument and OSError for an unknown host.
    """

    _udp = _Udp
    _http = Delivery

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
        """
        self._way.send(encode(event, type, id, parents, timestamp))

    def flush(self, timeout: float | None = 30.0) -> None:
        """Wait until all operations sent before are durable at the agent, or rejected by it.

        With UDP it does nothing.
        Raises FlushError after ``timeout`` seconds (None: never), or at once if the agent refuses
        for good, such as for a wrong password. The operations stay in the buffer, and are tried
        again.
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
        if isinstance(way, Delivery) and way.abandon():
            warnings.warn(
                f"a producer was not closed: {way}", ResourceWarning, source=self, stacklevel=2
            )

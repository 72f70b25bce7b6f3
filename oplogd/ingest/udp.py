"""One datagram is one operation. The socket is read straight from the event loop, many datagrams at a time.

Measured beside it: asyncudp and a DatagramProtocol lose datagrams at loads that this takes whole (docs/decisions.md).
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from oplogd.errors import OperationError, QueueFullError
from oplogd.ingest.counters import Counters
from oplogd.ingest.queue import IngestQueue
from oplogd.ingest.refused import RefusedDatagrams, shown_address
from oplogd.logs import Episode
from oplogd.operation import Operation, decode, format_ms, now_ms
from oplogd.values import Address

RECEIVE_BUFFER = 32 * 1024 * 1024
_DATAGRAMS_A_CALL = 256
_MOST_AT_STOP = 2 * RECEIVE_BUFFER // 512
"""More datagrams than a receive buffer holds: the kernel doubles its size and counts over 512 bytes for the smallest."""

_MAX_DATAGRAM = 65_536
_SO_RCVBUFFORCE = 33
_QUIET_SECONDS = 5.0
"""So long without an occurrence ends an episode of the log."""

logger = logging.getLogger("oplogd.udp")


def open_sockets(addresses: Sequence[tuple[socket.AddressFamily, str, int]]) -> list[socket.socket]:
    """Bound, non-blocking sockets with a large receive buffer. Raises OSError."""
    sockets: list[socket.socket] = []
    try:
        for family, host, port in addresses:
            sock = socket.socket(family, socket.SOCK_DGRAM)
            sockets.append(sock)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if host == "::" else 1)
            try:
                sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER)
            except OSError:  # not root: the kernel gives what net.core.rmem_max allows
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
            sock.setblocking(False)
            sock.bind((host, port))
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _shut_off(sock: socket.socket) -> None:
    """Let no more datagrams in. Those in the buffer stay: a connected socket accepts datagrams of its peer only."""
    host, port, *rest = sock.getsockname()
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    with contextlib.suppress(OSError):
        sock.connect((host, port, *rest))


class UdpIngest:
    """Reads sockets into the queue. If the queue is full, operations are dropped and counted."""

    def __init__(
        self, sockets: Sequence[socket.socket], queue: IngestQueue, counters: Counters
    ) -> None:
        self._sockets = list(sockets)
        self._queue = queue
        self._counters = counters
        self.refused = RefusedDatagrams()
        self._overflow = Episode(
            logger, "the queue is full, dropping operations that come by UDP", quiet=_QUIET_SECONDS
        )
        self._invalid = Episode(
            logger, "refusing invalid operations that come by UDP", quiet=_QUIET_SECONDS
        )
        self._dropped_before_close = 0

    @property
    def addresses(self) -> list[str]:
        return [str(Address(*sock.getsockname()[:2])) for sock in self._sockets]

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        for sock in self._sockets:
            loop.add_reader(sock, self._drain, sock)

    async def stop(self) -> None:
        """Read the datagrams that the kernel holds now, then close the sockets. Ends under any load without blocking the loop."""
        loop = asyncio.get_running_loop()
        for sock in self._sockets:
            loop.remove_reader(sock)
            _shut_off(sock)
        for sock in self._sockets:
            left = _MOST_AT_STOP
            while left > 0 and (count := self._drain(sock)):
                left -= count
                await asyncio.sleep(0)
        self._dropped_before_close = self.kernel_drops()
        for sock in self._sockets:
            sock.close()
        self._sockets = []

    def kernel_drops(self) -> int:
        """Datagrams that the kernel threw away because they were not read fast enough; 0 where it does not tell."""
        if not self._sockets:
            return self._dropped_before_close
        inodes = {os.fstat(sock.fileno()).st_ino for sock in self._sockets}
        drops = 0
        for table in ("/proc/net/udp", "/proc/net/udp6"):
            try:
                lines = Path(table).read_text().splitlines()[1:]
            except OSError:
                continue
            for columns in map(str.split, lines):
                if int(columns[9]) in inodes:
                    drops += int(columns[12])
        return drops

    def _drain(self, sock: socket.socket) -> int:
        refused = self.refused
        now = now_ms()
        arrival = format_ms(now)
        operations: list[Operation] = []
        first = ""
        count, before = 0, refused.count
        receive = sock.recvfrom
        try:
            while count < _DATAGRAMS_A_CALL:
                raw, sender = receive(_MAX_DATAGRAM)
                count += 1
                try:
                    operations.append(decode(raw, arrival))
                except OperationError as error:
                    refused.add(now, sender, str(error), raw)
                    first = first or f"from {shown_address(sender)}: {error}"
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as failed:
            logger.warning("reading UDP failed: %s", failed)
        self._counters.add_received(len(operations))
        if invalid := refused.count - before:
            self._counters.add_invalid(invalid)
            self._invalid.again(invalid, detail=first)
        else:
            self._invalid.end()
        if operations:
            self._enqueue(operations)
        return count

    def _enqueue(self, operations: list[Operation]) -> None:
        try:
            self._queue.put(operations, wait=False)
            self._overflow.end()
            return
        except QueueFullError:
            pass
        for operation in operations:  # the queue takes the first ones
            try:
                self._queue.put([operation], wait=False)
            except QueueFullError:
                self._counters.add_discarded(1)
                self._overflow.again()

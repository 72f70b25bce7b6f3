"""Intake by UDP: one operation per datagram. Many are read at a time (decisions/0007)."""

import asyncio
import contextlib
import logging
import os
import socket
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from oplog_kit.listen import Address
from oplogd.clock import SYSTEM, Clock
from oplogd.errors import DiskFullError, OperationError, QueueFullError
from oplogd.host.datagrams import Datagrams, datagrams_of
from oplogd.host.logs import Episode
from oplogd.host.sockets import bind, share_port
from oplogd.ingest.counters import DatagramCounters, IngestCounters
from oplogd.ingest.ignored import Ignored, IgnoredMembers
from oplogd.ingest.queue import IngestQueue
from oplogd.model.operation import Operation, decode, format_ms

RECEIVE_BUFFER = 32 * 1024 * 1024
DATAGRAMS_PER_CALL = 256
# A call reads no more datagrams once it has held the event loop for so long.
_CALL_SECONDS = 0.003
# More datagrams than a receive buffer holds: the kernel doubles the buffer and counts over 512
# bytes for the smallest datagram.
_MOST_AT_STOP = 2 * RECEIVE_BUFFER // 512
_SO_RCVBUFFORCE = 33
# Seconds without an occurrence that end an episode in the log.
QUIET_SECONDS = 5.0

# Of the last invalid datagrams: their number, and the bytes remembered of each.
_REMEMBERED = 20
_SHOWN_BYTES = 200
_MAPPED = "::ffff:"

logger = logging.getLogger("oplogd.udp")


def open_sockets(
    addresses: Sequence[tuple[socket.AddressFamily, str, int]], *, is_shared: bool = False
) -> list[socket.socket]:
    """Return bound, non-blocking sockets with a large receive buffer. Raises OSError.

    ``is_shared``: other sockets that share their port may have the same addresses.
    """
    sockets: list[socket.socket] = []
    try:
        for family, host, port in addresses:
            sock = socket.socket(family, socket.SOCK_DGRAM)
            sockets.append(sock)
            try:
                sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER)
            except OSError:  # not root: net.core.rmem_max is the limit
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
            sock.setblocking(False)
            if is_shared:
                share_port(sock)
            bind(sock, host, port)
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _shut_off(sock: socket.socket) -> None:
    """Let in no more datagrams: a connected socket takes only those of its peer, here itself."""
    host, port, *rest = sock.getsockname()
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    with contextlib.suppress(OSError):
        sock.connect((host, port, *rest))


class _Datagram(NamedTuple):
    ms: int
    sender: tuple[Any, ...]
    reason: str
    data: bytes


class RefusedDatagrams:
    """The last invalid datagrams. ``counters`` count all."""

    def __init__(self, counters: DatagramCounters) -> None:
        self._counters = counters
        self._last: deque[_Datagram] = deque(maxlen=_REMEMBERED)

    def add(self, ms: int, sender: tuple[Any, ...], reason: str, raw: bytes) -> None:
        """Remember a datagram. ``sender``: an address as a socket returns it."""
        self._counters.refused += 1
        self._last.append(_Datagram(ms, sender, reason, raw[:_SHOWN_BYTES]))

    @property
    def count(self) -> int:
        """The number since the start."""
        return self._counters.refused

    def described(self) -> list[dict[str, str]]:
        """Return the datagrams for /status, the newest first."""
        return [
            {
                "time": format_ms(each.ms),
                "sender": shown_address(each.sender),
                "reason": each.reason,
                "data": "".join(
                    # Invisible characters and those changing the text's direction are escaped.
                    c if c.isprintable() else repr(c)[1:-1]
                    for c in each.data.decode(errors="backslashreplace")
                ),
            }
            for each in reversed(self._last)
        ]


def shown_address(address: tuple[Any, ...]) -> str:
    """Format a socket's address as HOST:PORT, IPv4 addresses mapped to IPv6 as IPv4."""
    return str(Address(host_of(address), int(address[1])))


def host_of(address: tuple[Any, ...]) -> str:
    """Return the host of a socket's address, IPv4 addresses mapped to IPv6 as IPv4."""
    return str(address[0]).removeprefix(_MAPPED)


class UdpIngest:
    """Reads sockets into the queue. Operations that find the queue full are dropped and counted."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        queue: IngestQueue,
        counters: IngestCounters,
        ignored: IgnoredMembers,
        clock: Clock = SYSTEM,
        datagrams: DatagramCounters | None = None,
    ) -> None:
        self._clock = clock
        self._counted = datagrams or DatagramCounters()
        self._sockets = list(sockets)
        self._datagrams = [datagrams_of(sock) for sock in sockets]
        self._queue = queue
        self._counters = counters
        self._ignored = ignored
        self.refused = RefusedDatagrams(self._counted)
        self._overflow = Episode(
            logger, "the queue is full, dropping operations that come by UDP", quiet=QUIET_SECONDS
        )
        self._invalid = Episode(
            logger, "refusing invalid operations that come by UDP", quiet=QUIET_SECONDS
        )
        self._dropped_before_close = 0
        self._is_stopping = False
        # Read again in the next turn of the loop, and not before.
        self._cut_short: set[Datagrams] = set()

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        for each in self._datagrams:
            loop.add_reader(each.sock, self._read, each)

    async def stop(self, *, is_last: bool = True, also: Sequence[socket.socket] = ()) -> None:
        """Read the datagrams in the kernel, then close the sockets. It ends under any load.

        ``is_last``: if not, another process goes on with the same sockets. It reads the rest.
        ``also``: other sockets, to be emptied.
        """
        self._is_stopping = True
        self._sockets += also
        self._datagrams += map(datagrams_of, also)
        loop = asyncio.get_running_loop()
        for sock in self._sockets:
            loop.remove_reader(sock)
            if is_last:
                _shut_off(sock)
        for each in self._datagrams if is_last else ():
            left = _MOST_AT_STOP
            while left > 0 and (count := self._drain(each)):
                left -= count
                await asyncio.sleep(0)
        self._dropped_before_close = self.kernel_drops()
        for sock in self._sockets:
            sock.close()
        self._sockets = []
        self._datagrams = []

    def kernel_drops(self) -> int:
        """Return the number of datagrams dropped by the kernel; 0 if the system does not tell."""
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

    def _read(self, datagrams: Datagrams) -> None:
        if not self._is_stopping and datagrams not in self._cut_short:
            self._drain(datagrams)
            if datagrams.has_more:  # the loop looks at the socket only
                self._cut_short.add(datagrams)
                asyncio.get_running_loop().call_soon(self._read_on, datagrams)

    def _read_on(self, datagrams: Datagrams) -> None:
        self._cut_short.discard(datagrams)
        self._read(datagrams)

    def _drain(self, datagrams: Datagrams) -> int:
        """Read datagrams. Return their number."""
        refused = self.refused
        now = self._clock.now_ms()
        arrival = format_ms(now)
        operations: list[Operation] = []
        ignored: dict[str, Ignored] = {}

        def on_unknown(raw: bytes) -> None:
            host = host_of(datagrams.sender())
            if host not in ignored:
                ignored[host] = Ignored()
            ignored[host].add(raw)

        first = ""
        count, before = 0, refused.count
        receive, clock = datagrams.receive, self._clock.monotonic
        until = clock() + _CALL_SECONDS
        try:
            while count < DATAGRAMS_PER_CALL and clock() < until:
                raw = receive()
                if raw is None:
                    break
                count += 1
                try:
                    operations.append(decode(raw, arrival, on_unknown))
                except OperationError as error:
                    sender = datagrams.sender()
                    refused.add(now, sender, str(error), raw)
                    first = first or f"from {shown_address(sender)}: {error}"
        except OSError as failed:
            logger.warning("reading UDP failed: %s", failed)
        self._counters.received += len(operations)
        if invalid := refused.count - before:
            self._counters.received += invalid
            self._counters.error += invalid
            self._invalid.occurred(invalid, detail=first)
        else:
            self._invalid.end()
        self._ignored.by_sender(ignored)
        if operations:
            self._enqueue(operations)
        return count

    def _enqueue(self, operations: list[Operation]) -> None:
        try:
            self._queue.put(operations)
            self._overflow.end()
        except DiskFullError:  # the gate has logged it
            self._counters.discarded += len(operations)
        except QueueFullError:
            for operation in operations:  # the queue may have room for some
                try:
                    self._queue.put([operation])
                except (DiskFullError, QueueFullError) as error:
                    self._counters.discarded += 1
                    if isinstance(error, QueueFullError):
                        self._overflow.occurred()

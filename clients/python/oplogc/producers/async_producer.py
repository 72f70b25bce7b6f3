"""Sends operations from an event loop."""

import asyncio
import dataclasses
import logging
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import Any, Self

import asyncudp

from oplogc.http.address import resolve
from oplogc.process.blocking import documented_as
from oplogc.process.changes import Changes
from oplogc.producers.options import CLOSED, ProducerBase
from oplogc.producers.outbox import Counters
from oplogc.producers.producer import Producer
from oplogc.producers.sender import HttpWay
from oplogc.wire.operation import check_datagram, encode

_NOT_OPEN = "the producer is not open: use it in async with"
logger = logging.getLogger("oplogc")


class _AsyncUdp:
    def __init__(self, url: str) -> None:
        self._url = url
        self._socket: Any = None
        self._address: Any = None
        self._closed = False
        self._counters = Counters()

    async def open(self) -> None:
        _, self._address = await asyncio.to_thread(resolve, self._url)
        # Not connected: a connected socket fails at a send if the previous datagram found no agent.
        local = "0.0.0.0" if len(self._address) == 2 else "::"
        self._socket = await asyncudp.create_socket(local_addr=(local, 0))

    async def send(self, raw: bytes) -> None:
        check_datagram(raw)
        if self._socket is None:
            raise ValueError(CLOSED if self._closed else _NOT_OPEN)
        self._counters.sent += 1
        try:
            self._socket.sendto(raw, self._address)
            self._counters.delivered += 1
        except OSError:
            self._counters.dropped += 1

    async def flush(self, timeout: float | None) -> None:
        return

    async def close(self, timeout: float | None) -> None:
        self._closed = True
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            await asyncio.sleep(0)  # the transport ends in the next turn of the loop

    def counters(self) -> Counters:
        return dataclasses.replace(self._counters)


class _AsyncHttp(HttpWay):
    def _begin(self) -> None:
        super()._begin()
        self._lock = nullcontext()
        self._changes = Changes()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        if self._task is not None:  # two senders would settle each other's batches
            raise ValueError("the producer is open already, or was: make another")
        self._task = asyncio.create_task(self._run_until_closed(), name="oplogc-producer")

    async def send(self, raw: bytes) -> None:
        has_room = self._has_room(raw)
        if not has_room and self._options.overflow == "block":
            has_room = await self._changes.wait_for(
                lambda: self._has_room(raw), self._options.block_timeout
            )
        self._put(raw, has_room)

    async def flush(self, timeout: float | None) -> None:
        outbox = self._outbox
        until = outbox.last
        await self._changes.wait_for(lambda: outbox.is_flushed(until) or self._ended, timeout)
        outbox.check_flushed(until)

    async def close(self, timeout: float | None) -> None:
        if self._ended:
            return
        first = not self._closing
        self._closing = True
        self._notify()
        try:
            await self.flush(timeout)
        finally:
            if first:
                self._ended = True
                self._notify()
                if self._task is not None:
                    self._task.cancel()
                    await asyncio.wait({self._task})

    async def _run_until_closed(self) -> None:
        try:
            await self._run()
        finally:
            pending = self._outbox.counters.buffered
            if pending and not self._ended:  # the event loop ends
                self._ended = True
                self._notify()
                logger.error(
                    "%d operations are lost at the end of the event loop: close the producer",
                    pending,
                )
                warnings.warn(
                    f"a producer was not closed: {pending:,} operations are lost",
                    ResourceWarning,
                    stacklevel=1,
                )

    def _start(self) -> None:
        if self._task is None or self._task.done():
            raise ValueError(_NOT_OPEN)

    def _in_loop(self, call: Callable[[], None]) -> None:
        call()

    def _notify(self) -> None:
        self._changes.notify()


class AsyncProducer(ProducerBase[_AsyncUdp | _AsyncHttp]):
    """Sends operations from one event loop. Use it with ``async with``.

    The arguments are those of ``Producer``. Raises ValueError for a bad argument. Entering raises
    OSError for an unknown host.
    """

    _udp = _AsyncUdp
    _http = _AsyncHttp

    @documented_as(Producer.send)
    async def send(
        self,
        event: str,
        type: str,
        id: str,
        *,
        parents: Sequence[str] = (),
        timestamp: datetime | str | None = None,
    ) -> None:
        await self._way.send(encode(event, type, id, parents, timestamp))

    @documented_as(Producer.flush)
    async def flush(self, timeout: float | None = 30.0) -> None:
        await self._way.flush(timeout)

    @documented_as(Producer.close)
    async def close(self, timeout: float | None = 30.0) -> None:
        await self._way.close(timeout)

    async def __aenter__(self) -> Self:
        await self._way.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

"""Sends operations from an event loop."""

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import asyncudp
import httpx

from oplogc.address import is_udp, resolve
from oplogc.backoff import Backoff
from oplogc.operation import check_datagram, encode
from oplogc.outbox import OVERFLOWS, Counters, Outbox, Overflow
from oplogc.producer import HEADERS
from oplogc.stream import basic_auth, describe, ops_url
from oplogc.verdict import Later, Verdict, judge


class AsyncProducer:
    """``Producer`` for asyncio, with the same arguments; for use in one event loop, with ``async with``.

    Raises ValueError for a bad argument; entering raises OSError for a host that is not known.
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
            client = httpx.AsyncClient(auth=basic_auth(password), proxy=proxy, timeout=timeout, headers=HEADERS)
            self._way = _Http(ops_url(url), client, outbox, overflow, block_timeout)

    async def send(
        self,
        event: str,
        type: str,
        id: str,
        *,
        parents: Sequence[str] = (),
        timestamp: datetime | str | None = None,
    ) -> None:
        """Say that an object was inserted, updated or deleted; see ``Producer.send``."""
        await self._way.send(encode(event, type, id, parents, timestamp))

    async def flush(self, timeout: float | None = 30.0) -> None:
        """Wait until all that was sent before is durable or rejected; see ``Producer.flush``. Raises FlushError."""
        await self._way.flush(timeout)

    async def close(self, timeout: float | None = 30.0) -> None:
        """``flush``, then end. Raises FlushError; what could not be delivered is then lost."""
        await self._way.close(timeout)

    @property
    def counters(self) -> Counters:
        """A copy of what has been counted until now."""
        return self._way.counters()

    async def __aenter__(self) -> Self:
        await self._way.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _Udp:
    def __init__(self, url: str) -> None:
        self._url = url
        self._socket: Any = None
        self._address: Any = None
        self._counters = Counters()

    async def open(self) -> None:
        _, self._address = await asyncio.to_thread(resolve, self._url)
        # Not connected: a connected socket spends a send on reporting that the one before found no agent.
        local = "0.0.0.0" if len(self._address) == 2 else "::"
        self._socket = await asyncudp.create_socket(local_addr=(local, 0))

    async def send(self, raw: bytes) -> None:
        check_datagram(raw)
        if self._socket is None:
            raise ValueError("the producer is not open: use it in async with")
        self._counters.sent += 1
        try:
            self._socket.sendto(raw, self._address)
            self._counters.delivered += 1
        except OSError:
            self._counters.dropped += 1

    async def flush(self, timeout: float | None) -> None:
        return

    async def close(self, timeout: float | None) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            await asyncio.sleep(0)  # the transport ends in the next turn of the loop

    def counters(self) -> Counters:
        return dataclasses.replace(self._counters)


class _Http:
    def __init__(
        self, url: httpx.URL, client: httpx.AsyncClient, outbox: Outbox, overflow: Overflow, block_timeout: float | None
    ) -> None:
        self._url = url
        self._client = client
        self._outbox = outbox
        self._overflow = overflow
        self._block_timeout = block_timeout
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._task = asyncio.create_task(self._run(), name="oplogc-producer")

    async def send(self, raw: bytes) -> None:
        outbox = self._outbox
        if not outbox.has_room(raw) and not await self._make_room(raw):
            outbox.refuse(self._overflow)
            return
        if self._task is None or self._task.done():
            raise ValueError("the producer is not open: use it in async with")
        outbox.add(raw)
        if outbox.counters.buffered == 1:
            async with self._changed:
                self._changed.notify_all()

    async def flush(self, timeout: float | None) -> None:
        outbox = self._outbox
        until = outbox.last
        await self._wait(lambda: outbox.is_flushed(until), timeout)
        outbox.check_flushed(until)

    async def close(self, timeout: float | None) -> None:
        try:
            await self.flush(timeout)
        finally:
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait({self._task})
            await self._client.aclose()

    def counters(self) -> Counters:
        return dataclasses.replace(self._outbox.counters)

    async def _make_room(self, raw: bytes) -> bool:
        if self._overflow == "block":
            return await self._wait(lambda: self._outbox.has_room(raw), self._block_timeout)
        return self._overflow == "drop_old" and self._outbox.drop_old_for(raw)

    async def _wait(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        try:
            async with asyncio.timeout(timeout), self._changed:
                await self._changed.wait_for(condition)
        except TimeoutError:
            return condition()
        return True

    async def _run(self) -> None:
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._outbox.counters.buffered > 0)
            batch = self._outbox.batch()
            verdict = await self._post(batch)
            delay = self._outbox.apply(verdict)
            async with self._changed:
                self._changed.notify_all()
            await asyncio.sleep(delay)

    async def _post(self, batch: list[bytes]) -> Verdict:
        try:
            return judge(await self._client.post(self._url, content=b"\n".join(batch)), len(batch))
        except httpx.RequestError as error:
            return Later(describe(error))

"""All consumers of an agent: connecting, counting, waking and ending them."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, get_args

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from oplogd.errors import StoreUnavailableError
from oplogd.event_id import EventId, Position
from oplogd.store import Store
from oplogd.stream.consumer import Consumer, Counts, Pages
from oplogd.stream.filters import Filter
from oplogd.stream.frames import Framer
from oplogd.stream.outlet import Outlet
from oplogd.stream.ring import Ring

_TICK_SECONDS = 0.5
"""How often at most consumers are looked at; four times in a heartbeat that is shorter than four of these."""

_RETRY_SECONDS = 1.0
END_SPREAD_SECONDS = 3.0
"""A thousand and more streams end spread over this time; fewer in proportion."""

_END_PAUSE = 0.01
"""Streams that are due within so many seconds end together: ten thousand pauses of their own would be too short to be any."""

END_GRACE_SECONDS = 10.0
"""A stream whose consumer takes nothing is aborted so long after its end was due."""

END_WAIT_SECONDS = 2.0
"""How long a stop waits for the streams that it has ended and whose consumers do not read."""

Refusal = Literal[
    "max_clients",
    "max_clients_per_address",
    "store",
    "password",
    "session",
    "no_password",
    "bad_request",
]
"""Why a consumer was not connected. ``session``: its cookie or token has expired or is wrong; pages that stay open for long
come back with such a one, and then get another. Some clients give their password only once they were asked for it."""

logger = logging.getLogger("oplogd.stream")


class TooManyClientsError(Exception):
    """``--max-clients`` consumers are connected."""


class TooManyFromAddressError(Exception):
    """``--max-clients-per-address`` consumers of this address are connected."""


class Hub:
    """``heartbeat``, ``max_connection_age`` and ``stall_timeout`` in seconds; 0 is no limit for the last two."""

    def __init__(
        self,
        store: Store,
        ring: Ring,
        framer: Framer,
        *,
        heartbeat: float,
        max_connection_age: float,
        max_clients: int,
        max_clients_per_address: int = 0,
        stall_timeout: float = 0,
    ) -> None:
        self._store = store
        self._ring = ring
        self._framer = framer
        self._tick = min(_TICK_SECONDS, heartbeat / 4)
        self._heartbeat = heartbeat - self._tick  # so that the silence is over before the time is
        self._max_age = max_connection_age
        self._max_clients = max_clients
        self._max_per_host = max_clients_per_address
        self._per_host: dict[str, int] = {}
        self._stall_timeout = stall_timeout or float("inf")
        self._reserved = 0
        self._ending = False
        self.counts = Counts()
        self.refused: dict[Refusal, int] = dict.fromkeys(get_args(Refusal), 0)
        """How many consumers were not connected, by the reason."""
        self._pages = Pages()
        self.connections = 0
        self.consumers: set[Consumer] = set()

    @contextmanager
    def refusing(self, reason: Refusal) -> Iterator[None]:
        """Count a consumer as refused if this ends with an error."""
        try:
            yield
        except Exception:
            self.refused[reason] += 1
            raise

    async def connect(
        self,
        position: Position | None,
        filter_: Filter,
        *,
        checkpoints: bool,
        address: str,
        name: str = "",
    ) -> Consumer:
        """A consumer that starts at ``position``; ``disconnect`` must follow.

        ``address`` is HOST:PORT. Raises StoreUnavailableError, TooManyClientsError and TooManyFromAddressError.
        """
        if len(self.consumers) + self._reserved >= self._max_clients:
            self.refused["max_clients"] += 1
            raise TooManyClientsError
        host = _host(address)
        if self._max_per_host and self._per_host.get(host, 0) >= self._max_per_host:
            self.refused["max_clients_per_address"] += 1
            raise TooManyFromAddressError
        self._count(host, 1)
        self._reserved += 1
        view = self._ring.view(filter_)
        try:
            epoch = self._ring.epoch
            with self.refusing("store"):
                located = await self._store.locate(
                    position.offset if isinstance(position, EventId) else 0
                )
        except BaseException:
            self._ring.release(view)
            self._count(host, -1)
            raise
        finally:
            self._reserved -= 1
        self.connections += 1
        consumer = Consumer(
            id=self.connections,
            address=address,
            name=name,
            store=self._store,
            ring=self._ring,
            view=view,
            framer=self._framer,
            counts=self.counts,
            pages=self._pages,
            heartbeat=self._heartbeat,
            checkpoints=checkpoints,
            ends_at=time.monotonic() + self._max_age * random.uniform(0.8, 1.2)
            if self._max_age
            else float("inf"),
        )
        consumer.begin(position, located, epoch)
        self.consumers.add(consumer)
        if self._ending:
            consumer.end()
        return consumer

    def disconnect(self, consumer: Consumer) -> None:
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            self._count(_host(consumer.address), -1)
            consumer.close()
            self._ring.release(consumer.view)
            logger.debug("consumer %d gone after %d events", consumer.id, consumer.sent)

    def _count(self, host: str, change: int) -> None:
        count = self._per_host.get(host, 0) + change
        if count:
            self._per_host[host] = count
        else:
            del self._per_host[host]

    async def tick(self) -> None:
        """Run for ever: heartbeats, connection ages and stalled consumers, with one timer for all consumers."""
        while True:
            await asyncio.sleep(self._tick)
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        """Wake the consumers whose heartbeat or end is due, and cut off those that take nothing."""
        due = [consumer for consumer in self.consumers if consumer.tick(now)]
        self._ring.wake(due)
        for consumer in self.consumers:
            if consumer.outlet.writing:
                self._cut_off_if_stalled(consumer, now)

    def _cut_off_if_stalled(self, consumer: Consumer, now: float) -> None:
        stalled = consumer.stalled(now)
        overdue = min(stalled, now - consumer.ends_at) >= END_GRACE_SECONDS
        if (overdue or stalled >= self._stall_timeout) and consumer.outlet.abort():
            why = "its end was due" if overdue else "--stall-timeout"
            logger.info(
                "consumer %d at %s took no byte for %.1f s (%s): cut off",
                consumer.id,
                consumer.address,
                stalled,
                why,
            )

    async def end_all(self) -> None:
        """End the streams, spread over time, so that the consumers do not all come back in one instant.

        A stream that is opened later ends at once.
        """
        self._ending = True
        consumers = list(self.consumers)
        random.shuffle(consumers)
        seconds = END_SPREAD_SECONDS * min(1.0, len(consumers) / 1000)
        begun = time.monotonic()
        ended = 0
        while ended < len(consumers):
            await asyncio.sleep(min(_END_PAUSE, seconds))
            share = (time.monotonic() - begun) / seconds
            due = len(consumers) if share >= 1 else int(len(consumers) * share)
            for consumer in consumers[ended:due]:
                consumer.end()
            ended = due

    async def cut_off_the_rest(self) -> None:
        """Give ended streams some time to be read to their end, then cut them off. To be called after ``end_all``."""
        until = time.monotonic() + END_WAIT_SECONDS
        while self.consumers and time.monotonic() < until:
            await asyncio.sleep(_END_PAUSE)
        if cut_off := sum(consumer.outlet.abort() for consumer in self.consumers):
            logger.info("%d consumers did not read to the end of their streams: cut off", cut_off)

    async def next_chunk(self, consumer: Consumer) -> bytes:
        """What a consumer is sent next, empty when it is ended. It stays connected while the store is away."""
        while True:
            try:
                return await consumer.next_chunk()
            except StoreUnavailableError as error:
                logger.debug("consumer %d waits for the store: %s", consumer.id, error)
                if chunk := await consumer.pause(_RETRY_SECONDS):
                    return chunk


def _host(address: str) -> str:
    return address.rpartition(":")[0]


class EventStream(StreamingResponse):
    """A consumer's stream as a response; the consumer is disconnected however it ends, also if it never began.

    ``consumer`` None is for HEAD. One task writes and one watches for the client's going (docs/decisions.md). Nothing is
    cancelled when the client goes: what a cancelled stream leaves behind only the garbage collector can free.
    """

    def __init__(self, hub: Hub, consumer: Consumer | None, headers: Mapping[str, str]) -> None:
        headers = {**headers, "X-Accel-Buffering": "no"}
        super().__init__(_chunks(hub, consumer), headers=headers, media_type="text/event-stream")
        self._hub = hub
        self._consumer = consumer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._consumer is None:
            await self.stream_response(send)
            return
        self._consumer.outlet = Outlet.of(scope)
        watch = asyncio.create_task(
            _end_with_client(self._consumer, receive), name=f"consumer {self._consumer.id} watch"
        )
        try:
            await self.stream_response(send)
        finally:
            watch.cancel()
            self._hub.disconnect(self._consumer)


async def _end_with_client(consumer: Consumer, receive: Receive) -> None:
    """A write to a client that has gone returns at once, so that the stream only has to be told."""
    while (await receive())["type"] != "http.disconnect":
        pass
    consumer.end()


async def _chunks(hub: Hub, consumer: Consumer | None) -> AsyncIterator[bytes]:
    if consumer is None:
        return
    while chunk := await hub.next_chunk(consumer):
        consumer.outlet.writing = True
        yield chunk
        consumer.outlet.writing = False
    consumer.outlet.writing = True  # the end of the body is a write, too

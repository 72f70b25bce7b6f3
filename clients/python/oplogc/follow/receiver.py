"""Receives events and reconnects."""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from typing import Generic, Protocol

import httpx

from oplogc.follow.format import E, StreamFormat
from oplogc.follow.stream import DisconnectedError, Stream, named_store, open_stream
from oplogc.http.address import Endpoint, shown
from oplogc.http.answers import printable
from oplogc.http.backoff import Backoff
from oplogc.http.client import http_client
from oplogc.wire.events import Checkpoint

SETTLED_SECONDS = 5.0
"""After this life of a connection the pauses start over."""

Opened = Callable[[Endpoint, str | None], Awaitable[str]]
"""Judges a stream before it is read, by its endpoint and the identity of the store (None: the agent
names none). Returns the position to ask for: if it is another one, another stream is opened. May
raise DisconnectedError, and errors that end the receiver."""

logger = logging.getLogger("oplogc")


class Reader(Protocol):
    """A reader whose position is at the agent. Its errors end the receiver."""

    async def asked(self, endpoint: Endpoint) -> Endpoint:
        """Return the stream to ask for at an agent."""

    def opened(self, headers: Mapping[str, str], url: str) -> None:
        """Read the headers of an open stream. ``url``: the address asked."""


def warn(url: str, reason: str, delay: float) -> None:
    """Log why the stream of an agent is not open. ``delay``: seconds until the next attempt."""
    logger.warning("%s: %s; trying again in %.1f s", url, reason, delay)


class Receiver(Generic[E]):
    """Receives events and reconnects, at the next of the agents and after pauses.

    ``endpoints``: the stream of each agent. ``last_event_id``: the first position. Empty: none.
    ``verify``: TLS context. True: the usual one. ``tell_failure``: called with the address, the
    reason and the seconds of the pause whenever a connection fails or ends. ``opened``: see
    ``Opened``. ``reader``: None if the position is here. Otherwise no position is sent.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        stream_format: StreamFormat[E],
        proxy: str | None,
        timeout: float,
        heartbeat_timeout: float,
        backoff: Backoff,
        last_event_id: str,
        *,
        verify: ssl.SSLContext | bool = True,
        tell_failure: Callable[[str, str, float], None] = warn,
        opened: Opened | None = None,
        reader: Reader | None = None,
    ) -> None:
        self._endpoints = deque(endpoints)
        """The present one first."""
        self._failures = 0
        self._format = stream_format
        self._proxy = proxy
        self._timeout = timeout
        self._heartbeat_timeout = heartbeat_timeout
        self._backoff = backoff
        self._last_event_id = last_event_id
        self._verify = verify
        self._tell_failure = tell_failure
        self._opened = opened
        self._reader = reader
        self._sequence = count(1)
        self._client: httpx.AsyncClient | None = None
        self._stream: Stream[E] | None = None
        self._connected_at = 0.0
        self._logged_unknown = False
        self._receiving: asyncio.Task[list[E | Checkpoint]] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.connections = 0
        """Number of streams opened so far."""

    @property
    def endpoint(self) -> Endpoint:
        """The present agent's stream."""
        return self._endpoints[0]

    @property
    def address(self) -> str:
        """Address of the present agent's stream, without query and credentials."""
        return shown(self.endpoint.url)

    @property
    def connected(self) -> bool:
        """Whether a stream is open."""
        return self._stream is not None

    def start(self) -> "asyncio.Task[list[E | Checkpoint]]":
        """Return the task of the next events: a new one unless the last has not been ``taken``.

        Its exceptions: ProtocolError, and those of the format for a refusal.
        """
        self._enter_loop()
        if self._receiving is None or self._receiving.cancelled():
            self._receiving = asyncio.create_task(self._receive(), name="oplogc-receive")
        return self._receiving

    def take(self) -> list[E | Checkpoint]:
        """Return the items of the task, none if it was cancelled. Raises its exceptions."""
        receiving = self._receiving
        if receiving is None or not receiving.done() or receiving.cancelled():
            return []
        self._receiving = None
        items = receiving.result()
        if self._reader is None:
            self._last_event_id = items[-1].event_id  # not before: items not taken must come again
        return items

    async def aclose(self) -> None:
        """Close the connection. ``start`` opens another, behind the last event received."""
        self._enter_loop()
        if self._receiving is not None:
            receiving, self._receiving = self._receiving, None
            receiving.cancel()
            await asyncio.wait({receiving})
            if not receiving.cancelled():
                receiving.exception()  # retrieved: asyncio does not log it
        await self._disconnect()
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    def _enter_loop(self) -> None:
        """Forget the tasks and connections of an earlier event loop, which has ended."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._receiving, self._stream, self._client = loop, None, None, None

    async def _receive(self) -> list[E | Checkpoint]:
        while True:
            try:
                if self._stream is None:
                    self._stream = await self._connect()
                items = await self._stream.read()
            except DisconnectedError as error:
                await self._disconnect()
                url = self.address
                self._endpoints.rotate(-1)
                self._failures += 1
                is_round = self._failures % len(self._endpoints) == 0
                delay = self._backoff.next(error.retry_after) if is_round else 0.0
                self._tell_failure(url, str(error), delay)
                await asyncio.sleep(delay)
                continue
            except BaseException:
                await self._disconnect()
                raise
            if items:
                if not all(isinstance(item, Checkpoint) for item in items):
                    self._backoff.reset()
                return items

    async def _connect(self) -> Stream[E]:
        if self._client is None:
            self._client = http_client(self._proxy, verify=self._verify)
        response = await self._ask(self._client)
        self._connected_at = asyncio.get_running_loop().time()
        self.connections += 1
        logger.info("following %s", self.address)
        return Stream(
            response,
            self._format,
            self._last_event_id,
            self._sequence,
            self._heartbeat_timeout,
            self._tell_unknown,
        )

    async def _ask(self, client: httpx.AsyncClient) -> httpx.Response:
        while True:
            asked, endpoint, reader = self._last_event_id, self.endpoint, self._reader
            if reader is not None:
                endpoint = await reader.asked(endpoint)
            response = await open_stream(
                client, endpoint, asked, self._timeout, self._format.refused
            )
            try:
                if reader is not None:
                    reader.opened(response.headers, shown(response.url))
                if self._opened is None:
                    return response
                self._last_event_id = await self._opened(self.endpoint, named_store(response))
            except BaseException:
                await response.aclose()
                raise
            if self._last_event_id == asked:
                return response
            await response.aclose()

    async def _disconnect(self) -> None:
        if self._stream is not None:
            stream, self._stream = self._stream, None
            await stream.aclose()
            if asyncio.get_running_loop().time() - self._connected_at >= SETTLED_SECONDS:
                self._backoff.reset()

    def _tell_unknown(self, name: str) -> None:
        if not self._logged_unknown:
            self._logged_unknown = True
            logger.warning(
                "the stream has events that this client does not know, such as %s",
                printable(repr(name[:40])),
            )

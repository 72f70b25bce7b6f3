"""One connection to an agent's event stream."""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Generic

import httpx

from oplogc.follow.format import E, StreamFormat
from oplogc.http.address import Endpoint, shown
from oplogc.http.answers import AGENT, describe, no_token, printable, read_answer
from oplogc.http.client import hide_query
from oplogc.http.token import TokenSource
from oplogc.wire.errors import OplogError, ProtocolError
from oplogc.wire.events import Checkpoint
from oplogc.wire.shard import SHARD, check_echo
from oplogc.wire.sse import BlockParser

EVENT_STREAM = "text/event-stream"
STORE_HEADER = "Oplog-Store"
MAX_REDIRECTS = 20
_TURNS = 10
"""Turns of the event loop in which arrived bytes come up to the reader."""


class DisconnectedError(OplogError):
    """The connection ended or failed. Try again after at least ``retry_after`` seconds."""

    def __init__(self, reason: str, retry_after: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class Stream(Generic[E]):
    """An open stream.

    ``sequence`` numbers its events. ``heartbeat_timeout``: seconds of silence until it counts as
    dead. ``tell_unknown`` is called with each unknown event's name.
    """

    def __init__(
        self,
        response: httpx.Response,
        stream_format: StreamFormat[E],
        last_event_id: str,
        sequence: "count[int]",
        heartbeat_timeout: float,
        tell_unknown: Callable[[str], None],
    ) -> None:
        self._response = response
        self._chunks = response.aiter_bytes()
        self._format = stream_format
        self._parser = BlockParser(last_event_id, stream_format.max_block_bytes)
        self._sequence = sequence
        self._heartbeat_timeout = heartbeat_timeout
        self._tell_unknown = tell_unknown
        self._reading: asyncio.Task[bytes | None] | None = None
        self._error: ProtocolError | None = None

    async def read(self) -> list[E | Checkpoint]:
        """Wait for bytes. Return completed events. Raises DisconnectedError, ProtocolError."""
        if self._error is not None:
            raise self._error
        chunk = await self._chunk()
        items = []
        try:
            for block in self._parser.feed(chunk):
                if not self._format.is_known(block):
                    self._tell_unknown(block.event)
                item = self._format.read(block, next(self._sequence))
                if item is not None:
                    items.append(item)
        except ProtocolError as error:
            if not items:
                raise
            self._error = error  # the events before it come first
        return items

    async def aclose(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
            if not self._reading.cancelled():
                self._reading.exception()  # retrieved: asyncio does not log it
        await self._response.aclose()

    async def _chunk(self) -> bytes:
        # A task, not a time-out of httpx: bytes count if they came while
        # a handler held up the event loop.
        if self._reading is None:
            self._reading = asyncio.create_task(self._next_chunk(), name="oplogc-read")
        reading = self._reading
        await asyncio.wait({reading}, timeout=self._heartbeat_timeout)
        for _ in range(_TURNS):
            if reading.done():
                break
            await asyncio.sleep(0)
        else:
            raise DisconnectedError("the agent was silent for too long")
        self._reading = None
        try:
            chunk = reading.result()
        except httpx.DecodingError as error:
            raise ProtocolError(
                f"the stream is compressed in a way that cannot be undone: {error}"
            ) from None
        except httpx.RequestError as error:
            raise DisconnectedError(describe(error, AGENT)) from None
        if chunk is None:
            raise DisconnectedError("the agent ended the stream")
        return chunk

    async def _next_chunk(self) -> bytes | None:
        return await anext(self._chunks, None)


async def open_stream(
    client: httpx.AsyncClient,
    endpoint: Endpoint,
    last_event_id: str,
    timeout: float,
    refused: Callable[[int, str], OplogError],
) -> httpx.Response:
    """Ask for the stream, with a fresh token if the endpoint has a function for it.

    ``timeout``: seconds until the agent has answered, redirects included, and until the function
    has returned. A shard in the address is one that the answer must have.

    Raises DisconnectedError, ProtocolError, and the error of ``refused`` for a refusal.
    """
    headers = {"Accept": EVENT_STREAM, "Accept-Encoding": "identity", "Cache-Control": "no-cache"}
    if last_event_id:
        headers["Last-Event-ID"] = last_event_id
    auth = await _auth(endpoint, timeout)
    try:
        async with asyncio.timeout(timeout):
            response = await _ask(client, endpoint.url, auth, headers)
            try:
                await _check(response, refused, endpoint.url.params.get(SHARD))
            except BaseException:
                await response.aclose()
                raise
            return response
    except OplogError:
        raise
    except TimeoutError:
        raise DisconnectedError(f"no answer within {timeout:g} s") from None
    except httpx.UnsupportedProtocol as error:
        raise ProtocolError(
            f"{shown(endpoint.url)} redirects to an address that is none of HTTP: {error}"
        ) from None
    except httpx.RequestError as error:
        raise DisconnectedError(describe(error, AGENT)) from None
    except Exception as error:  # no server and no resolver may end a consumer
        raise DisconnectedError(f"{type(error).__name__}: {error}") from error


def named_store(response: httpx.Response) -> str | None:
    """Return the identity of the agent's store, from its answer. None: there is none."""
    store: str | None = response.headers.get(STORE_HEADER)
    return store


async def _auth(endpoint: Endpoint, timeout: float) -> httpx.Auth | None:
    """Return the credentials for a connection. Raises DisconnectedError if there is no token."""
    if not isinstance(endpoint.auth, TokenSource):
        return endpoint.auth
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            return await endpoint.auth.fresh()
    except Exception as error:
        late = f"no token within {timeout:g} s"
        raise DisconnectedError(late if limit.expired() else no_token(error)) from error


async def _ask(
    client: httpx.AsyncClient, url: httpx.URL, auth: httpx.Auth | None, headers: dict[str, str]
) -> httpx.Response:
    """Follow redirects. Credentials go to addresses of the same scheme, host and port only."""
    request = hide_query(client.build_request("GET", url, headers=headers))
    response = await client.send(request, stream=True, auth=auth)
    for _ in range(MAX_REDIRECTS):
        following = response.next_request
        if following is None:
            return response
        await response.aclose()
        if origin(following.url) != origin(request.url):  # httpx would keep it from http to https
            following.headers.pop("Authorization", None)
        following.url = following.url.copy_with(userinfo=b"")  # httpx would log and send it
        request = hide_query(following)
        response = await client.send(request, stream=True, auth=None)
    if response.next_request is None:
        return response
    await response.aclose()
    raise ProtocolError(f"{shown(url)} redirects without end")


def origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


async def _check(
    response: httpx.Response, refused: Callable[[int, str], OplogError], shard: str | None
) -> None:
    status = response.status_code
    if status == 200:
        content_type = response.headers.get("content-type", "")
        if content_type.partition(";")[0].strip().lower() != EVENT_STREAM:
            kind = printable(content_type[:100]) or "no content type"
            raise ProtocolError(f"{shown(response.url)} sends {kind}: is it an agent?")
        check_echo(shard, response.headers, shown(response.url))
        return
    if status < 300:
        raise ProtocolError(
            f"{shown(response.url)} sends no stream (HTTP {status}): is it an agent?"
        )
    answer = await read_answer(response)
    # 409: readers of this log use too many different numbers of shards at present.
    if answer.passes or (status == 409 and shard):
        raise DisconnectedError(answer.sentence(), answer.retry_after)
    raise refused(status, answer.detail())

"""One connection to an agent's event stream."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from urllib.parse import urlsplit

import httpx

from oplogc.backoff import retry_after
from oplogc.errors import OplogError, ProtocolError, RefusedError
from oplogc.events import Checkpoint, Event, read
from oplogc.sse import BlockParser

EVENT_STREAM = "text/event-stream"
_TRY_AGAIN = frozenset({408, 425, 429})
"""Beside all of 5xx: what passes by itself."""


class DisconnectedError(OplogError):
    """The connection ended or could not be made; trying again makes sense, after ``retry_after`` seconds at least."""

    def __init__(self, reason: str, retry_after: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class Stream:
    """An open stream. ``sequence`` numbers its events."""

    def __init__(self, response: httpx.Response, sequence: "count[int]") -> None:
        self._chunks = response.aiter_bytes()
        self._parser = BlockParser()
        self._sequence = sequence

    async def read(self) -> list[Event | Checkpoint]:
        """Wait for the next bytes; the events they complete, often none. Raises DisconnectedError, ProtocolError."""
        try:
            chunk = await anext(self._chunks)
        except StopAsyncIteration:
            raise DisconnectedError("the agent ended the stream") from None
        except httpx.ReadTimeout:
            raise DisconnectedError("the agent was silent for too long") from None
        except httpx.TransportError as error:
            raise DisconnectedError(describe(error)) from None
        except httpx.DecodingError as error:
            raise ProtocolError(f"the stream is compressed in a way that cannot be undone: {error}") from None
        return [read(block, next(self._sequence)) for block in self._parser.feed(chunk)]


@asynccontextmanager
async def open_stream(
    client: httpx.AsyncClient, url: httpx.URL, last_event_id: str, sequence: "count[int]"
) -> AsyncIterator[Stream]:
    """Raises DisconnectedError, RefusedError, ProtocolError."""
    headers = {"Accept": EVENT_STREAM, "Accept-Encoding": "identity", "Cache-Control": "no-cache"}
    if last_event_id:
        headers["Last-Event-ID"] = last_event_id
    request = client.build_request("GET", url, headers=headers)
    try:
        response = await client.send(request, stream=True, follow_redirects=True)
    except httpx.TransportError as error:
        raise DisconnectedError(describe(error)) from None
    except httpx.TooManyRedirects:
        raise ProtocolError(f"{shown(url)} redirects without end") from None
    try:
        await _check(response)
        yield Stream(response, sequence)
    finally:
        await response.aclose()


async def _check(response: httpx.Response) -> None:
    status = response.status_code
    if status == 200:
        content_type = response.headers.get("content-type", "")
        if content_type.partition(";")[0].strip().lower() != EVENT_STREAM:
            raise ProtocolError(f"{shown(response.url)} sends {content_type or 'no content type'}: is it an agent?")
        return
    try:
        await response.aread()
    except httpx.TransportError as error:
        raise DisconnectedError(describe(error)) from None
    detail = detail_of(response)
    if status >= 500 or status in _TRY_AGAIN:
        raise DisconnectedError(f"{detail} (HTTP {status})", retry_after(response.headers.get("retry-after")))
    raise RefusedError(status, detail)


def stream_url(url: str, types: Sequence[str], parents: Sequence[str]) -> httpx.URL:
    """The stream's address with its filters. Raises ValueError."""
    query = {"checkpoint": ["1"]}
    for name, values in (("types", types), ("parents", parents)):
        if any("," in value for value in values):
            # One value is split at its commas, of several each stands for itself.
            query[name] = [*values, values[0]]
        elif values:
            query[name] = [",".join(values)]
    return ops_url(url).copy_merge_params(httpx.QueryParams(query))


def ops_url(url: str) -> httpx.URL:
    """``/ops`` below an agent's base address. Raises ValueError."""
    where = urlsplit(url)
    if where.scheme not in ("http", "https") or not where.hostname:
        raise ValueError(f"{url!r} is no address of an agent, such as http://localhost:8042")
    try:
        base = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"{url!r} is no address of an agent: {error}") from None
    path = base.path.rstrip("/")
    return base.copy_with(path=path if path.endswith("/ops") else f"{path}/ops", fragment=None)


def shown(url: httpx.URL) -> str:
    """The address without its query and its credentials."""
    return str(url.copy_with(query=None, userinfo=b""))


def detail_of(response: httpx.Response) -> str:
    """The sentence in an answer's problem document, else the status in words. The body must have been read."""
    try:
        detail = response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        return response.reason_phrase or "the agent answered without words"
    return str(detail)


def describe(error: httpx.RequestError) -> str:
    return str(error) or type(error).__name__


def basic_auth(password: str | None) -> httpx.BasicAuth | None:
    """Any user name will do."""
    return httpx.BasicAuth("", password) if password else None

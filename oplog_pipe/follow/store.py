"""Questions to an agent about its store: identity, head, number of objects, a known position."""

import asyncio
import ssl
from contextlib import aclosing
from itertools import count
from typing import NamedTuple

import msgspec

from oplog_pipe.follow.streams import Change, is_reset
from oplogc.follow.format import StreamFormat
from oplogc.follow.stream import STORE_HEADER, DisconnectedError, Stream, named_store, open_stream
from oplogc.http.address import Endpoint, base_endpoint, below
from oplogc.http.answers import Answer
from oplogc.http.client import Http, http_client

_TIMEOUT_SECONDS = 5.0


class StoreReport(NamedTuple):
    """The store of an agent, as ``/status`` describes it. None: the agent does not say.

    ``head``: newest id of the oplog, not older than the question. ``live``: number of objects.
    """

    store: str | None = None
    head: str | None = None
    live: int | None = None


class _Store(msgspec.Struct):
    newest_id: str | None = None
    live: int | None = None


class _Status(msgspec.Struct):
    store: _Store = msgspec.field(default_factory=_Store)


_read = msgspec.json.Decoder(_Status).decode


async def ask_store(
    url: str, password: str | None, verify: ssl.SSLContext | bool
) -> StoreReport | None:
    """Ask the agent at an address. None: it does not answer."""
    async with aclosing(Http(None, _TIMEOUT_SECONDS, verify=verify)) as http:
        endpoint = below(base_endpoint(url, password), "/status")
        answer = await http.ask("GET", endpoint, None, {"Accept": "application/json"})
    if not isinstance(answer, Answer):
        return None
    store = answer.headers.get(STORE_HEADER)
    try:
        status = _read(answer.body)
    except ValueError:
        return StoreReport(store)
    return StoreReport(store, status.store.newest_id, status.store.live)


async def knows(
    endpoint: Endpoint,
    position: str,
    store: str | None,
    stream_format: StreamFormat[Change],
    verify: ssl.SSLContext | bool,
) -> bool:
    """Return whether the history of an agent's oplog contains a position. Not: it is another one.

    ``store``: the expected identity. Raises DisconnectedError, and OplogError for good.
    """
    limit = _TIMEOUT_SECONDS
    try:
        async with http_client(None, verify=verify) as client, asyncio.timeout(limit):
            response = await open_stream(client, endpoint, position, limit, stream_format.refused)
            stream = Stream(response, stream_format, position, count(1), limit, lambda _: None)
            async with aclosing(stream):
                other = named_store(response)
                if None not in (store, other) and store != other:
                    raise DisconnectedError("its answers come from different stores")
                # The agent sends the position first if its log continues there.
                while not (items := await stream.read()):
                    pass
    except TimeoutError:
        raise DisconnectedError(f"no answer within {limit:g} s") from None
    return not is_reset(items[0])

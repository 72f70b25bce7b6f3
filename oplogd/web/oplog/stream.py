"""GET on / and /ops: the stream, or the dashboard for a browser."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from fastapi import FastAPI, Request, Response
from starlette.datastructures import Headers, QueryParams

from oplog_kit.listen import Address
from oplog_kit.wording import shortened
from oplogd.decode.media_types import EVENT_STREAM, HTML
from oplogd.model.names import OPLOG, TopicName
from oplogd.model.shard import Shard
from oplogd.stream.connection import StreamConnection
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.hub import Hub, TooManyClientsError, TooManyFromAddressError
from oplogd.stream.response import EventStream
from oplogd.web.access.caller import Caller
from oplogd.web.access.carried import kind_of_credentials
from oplogd.web.access.sides import ReadAuthenticator
from oplogd.web.describe.document import ERRORS, described
from oplogd.web.describe.parameters import FILTERS, OF_SHARD, OF_STREAM, SHARD_TEXT
from oplogd.web.http.headers import SHARD, TERM, accepts, shard_header
from oplogd.web.http.plain import Answer, PlainRequest, Work, answered_by, header_lines
from oplogd.web.http.problem import COMMON_HEADERS, Problem
from oplogd.web.oplog.ingest import OPLOG_PATHS
from oplogd.web.oplog.page import page
from oplogd.web.oplog.stream_request import parse_stream_request

_RETRY_AFTER = {"Retry-After": "10"}

_EXAMPLE = """id: 545b55c7002900000000002a
event: insert
data: {"timestamp":"2014-11-06T11:04:39.041Z","parents":["user/x3kd2"],"type":"video","id":"xekw"}

"""

# Connects a consumer at an address (HOST:PORT). Raises the errors of ``Hub.connect``.
Connect = Callable[[str], Awaitable[StreamConsumer]]


class Asked(NamedTuple):
    """The stream that a client asks for."""

    connect: Connect
    shard: Shard | None


_HEAD = header_lines(COMMON_HEADERS, None)
_HEAD_END = header_lines({"X-Accel-Buffering": "no"}, None, f"{EVENT_STREAM}; charset=utf-8")


class Streams:
    """Answers requests with streams. Messages name the limits, which the hub enforces."""

    def __init__(
        self,
        hub: Hub,
        readers: ReadAuthenticator,
        is_stopping: Callable[[], bool],
        max_filter_values: int,
    ) -> None:
        self.hub = hub
        self._readers = readers
        self._is_stopping = is_stopping
        self._max_filter_values = max_filter_values

    def require_accepted(self, request: Request, plural: str) -> None:
        """Raise Problem 406 unless the client takes event streams.

        ``plural``: the plural noun for the contents of the stream.
        """
        if not _accepts(request, EVENT_STREAM):
            url = str(request.url.replace(query=""))
            raise Problem(
                406,
                f"{plural} are sent as {EVENT_STREAM}: name it in the Accept header, "
                f"as in: curl -N -H 'Accept: {EVENT_STREAM}' {shortened(url)}",
            )

    async def caller_of(self, request: Request, *, moves: bool = False) -> Caller:
        """Return the client of a request. ``moves``: see ``mover``. Raises Problem."""
        with self.hub.refusing(kind_of_credentials(request)):
            find = self._readers.mover if moves else self._readers.caller
            return await find(request)

    async def reader_of(self, request: Request, name: TopicName) -> Caller:
        """Return the client of a request. Raises Problem unless it may read this topic."""
        caller = await self.caller_of(request)
        with self.hub.refusing(kind_of_credentials(request)):
            caller.require_read(name)
        return caller

    async def operations(self, request: Request, caller: Caller) -> Response:
        """Answer with the stream of operations."""
        with self.hub.refusing("bad_request"):
            asked = self._to_operations(caller, request.headers, request.query_params)
        return await self.answer(request, caller, *asked)

    def begin(self, request: PlainRequest) -> Work | None:
        """Begin to answer with the stream of operations by the short way."""
        return self.begin_plain(request, OPLOG, self._to_operations)

    def begin_plain(
        self,
        request: PlainRequest,
        name: TopicName,
        parse: Callable[[Caller, Headers, QueryParams], Asked],
    ) -> Work | None:
        """Begin to answer with the stream of a topic by the short way. ``parse`` raises Problem."""
        accept = request.headers.get(b"accept", b"").decode("latin-1")
        if (
            not request.address
            or self._is_stopping()
            or not accepts(accept, EVENT_STREAM)
            or (caller := self._readers.plain_caller(request)) is None
            or name not in caller.right.read
        ):
            return None
        headers = Headers(raw=list(request.headers.items()))
        try:
            asked = parse(caller, headers, QueryParams(request.query))
        except Problem:
            return None
        address = str(Address(request.address, request.port))
        return answered_by(self._begun(caller, asked, address, headers.get("last-event-id")))

    def _to_operations(self, caller: Caller, headers: Headers, query: QueryParams) -> Asked:
        """Raise Problem 400 for an invalid parameter."""
        asked = parse_stream_request(headers, query, self._max_filter_values)
        filter_ = caller.right.narrow(asked.filter)

        async def connect(address: str) -> StreamConsumer:
            return await self.hub.connect(
                asked.position,
                filter_,
                checkpoints=asked.checkpoints,
                address=address,
                name=caller.named(asked.name),
                pass_=caller.pass_,
            )

        return Asked(connect, filter_.shard)

    async def answer(
        self, request: Request, caller: Caller, connect: Connect, shard: Shard | None
    ) -> Response:
        """Answer with the stream of a consumer that ``connect`` returns. Raises Problem."""
        hub = self.hub
        headers = {**COMMON_HEADERS, **shard_header(shard)}
        if last_event_id := request.headers.get("last-event-id"):
            headers["Last-Event-ID"] = last_event_id
        # Not 503: EventSource gives up after an error. It reconnects after a stream that ended.
        if self._is_stopping():
            return EventStream(hub, None, {**headers, "Connection": "close"})
        if request.method == "HEAD":
            return EventStream(hub, None, headers)
        client = request.client
        address = str(Address(client.host, client.port)) if client else "unknown"
        consumer = await self._connected(caller, connect, address)
        if consumer.term:
            headers[TERM] = str(consumer.term)
        return EventStream(hub, consumer, headers)

    async def _begun(
        self, caller: Caller, asked: Asked, address: str, last_event_id: str | None
    ) -> Answer:
        consumer = await self._connected(caller, asked.connect, address)
        headers = shard_header(asked.shard)
        if last_event_id:
            headers["Last-Event-ID"] = last_event_id
        echo = header_lines(headers, None) if headers else b""
        stream = partial(StreamConnection, self.hub, consumer)
        return Answer(200, _HEAD + echo + _HEAD_END, stream=stream)

    async def _connected(self, caller: Caller, connect: Connect, address: str) -> StreamConsumer:
        hub = self.hub
        try:
            consumer = await connect(address)
        except TooManyFromAddressError:
            raise Problem(
                429,
                f"{hub.max_clients_per_address:,} consumers from this address are connected,"
                " more are not allowed (--max-clients-per-address)",
                _RETRY_AFTER,
            ) from None
        except TooManyClientsError:
            raise Problem(
                503,
                f"{hub.max_clients:,} consumers are connected, more are not allowed",
                _RETRY_AFTER,
            ) from None
        if not self._readers.is_valid(caller.credential):  # gone meanwhile
            consumer.end()
        return consumer


def add_stream(app: FastAPI, streams: Streams) -> None:
    @described(
        "operations",
        *(*ERRORS, 406, 409),
        answer={EVENT_STREAM: _EXAMPLE},
        headers={
            "Oplog-Store": "Identity of the store, made once and saved in it.",
            SHARD: SHARD_TEXT,
        },
        asks={**OF_STREAM, **FILTERS, **OF_SHARD},
    )
    async def follow(request: Request) -> Response:
        """Follow the stream of operations.

        Requires `Accept: text/event-stream`. The stream starts with the next operation, unless
        Last-Event-ID, last_event_id or since gives a position. The position `0` starts a full
        replication: `reset`, every object that exists, `live`. If the agent is stopping, the stream
        ends at once.
        """
        if (
            request.url.path == "/"
            and _accepts(request, HTML)
            and not _accepts(request, EVENT_STREAM)
        ):
            return page()
        streams.require_accepted(request, "operations")
        caller = await streams.reader_of(request, OPLOG)
        return await streams.operations(request, caller)

    for path in OPLOG_PATHS:
        app.add_api_route(path, follow, methods=["GET"], include_in_schema=path == "/ops")


def _accepts(request: Request, media_type: str) -> bool:
    return accepts(",".join(request.headers.getlist("accept")), media_type)

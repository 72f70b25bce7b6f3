"""GET on / and /ops: the stream, or the dashboard for a browser."""

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request, Response

from oplog_kit.listen import Address
from oplog_kit.wording import shortened
from oplogd.decode.media_types import EVENT_STREAM, HTML
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.hub import Hub, TooManyClientsError, TooManyFromAddressError
from oplogd.stream.response import EventStream
from oplogd.web.access.authentication import ReadAuthenticator, credentials
from oplogd.web.describe.document import READ_ERRORS, described
from oplogd.web.describe.parameters import FILTERS, OF_STREAM
from oplogd.web.http.headers import accepts
from oplogd.web.http.problem import COMMON_HEADERS, Problem
from oplogd.web.oplog.page import page
from oplogd.web.oplog.stream_request import parse_stream_request

_RETRY_AFTER = {"Retry-After": "10"}

_EXAMPLE = """id: 545b55c7002900000000002a
event: insert
data: {"timestamp":"2014-11-06T11:04:39.041Z","parents":["user/x3kd2"],"type":"video","id":"xekw"}

"""

# Connects a consumer at an address (HOST:PORT). Raises the errors of ``Hub.connect``.
Connect = Callable[[str], Awaitable[StreamConsumer]]


class Streams:
    """Answers requests with streams. Messages name the limits, which the hub enforces."""

    def __init__(self, hub: Hub, is_stopping: Callable[[], bool], max_filter_values: int) -> None:
        self.hub = hub
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

    async def operations(self, request: Request) -> Response:
        """Answer with the stream of operations."""
        hub = self.hub
        with hub.refusing("bad_request"):
            asked = parse_stream_request(
                request.headers, request.query_params, self._max_filter_values
            )
        return await self.answer(
            request,
            lambda address: hub.connect(
                asked.position,
                asked.filter,
                checkpoints=asked.checkpoints,
                address=address,
                name=asked.name,
            ),
        )

    async def answer(self, request: Request, connect: Connect) -> Response:
        """Answer with the stream of a consumer that ``connect`` returns. Raises Problem."""
        hub = self.hub
        headers = dict(COMMON_HEADERS)
        if last_event_id := request.headers.get("last-event-id"):
            headers["Last-Event-ID"] = last_event_id
        # Not 503: EventSource gives up after an error. It reconnects after a stream that ended.
        if self._is_stopping():
            return EventStream(hub, None, {**headers, "Connection": "close"})
        if request.method == "HEAD":
            return EventStream(hub, None, headers)
        client = request.client
        try:
            consumer = await connect(
                str(Address(client.host, client.port)) if client else "unknown"
            )
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
        return EventStream(hub, consumer, headers)


def add_stream(app: FastAPI, readers: ReadAuthenticator, streams: Streams) -> None:
    @described(
        "operations",
        *(*READ_ERRORS, 406),
        answer={EVENT_STREAM: _EXAMPLE},
        headers={"Oplog-Store": "Identity of the store, made once and saved in it."},
        asks={**OF_STREAM, **FILTERS},
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
        with streams.hub.refusing(credentials(request)):
            readers.require(request)
        return await streams.operations(request)

    for path in ("/", "/ops"):
        app.add_api_route(path, follow, methods=["GET"], include_in_schema=path == "/ops")


def _accepts(request: Request, media_type: str) -> bool:
    return accepts(",".join(request.headers.getlist("accept")), media_type)

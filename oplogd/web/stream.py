"""GET on / and /ops: the stream, or the dashboard for a browser."""

from collections.abc import Callable

from fastapi import FastAPI, Request, Response

from oplogd.errors import StoreUnavailableError
from oplogd.media_types import EVENT_STREAM, HTML
from oplogd.stream.hub import Hub, TooManyClientsError, TooManyFromAddressError
from oplogd.stream.response import EventStream
from oplogd.values import Address
from oplogd.web import describe
from oplogd.web.access.authentication import ReadAuthenticator, credentials
from oplogd.web.negotiate import accepts
from oplogd.web.page import page
from oplogd.web.problem import COMMON_HEADERS, Problem
from oplogd.web.stream_request import parse_stream_request

_RETRY_AFTER = {"Retry-After": "10"}
_STORE_AWAY = {"Retry-After": "5"}


def add_stream(
    app: FastAPI,
    readers: ReadAuthenticator,
    hub: Hub,
    is_stopping: Callable[[], bool],
    *,
    max_clients: int,
    max_clients_per_address: int,
) -> None:
    """Add the stream. Messages name the limits, which the hub enforces."""

    async def get(request: Request) -> Response:
        accept = ",".join(request.headers.getlist("accept"))
        if accepts(accept, EVENT_STREAM):
            with hub.refusing(credentials(request)):
                readers.require(request)
            return await follow(request)
        if request.url.path == "/" and accepts(accept, HTML):
            return page()
        raise Problem(
            406,
            f"operations are sent as {EVENT_STREAM}: name it in the Accept header, "
            f"as in: curl -N -H 'Accept: {EVENT_STREAM}' {request.url.replace(query='')}",
        )

    async def follow(request: Request) -> Response:
        with hub.refusing("bad_request"):
            asked = parse_stream_request(request.headers, request.query_params)
        headers = dict(COMMON_HEADERS)
        if last_event_id := request.headers.get("last-event-id"):
            headers["Last-Event-ID"] = last_event_id
        # Not 503: EventSource gives up after an error. It reconnects after a stream that ended.
        if is_stopping():
            return EventStream(hub, None, {**headers, "Connection": "close"})
        if request.method == "HEAD":
            return EventStream(hub, None, headers)
        client = request.client
        try:
            consumer = await hub.connect(
                asked.position,
                asked.filter,
                checkpoints=asked.checkpoints,
                address=str(Address(client.host, client.port)) if client else "unknown",
                name=asked.name,
            )
        except TooManyFromAddressError:
            raise Problem(
                429,
                f"{max_clients_per_address:,} consumers from this address are connected,"
                " more are not allowed (--max-clients-per-address)",
                _RETRY_AFTER,
            ) from None
        except TooManyClientsError:
            raise Problem(
                503,
                f"{max_clients:,} consumers are connected, more are not allowed",
                _RETRY_AFTER,
            ) from None
        except StoreUnavailableError as error:
            raise Problem(503, str(error), _STORE_AWAY) from None
        return EventStream(hub, consumer, headers)

    for path in ("/", "/ops"):
        app.add_api_route(
            path, get, methods=["GET"], include_in_schema=path == "/ops", **describe.GET
        )

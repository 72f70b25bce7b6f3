"""The FastAPI app: one function for each endpoint of the wire contract."""

import re
from datetime import UTC, datetime

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from oplogd import __version__
from oplogd.agent import Agent
from oplogd.errors import PositionError, StoreUnavailableError
from oplogd.event_id import Millis, Position, parse_position
from oplogd.ingest.http import JSON
from oplogd.operation import now_ms, parse_timestamp
from oplogd.stream.filters import parse_filter
from oplogd.stream.hub import EventStream, TooManyClientsError, TooManyFromAddressError
from oplogd.stream.lags import survey
from oplogd.values import Address
from oplogd.web import describe
from oplogd.web.auth import ReadGuard, WriteGuard, credentials
from oplogd.web.consumers import consumers
from oplogd.web.ingest import Intake
from oplogd.web.metrics import render
from oplogd.web.negotiate import accepts
from oplogd.web.page import page
from oplogd.web.problem import COMMON_HEADERS, Problem
from oplogd.web.redact import without_folders
from oplogd.web.session import add_session
from oplogd.web.status import status, store_trouble

EVENT_STREAM = "text/event-stream"
_PREFLIGHT_HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, HEAD",
    "Access-Control-Allow-Headers": "Accept, Authorization, Cache-Control, Last-Event-ID",
    "Access-Control-Max-Age": "86400",
}
_RETRY_AFTER = {"Retry-After": "1"}
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def create_app(agent: Agent) -> FastAPI:
    app = FastAPIOffline(
        title="oplog", version=__version__, description=describe.INTRODUCTION, redoc_url=None
    )
    files = (agent.settings.store, agent.settings.spool)
    allowed_hosts = agent.settings.allowed_hosts or frozenset()
    readers = ReadGuard(agent.settings.password, allowed_hosts)
    writers = WriteGuard(agent.settings.ingest_password, allowed_hosts)
    intake = Intake(agent)

    @app.exception_handler(Problem)
    async def on_problem(_: Request, problem: Problem) -> Response:
        problem.detail = without_folders(problem.detail, files)
        return problem.response()

    @app.exception_handler(HTTPException)
    async def on_http_exception(request: Request, error: HTTPException) -> Response:
        path = request.url.path
        allow = ", ".join(_allowed(app, path))
        if error.status_code == 405 and allow:
            return Problem(
                405, f"{path} allows {allow}, not {request.method}", {"Allow": allow}
            ).response()
        if error.status_code in (
            404,
            405,
        ):  # preflight answers everywhere, so an unknown path is "not allowed" too
            return Problem(
                404, f"there is nothing at {path}; operations and the stream are at / and /ops"
            ).response()
        return Problem(error.status_code, str(error.detail), error.headers).response()

    @app.exception_handler(ClientDisconnect)
    async def on_disconnect(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=400)  # nobody gets it, and the connection has logged why

    @app.exception_handler(Exception)
    async def on_exception(_: Request, __: Exception) -> Response:
        return Problem(500, "an error of the agent; its log tells more").response()

    async def post(request: Request) -> Response:
        writers.demand(request)
        return await intake.post(request)

    async def get(request: Request) -> Response:
        accept = ",".join(request.headers.getlist("accept"))
        if accepts(accept, EVENT_STREAM):
            with agent.hub.refusing(credentials(request)):
                readers.demand(request)
            return await _stream(agent, request)
        if request.url.path == "/" and accepts(accept, "text/html"):
            return page()
        raise Problem(
            406,
            f"operations are sent as {EVENT_STREAM}: name it in the Accept header, "
            f"as in: curl -N -H 'Accept: {EVENT_STREAM}' {request.url.replace(query='')}",
        )

    for path in ("/", "/ops"):
        shown = path == "/ops"  # the same thing twice in the documentation helps nobody
        app.add_api_route(path, post, methods=["POST"], include_in_schema=shown, **describe.POST)
        app.add_api_route(path, get, methods=["GET"], include_in_schema=shown, **describe.GET)

    @app.get("/status", **describe.STATUS)
    async def get_status(request: Request) -> Response:
        lags = await survey(agent.hub.consumers, now_ms())
        body = await status(agent, lags)
        if readers.admits(request):
            body |= await consumers(lags)
            body["refused_datagrams"] = agent.udp.refused.described()
        code = 200 if body["status"] == "OK" else 503
        return Response(msgspec.json.encode(body), code, COMMON_HEADERS, JSON)

    @app.get("/live", **describe.LIVE)
    async def get_live() -> Response:
        return Response("alive\n", 200, COMMON_HEADERS, "text/plain")

    @app.get("/ready", **describe.READY)
    async def get_ready() -> Response:
        if agent.stopping:
            raise Problem(503, "the agent is stopping")
        if trouble := await store_trouble(agent):
            raise Problem(503, trouble, _RETRY_AFTER)
        return Response("ready\n", 200, COMMON_HEADERS, "text/plain")

    @app.get("/metrics", **describe.METRICS)
    async def get_metrics() -> Response:
        lags = await survey(agent.hub.consumers, now_ms())
        return Response(
            render(await status(agent, lags), lags),
            200,
            COMMON_HEADERS,
            "text/plain; version=1.0.0",
        )

    add_session(app, readers)

    @app.options("/{path:path}", include_in_schema=False)
    async def preflight() -> Response:
        return Response(status_code=204, headers=_PREFLIGHT_HEADERS)

    _answer_head(app)
    return app


def _answer_head(app: FastAPI) -> None:
    """Let every path that has GET have HEAD, also those of the documentation."""
    for route in list(app.routes):
        if isinstance(route, APIRoute) and "GET" in (route.methods or ()):
            app.add_api_route(route.path, route.endpoint, methods=["HEAD"], include_in_schema=False)


async def _stream(agent: Agent, request: Request) -> Response:
    query = request.query_params
    with agent.hub.refusing("bad_request"):
        try:
            position = _position(request)
        except PositionError as error:
            raise Problem(400, str(error)) from None
        wish = query.get("checkpoint", "0")
        if wish not in ("0", "1", ""):
            raise Problem(400, "checkpoint: must be 1 or 0")
        name = query.get("name", "")
        if name and not _NAME.fullmatch(name):
            raise Problem(400, "name: must be 1 to 100 ASCII letters, digits, '.', '_' or '-'")
    headers = dict(COMMON_HEADERS)
    if last_event_id := request.headers.get("last-event-id"):
        headers["Last-Event-ID"] = last_event_id
    if agent.stopping:  # not 503: at that a browser's EventSource gives up, after a stream that has ended it comes back
        return EventStream(agent.hub, None, {**headers, "Connection": "close"})
    if request.method == "HEAD":
        return EventStream(agent.hub, None, headers)
    client = request.client
    try:
        consumer = await agent.hub.connect(
            position,
            parse_filter(query.getlist("types"), query.getlist("parents")),
            checkpoints=wish == "1",
            address=str(Address(client.host, client.port)) if client else "unknown",
            name=name,
        )
    except TooManyFromAddressError:
        limit = f"{agent.settings.max_clients_per_address:,}"
        raise Problem(
            429,
            f"{limit} consumers from this address are connected, more are not allowed (--max-clients-per-address)",
            {"Retry-After": "10"},
        ) from None
    except TooManyClientsError:
        limit = f"{agent.settings.max_clients:,}"
        raise Problem(
            503, f"{limit} consumers are connected, more are not allowed", {"Retry-After": "10"}
        ) from None
    except StoreUnavailableError as error:
        raise Problem(503, str(error), {"Retry-After": "5"}) from None
    return EventStream(agent.hub, consumer, headers)


def _position(request: Request) -> Position | None:
    """Where the consumer wants to start; the header wins, since EventSource sends it on reconnect."""
    query = request.query_params
    if text := request.headers.get("last-event-id") or query.get("last_event_id"):
        return parse_position(text)
    since = query.get("since")
    if not since:
        return None
    if since.isascii() and since.isdecimal() and len(since) <= 13:
        return Millis(int(since), chosen=True)
    if since[-6:-5] == " ":  # a '+' that was not escaped in the URL
        since = f"{since[:-6]}+{since[-5:]}"
    try:
        return Millis(
            max(0, (parse_timestamp(since) - _EPOCH) // (_EPOCH.resolution * 1000)), chosen=True
        )
    except ValueError as error:
        raise PositionError(f"since: {error}; it may also be milliseconds since 1970") from None


def _allowed(app: FastAPI, path: str) -> list[str]:
    """The methods of a path, none if there is nothing at it."""
    methods: set[str] = set()
    for route in app.routes:
        if getattr(route, "path", None) == path:
            methods |= getattr(route, "methods", None) or set()
    return sorted(methods | {"OPTIONS"}) if methods else []

"""Endpoints for operators and their tools: /status, /live, /ready and /metrics."""

from collections.abc import Callable

import msgspec
from fastapi import FastAPI, Request, Response

from oplogd.decode.media_types import JSON, PROMETHEUS
from oplogd.web.access.authentication import ReadAuthenticator
from oplogd.web.describe import describe
from oplogd.web.figures.metrics import render
from oplogd.web.figures.status import StatusReport
from oplogd.web.http.problem import COMMON_HEADERS, Problem

_RETRY_AFTER = {"Retry-After": "1"}


def add_monitoring(
    app: FastAPI,
    readers: ReadAuthenticator,
    report: StatusReport,
    is_stopping: Callable[[], bool],
) -> None:
    @app.get("/status", **describe.STATUS)
    async def get_status(request: Request) -> Response:
        lags = await report.lags()
        body = await report.members(lags)
        if readers.admits(request):
            body |= await report.private_members(lags)
        code = 200 if body["status"] == "OK" else 503
        return Response(msgspec.json.encode(body), code, COMMON_HEADERS, JSON)

    @app.get("/live", **describe.LIVE)
    async def get_live() -> Response:
        return Response("alive\n", 200, COMMON_HEADERS, "text/plain")

    @app.get("/ready", **describe.READY)
    async def get_ready() -> Response:
        if is_stopping():
            raise Problem(503, "the agent is stopping")
        if trouble := await report.store.trouble():
            raise Problem(503, trouble, _RETRY_AFTER)
        return Response("ready\n", 200, COMMON_HEADERS, "text/plain")

    @app.get("/metrics", **describe.METRICS)
    async def get_metrics() -> Response:
        body = render(await report.figures())
        return Response(body, 200, COMMON_HEADERS, PROMETHEUS)

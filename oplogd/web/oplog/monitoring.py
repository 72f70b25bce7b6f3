"""Endpoints for operators and their tools: /status, /live, /ready and /metrics."""

from collections.abc import Callable

import msgspec
from fastapi import FastAPI, Request, Response

from oplogd.decode.media_types import JSON, PROMETHEUS
from oplogd.web.access.sides import ReadAuthenticator
from oplogd.web.describe.document import described
from oplogd.web.describe.types import StatusAnswer
from oplogd.web.figures.status import Shown, StatusReport
from oplogd.web.http.problem import COMMON_HEADERS, RETRY_AFTER, Problem


def add_monitoring(
    app: FastAPI,
    readers: ReadAuthenticator,
    report: StatusReport,
    is_stopping: Callable[[], bool],
) -> None:
    @app.get("/status")
    @described(
        "agent",
        answer=StatusAnswer,
        also={503: ("The store is unreachable. The queue holds operations.", StatusAnswer)},
    )
    async def status(request: Request) -> Response:
        """Counters and the state of queue, ring and store.

        For requests with the password of the stream, also the connected consumers and the last
        refused datagrams. If no password is set, they are shown on this machine only. With --rights
        or --token-key, other clients see numbers only. The lag of a consumer counts what was not
        yet handed to its connection, not what it has not handled.
        """
        body = await report.members(await shown_to(request))
        code = 200 if body["status"] == "OK" else 503
        return Response(msgspec.json.encode(body), code, COMMON_HEADERS, JSON)

    @app.get("/live")
    @described("agent", text="The process works, also while the store is unreachable.")
    async def live() -> Response:
        """Check that the process works."""
        return Response("alive\n", 200, COMMON_HEADERS, "text/plain")

    @app.get("/ready")
    @described("agent", 503, text="The store answers.")
    async def ready(request: Request) -> Response:
        """Check that the store answers."""
        if is_stopping():
            raise Problem(503, "the agent is stopping")
        if trouble := await report.trouble():
            is_bare = await shown_to(request) is Shown.BARE
            raise Problem(503, "the store does not work" if is_bare else trouble, RETRY_AFTER)
        return Response("ready\n", 200, COMMON_HEADERS, "text/plain")

    @app.get("/metrics")
    @described("agent", text="Prometheus text format.")
    async def metrics(request: Request) -> Response:
        """The numbers of /status for Prometheus.

        With --rights or --token-key, names of topics and consumers are shown only to the password
        of the stream, and to clients that may read and manage all topics.
        """
        from oplogd.web.figures.metrics import render  # needs a library that nothing else needs

        body = render(await report.figures(await shown_to(request)))
        return Response(body, 200, COMMON_HEADERS, PROMETHEUS)

    async def shown_to(request: Request) -> Shown:
        """Return the part of the figures that the client of a request gets."""
        caller = await readers.admitted(request)
        if caller is not None and caller.right.is_whole_reader:
            return Shown.ALL
        return Shown.BARE if readers.is_closed else Shown.PUBLIC

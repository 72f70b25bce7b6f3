"""Answers to requests that fail: every error becomes a Problem."""

from collections.abc import Collection
from pathlib import Path

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from oplog_kit.texts import shortened
from oplogd.web.http.methods import allowed_methods
from oplogd.web.http.problem import Problem
from oplogd.web.http.redact import without_folders
from oplogd.web.http.refused_bodies import RefusedBodies


def add_error_handlers(
    app: FastAPI, private_files: Collection[Path | None], refused: RefusedBodies | None = None
) -> None:
    """Handle all exceptions. Messages never name the folders of ``private_files``."""
    refused_bodies = refused or RefusedBodies()

    @app.exception_handler(Problem)
    async def on_problem(request: Request, problem: Problem) -> Response:
        refused_bodies.add(request.method, problem)
        problem.detail = without_folders(problem.detail, private_files)
        if problem.status == 413:
            # Without an end of the connection the agent would read the rest of the body.
            end = (request.scope.get("extensions") or {}).get("oplog.end")
            if end is not None:
                end()
            problem.headers["Connection"] = "close"
        return problem.response()

    @app.exception_handler(HTTPException)
    async def on_http_exception(request: Request, error: HTTPException) -> Response:
        path = shortened(request.url.path)
        allow = ", ".join(allowed_methods(app, request.url.path))
        if error.status_code == 405 and allow:
            return Problem(
                405, f"{path} allows {allow}, not {request.method}", {"Allow": allow}
            ).response()
        # The preflight route matches every path, so an unknown path brings 405 instead of 404.
        if error.status_code in (404, 405):
            return Problem(
                404,
                f"there is nothing at {path}; operations and the stream are at / and /ops,"
                " topics at /v1/namespaces/NAMESPACE/topics, transactions at /v1/txns,"
                " leases at /v1/leases/NAME",
            ).response()
        return Problem(error.status_code, str(error.detail), error.headers).response()

    @app.exception_handler(ClientDisconnect)
    async def on_disconnect(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=400)  # never sent; the connection has logged the reason

    @app.exception_handler(Exception)
    async def on_exception(_: Request, __: Exception) -> Response:
        return Problem(500, "internal error of the agent; see its log").response()

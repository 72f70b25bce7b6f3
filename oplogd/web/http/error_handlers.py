"""Answers to failed requests: every error becomes a Problem."""

from collections.abc import Collection
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Scope

from oplog_kit.wording import shortened
from oplogd.decode.compressed import TooLargeError
from oplogd.errors import (
    ConsumerExistsError,
    ConsumerNotFoundError,
    FieldError,
    LeaseConflictError,
    LeaseNotFoundError,
    MessageTooLargeError,
    NoLogNumberError,
    NotConfirmedError,
    OnceKeyNotFoundError,
    OperationError,
    OplogError,
    PositionError,
    QueueFullError,
    StaleFenceError,
    StaleTermError,
    StoreUnavailableError,
    TooManyConsumersError,
    TooManyKeysError,
    TooManyShardsError,
    TopicExistsError,
    TopicFullError,
    TopicNotFoundError,
    TransactionConflictError,
    TransactionNotFoundError,
    TransactionTooLargeError,
)
from oplogd.ingest.budget import NoRoomError
from oplogd.ingest.operations import InvalidBodyError
from oplogd.topics.codec.codec import InvalidMessagesError
from oplogd.web.http.methods import allowed_methods
from oplogd.web.http.problem import RETRY_AFTER, STORE_AWAY, Problem, without_folders
from oplogd.workers.tallies import RefusedBodies

# The status of each error. A class counts for its unlisted subclasses.
_STATUS: dict[type[OplogError], int] = {
    FieldError: 400,
    PositionError: 400,
    ConsumerNotFoundError: 404,
    LeaseNotFoundError: 404,
    OnceKeyNotFoundError: 404,
    TopicNotFoundError: 404,
    TransactionNotFoundError: 404,
    ConsumerExistsError: 409,
    LeaseConflictError: 409,
    TooManyShardsError: 409,
    TopicExistsError: 409,
    TransactionConflictError: 409,
    StaleFenceError: 412,
    StaleTermError: 412,
    MessageTooLargeError: 413,
    TooLargeError: 413,
    TransactionTooLargeError: 413,
    NoRoomError: 503,
    QueueFullError: 503,
    StoreUnavailableError: 503,
    TopicFullError: 503,
    NoLogNumberError: 507,
    TooManyConsumersError: 507,
    TooManyKeysError: 507,
}
# The reasons to refuse a body, and the methods of requests with one.
_REASONS = {400: "invalid", 413: "too_large", 415: "type"}
_WITH_BODY = ("POST", "PUT", "DELETE")


def problem_of(error: OplogError) -> Problem:
    """Return the Problem for an error of a request or of the store."""
    if isinstance(error, InvalidBodyError | InvalidMessagesError):
        too_large = isinstance(error, InvalidMessagesError) and error.too_large
        errors = [bad._asdict() for bad in error.bad]
        return Problem(413 if too_large else 400, str(error), errors=errors)
    if isinstance(error, OperationError):  # the body is not gzip
        return Problem(400, f"body: {error.reason}")
    if isinstance(error, NotConfirmedError):
        return Problem(503, f"not confirmed, it may still be stored: {error}", STORE_AWAY)
    if isinstance(error, StoreUnavailableError):
        return Problem(503, str(error), STORE_AWAY)
    status = next((_STATUS[each] for each in type(error).__mro__ if each in _STATUS), None)
    if status is None:
        raise error
    return Problem(status, str(error), RETRY_AFTER if status == 503 else None)


class Refusals:
    """Answers failed requests, and counts them in ``bodies``.

    Its messages never name the folders of ``private_files``.
    """

    def __init__(
        self,
        private_files: Collection[Path | None] = (),
        bodies: RefusedBodies | None = None,
    ) -> None:
        self._private_files = private_files
        self.bodies = bodies or RefusedBodies()

    def answer(self, scope: Scope, error: Exception) -> Response:
        """Return the answer to a request that ended with an error, and count it.

        Raises the error if it is one of the agent that no request brings about.
        """
        if isinstance(error, NoRoomError):
            self.bodies["no_room"] += 1
        if isinstance(error, OplogError):
            error = problem_of(error)
        if not isinstance(error, Problem):
            return Problem(500, "internal error of the agent; see its log").response()
        if scope["method"] in _WITH_BODY and (reason := _REASONS.get(error.status)):
            self.bodies[reason] += 1
        error.detail = without_folders(error.detail, self._private_files)
        if error.status == 413:
            # Without an end of the connection the agent would read the rest of the body.
            end = (scope.get("extensions") or {}).get("oplog.end")
            if end is not None:
                end()
            error.headers["Connection"] = "close"
        return error.response()


def add_error_handlers(app: FastAPI, refusals: Refusals) -> None:
    """Handle all exceptions."""

    @app.exception_handler(Problem)
    @app.exception_handler(OplogError)
    @app.exception_handler(Exception)
    async def on_error(request: Request, error: Exception) -> Response:
        return refusals.answer(request.scope, error)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, error: RequestValidationError) -> Response:
        # Not FastAPI's answer, which repeats the value.
        problem = Problem(400, f"{error.errors()[0]['loc'][-1]}: is invalid")
        return refusals.answer(request.scope, problem)

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

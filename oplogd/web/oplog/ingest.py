"""POST on / and /ops: stores the operations of a body, and answers when they are durable."""

import logging
from collections.abc import Callable

import msgspec
from fastapi import FastAPI, Request, Response

from oplog_kit.listen import Address
from oplogd.decode.compressed import TooLargeError
from oplogd.decode.faults import FaultyError
from oplogd.decode.media_types import JSON, NDJSON
from oplogd.decode.pieces import at_once
from oplogd.errors import NotConfirmedError, OperationError, OplogError, StoreUnavailableError
from oplogd.host.logs import Episode
from oplogd.ingest.ignored import Ignored, IgnoredMembers
from oplogd.ingest.operations import Body, InvalidBodyError, TooManyError, decoding
from oplogd.ingest.queue import Intake
from oplogd.model.lease import Fence
from oplogd.model.names import OPLOG
from oplogd.model.operation import decode
from oplogd.web.access.sides import WriteAuthenticator
from oplogd.web.describe.document import BODY_ERRORS, described
from oplogd.web.describe.parameters import FenceHeader
from oplogd.web.describe.types import IngestedAnswer, OperationBody
from oplogd.web.http.bodies import BodyReader
from oplogd.web.http.headers import fence_of, media_type, not_understood, note_ignored
from oplogd.web.http.plain import Answer, PlainRequest, Work, header_lines
from oplogd.web.http.problem import COMMON_HEADERS, STORE_AWAY, Problem, refuse_stopping

_QUIET_SECONDS = 5.0
_LINES = (
    '{"event":"insert","type":"video","id":"xekw"}\n{"event":"delete","type":"video","id":"x9"}\n'
)
_ONE = {
    "event": "insert",
    "type": "video",
    "id": "xekw",
    "parents": ["user/x3kd2"],
    "timestamp": "2014-11-06T11:04:39.041Z",
}
_BATCH = [_ONE, {"event": "delete", "type": "video", "id": "x9"}]
_EXAMPLES = {
    "one": {"summary": "One operation", "value": _ONE},
    "batch": {"summary": "A batch", "value": _BATCH},
}
_FAULT = {"line": 2, "field": "event", "reason": "must be insert, update or delete"}

OPLOG_PATHS = ("/", "/ops")

_STORED = Answer(204, header_lines(COMMON_HEADERS, None))
_PLAIN_TYPES = {type_.encode(): type_ for type_ in (JSON, NDJSON)}

logger = logging.getLogger("oplogd.http")


class Ingest:
    """Stores the operations of requests that the app or the short way has read."""

    def __init__(
        self,
        writers: WriteAuthenticator,
        intake: Intake,
        ignored: IgnoredMembers,
        bodies: BodyReader,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._writers = writers
        self._intake = intake
        self._ignored = ignored
        self._bodies = bodies
        self._is_stopping = is_stopping
        self._invalid = Episode(
            logger, "refusing invalid operations that come by HTTP", quiet=_QUIET_SECONDS
        )

    async def answer(self, request: Request) -> Response:
        """Answer a request. Raises Problem and OplogError."""
        caller = await self._writers.caller(request)
        refuse_stopping(self._is_stopping)
        caller.require_write(OPLOG)
        fence = fence_of(request)
        if fence is not None:
            caller.require_lease(fence.lease)
        found = Ignored()
        body = await self._read(request, found)
        self._writers.require_still(caller)
        caller.require_objects(each.key for each in body.operations)
        await self._store(body, fence)
        headers = COMMON_HEADERS | note_ignored(request, found, self._ignored)
        if body.batch:
            return Response(_ingested(body), 200, headers, JSON)
        return Response(status_code=204, headers=headers)

    def begin(self, request: PlainRequest) -> Work | None:
        """Begin to answer by the short way."""
        type_ = _PLAIN_TYPES.get(request.headers.get(b"content-type", b""))
        raw = request.body
        if (
            type_ is None
            or self._is_stopping()
            or not self._bodies.takes_at_once(len(raw))
            or (caller := self._writers.plain_caller(request)) is None
            or OPLOG not in caller.right.write
        ):
            return None
        unknown: list[bytes] = []
        intake, arrival = self._intake, self._bodies.arrival()
        try:
            if type_ is JSON and raw.startswith(b"{"):
                body = Body([decode(raw, arrival, unknown.append)], batch=False)
            else:
                most = intake.max_operations
                body = at_once(decoding(raw, type_, arrival, most, unknown.append, is_brief=True))
            caller.require_objects(each.key for each in body.operations)
        except (OplogError, FaultyError, Problem):
            return None
        if unknown:
            return None
        self._invalid.end()

        def answer() -> Answer:
            self._ignored.by_sender({})
            if not body.batch:
                return _STORED
            content = _ingested(body)
            return Answer(200, header_lines(COMMON_HEADERS, content, JSON), content)

        return Work(intake.submit(body.operations), answer, _dropped)

    async def _store(self, body: Body, fence: Fence | None) -> None:
        self._invalid.end()
        try:
            await self._intake.submit(body.operations, fence)
        except StoreUnavailableError as error:
            raise _dropped(error) from None

    async def _read(self, request: Request, found: Ignored) -> Body:
        type_ = media_type(request.headers.get("content-type", ""))
        if type_ not in (JSON, NDJSON):
            raise not_understood(type_, (JSON, NDJSON))
        bodies, intake = self._bodies, self._intake
        try:
            async with bodies.received(request, "operations") as raw:
                return await bodies.work(
                    decoding(
                        raw,
                        type_,
                        bodies.arrival(),
                        intake.max_operations,
                        found.add,
                        queue=intake.queue.name,
                    )
                )
        except TooManyError as error:
            intake.refuse_too_many(error.lines)
            raise
        except (InvalidBodyError, TooLargeError, OperationError) as error:
            intake.refuse_invalid(error.lines if isinstance(error, InvalidBodyError) else 1)
            self._invalid.occurred(detail=f"from {_sender(request)}: {error}")
            if isinstance(error, OperationError):
                raise Problem(400, str(error)) from None
            raise


def add_ingest(app: FastAPI, service: Ingest) -> None:
    """Add POST / and POST /ops."""

    @described(
        "operations",
        *(*BODY_ERRORS, 412),
        body={JSON: (OperationBody | list[OperationBody], _EXAMPLES), NDJSON: _LINES},
        needs_body=True,
        status=204,
        text="The operation is stored.",
        also={200: ("The batch is stored.", IngestedAnswer)},
        asks={"lease": FenceHeader},
        faults=(_FAULT,),
    )
    async def ingest(request: Request) -> Response:
        """Store operations.

        Accepts one operation, a JSON array of operations, or NDJSON. A batch is stored as a whole
        or not at all. The body may be compressed with gzip. An answer of 204 or 200 means that the
        operations are durable. Its header Oplog-Ignored names unknown members, which were ignored.
        """
        return await service.answer(request)

    for path in OPLOG_PATHS:
        app.add_api_route(path, ingest, methods=["POST"], include_in_schema=path == "/ops")


def _dropped(error: OplogError) -> Exception:
    """Return the error to answer with for one of the store."""
    if isinstance(error, NotConfirmedError) or not isinstance(error, StoreUnavailableError):
        return error
    return Problem(503, f"dropped before it reached the store, send it again: {error}", STORE_AWAY)


def _ingested(body: Body) -> bytes:
    return msgspec.json.encode({"ingested": len(body.operations)})


def _sender(request: Request) -> str:
    client = request.client
    return str(Address(client.host, client.port)) if client else "an unknown address"

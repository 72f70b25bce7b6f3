"""POST on / and /ops: stores the operations of a body, and answers when they are durable."""

import logging
from collections.abc import Callable

import msgspec
from fastapi import FastAPI, Request, Response

from oplog_kit.listen import Address
from oplogd.decode.compressed import TooLargeError
from oplogd.decode.media_types import JSON, NDJSON
from oplogd.errors import NotConfirmedError, OperationError, StoreUnavailableError
from oplogd.host.logs import Episode
from oplogd.ingest.ignored import Ignored, IgnoredMembers
from oplogd.ingest.operations import Body, InvalidBodyError, TooManyError, decoding
from oplogd.ingest.queue import Intake
from oplogd.web.access.authentication import WriteAuthenticator
from oplogd.web.describe.document import BODY_ERRORS, described
from oplogd.web.describe.parameters import FenceHeader
from oplogd.web.describe.types import IngestedAnswer, OperationBody
from oplogd.web.http.bodies import BodyReader
from oplogd.web.http.headers import fence_of, media_type, not_understood, note_ignored
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

logger = logging.getLogger("oplogd.http")


def add_ingest(
    app: FastAPI,
    writers: WriteAuthenticator,
    intake: Intake,
    ignored: IgnoredMembers,
    bodies: BodyReader,
    is_stopping: Callable[[], bool],
) -> None:
    invalid = Episode(logger, "refusing invalid operations that come by HTTP", quiet=_QUIET_SECONDS)

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
        writers.require(request)
        refuse_stopping(is_stopping)
        fence = fence_of(request)
        found = Ignored()
        body = await read(request, found)
        invalid.end()
        try:
            await intake.store(body.operations, fence)
        except NotConfirmedError:
            raise
        except StoreUnavailableError as error:
            raise Problem(
                503, f"dropped before it reached the store, send it again: {error}", STORE_AWAY
            ) from None
        headers = COMMON_HEADERS | note_ignored(request, found, ignored)
        if body.batch:
            answer = msgspec.json.encode({"ingested": len(body.operations)})
            return Response(answer, 200, headers, JSON)
        return Response(status_code=204, headers=headers)

    async def read(request: Request, found: Ignored) -> Body:
        type_ = media_type(request.headers.get("content-type", ""))
        if type_ not in (JSON, NDJSON):
            raise not_understood(type_, (JSON, NDJSON))
        try:
            async with bodies.received(request, "operations") as raw:
                return await bodies.work(
                    decoding(raw, type_, bodies.arrival(), intake.max_operations, found.add)
                )
        except TooManyError as error:
            intake.refuse_too_many(error.lines)
            raise
        except (InvalidBodyError, TooLargeError, OperationError) as error:
            intake.refuse_invalid(error.lines if isinstance(error, InvalidBodyError) else 1)
            invalid.occurred(detail=f"from {_sender(request)}: {error}")
            if isinstance(error, OperationError):
                raise Problem(400, str(error)) from None
            raise

    for path in ("/", "/ops"):
        app.add_api_route(path, ingest, methods=["POST"], include_in_schema=path == "/ops")


def _sender(request: Request) -> str:
    client = request.client
    return str(Address(client.host, client.port)) if client else "an unknown address"

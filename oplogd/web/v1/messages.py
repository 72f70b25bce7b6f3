"""The messages of a topic: publish and poll."""

from collections.abc import Callable

from fastapi import FastAPI, Request, Response

from oplogd.ingest.intake import Intake
from oplogd.media_types import JSON
from oplogd.message import Message, ttl_seconds
from oplogd.names import OPLOG
from oplogd.operation import Operation, decode, format_ms, now_ms
from oplogd.topics.codec import Codec, InvalidMessagesError, PollRequest, publishing
from oplogd.topics.oplog import OplogPoller
from oplogd.topics.poller import Poller
from oplogd.topics.publish import Publisher
from oplogd.topics.rights import Right, Rights
from oplogd.web.bodies import BodyReader
from oplogd.web.fence import fence_of
from oplogd.web.problem import Problem
from oplogd.web.v1 import describe
from oplogd.web.v1.requests import (
    HEADERS,
    codec_for,
    name_of,
    problems,
    refuse_reserved,
    refuse_stopping,
    require_known,
)
from oplogd.web.v1.stream_request import isolation_of
from oplogd.web.v1.topics import TOPIC

# A longer poll is no poll.
_MAX_POLL_BYTES = 64 * 1024


def add_publish(
    app: FastAPI,
    rights: Rights[Request],
    publisher: Publisher,
    intake: Intake,
    bodies: BodyReader,
    is_stopping: Callable[[], bool],
) -> None:
    """Add publish. ``intake`` takes the operations of the oplog."""

    @app.post(f"{TOPIC}/publish", **describe.PUBLISH)
    async def publish(request: Request) -> Response:
        name = name_of(request)
        rights.require(request, Right.WRITE, *name)
        refuse_stopping(is_stopping)
        fence = fence_of(request)
        with problems():
            require_known(name)
            if name != OPLOG:
                refuse_reserved(name)
            codec = codec_for(request)
            if name == OPLOG:
                await intake.store(await operations(request, codec), fence)
            else:
                await publisher.publish(name, await messages(request, codec), fence)
        return Response(status_code=200, headers=HEADERS)

    async def messages(request: Request, codec: Codec) -> list[Message]:
        ttl = ttl_seconds(request.query_params.get("ttl"), "ttl")
        try:
            async with bodies.received(request, "messages") as raw:
                return await bodies.work(
                    publishing(
                        codec.split(raw),
                        lambda given: codec.message(given, ttl),
                        publisher.max_messages,
                    )
                )
        except InvalidMessagesError as error:
            publisher.refuse_invalid(error.count)
            raise

    async def operations(request: Request, codec: Codec) -> list[Operation]:
        arrival = format_ms(now_ms())
        try:
            async with bodies.received(request, "operations") as raw:
                return await bodies.work(
                    publishing(
                        codec.split(raw),
                        lambda given: decode(codec.operation(given), arrival),
                        intake.max_operations,
                    )
                )
        except InvalidMessagesError as error:
            intake.refuse_invalid(error.count)
            raise


def add_poll(
    app: FastAPI,
    rights: Rights[Request],
    poller: Poller,
    oplog: OplogPoller,
    bodies: BodyReader,
) -> None:
    """Add poll. ``oplog`` reads the operations."""

    @app.post(f"{TOPIC}/poll", **describe.POLL)
    async def poll(request: Request) -> Response:
        name = name_of(request)
        rights.require(request, Right.READ, *name)
        with problems():
            require_known(name)
            codec, asked = await read(request)
            answer = await (oplog.poll(asked) if name == OPLOG else poller.poll(name, asked))
        headers = {**HEADERS, "Oplog-Gap": "1"} if answer.gap else HEADERS
        return Response(codec.encode(answer.messages), 200, headers, codec.media_type)

    async def read(request: Request) -> tuple[Codec, PollRequest]:
        isolation = isolation_of(request.query_params)
        async with bodies.received(request, "bytes") as raw:
            if len(raw) > _MAX_POLL_BYTES:
                raise Problem(413, f"the body has more than {_MAX_POLL_BYTES:,} bytes")
            codec = codec_for(request, default="" if raw.strip() else JSON)
            if not raw.strip():
                return codec, PollRequest(isolation=isolation)
            return codec, codec.decode_poll(raw, isolation)

"""The messages of a topic: publish and poll."""

import asyncio
from collections.abc import AsyncIterator

from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse

from oplogd.decode.media_types import JSON
from oplogd.decode.pieces import Pieces
from oplogd.errors import MessageError
from oplogd.ingest.ignored import Ignored, IgnoredMembers
from oplogd.ingest.queue import Intake
from oplogd.model.names import OPLOG
from oplogd.model.operation import Operation, decode
from oplogd.model.transaction import DEFAULT_ISOLATION
from oplogd.store.pointers import Marks
from oplogd.stream.ring.filters import Filter
from oplogd.topics.codec.codec import (
    PART_MARKS,
    Codec,
    InvalidMessagesError,
    PollRequest,
    reading_publish,
)
from oplogd.topics.oplog import OplogPoller
from oplogd.topics.pointers.service import PointerService
from oplogd.topics.poller import Poller
from oplogd.topics.publish import PublishService
from oplogd.web.describe import types
from oplogd.web.describe.document import BODY_ERRORS, ERRORS, READ, described
from oplogd.web.describe.parameters import (
    ISOLATION,
    OF_SHARD,
    OF_TOPIC,
    SHARD_TEXT,
    FenceHeader,
    TtlQuery,
)
from oplogd.web.http.bodies import BodyReader
from oplogd.web.http.gone import while_connected
from oplogd.web.http.headers import SHARD, note_ignored, refuse_fence, shard_header
from oplogd.web.http.problem import Problem
from oplogd.web.oplog.stream_request import shard_of
from oplogd.web.v1.requests import (
    CONTINUES,
    HEADERS,
    STORES_TWICE,
    TOPIC,
    Api,
    allowed_fence,
    codec_for,
    name_of,
    poll_headers,
    read_messages,
    refuse_reserved,
    require_known,
)
from oplogd.web.v1.stream_request import isolation_of

# A longer poll is no poll, unless it has a snapshot.
_MAX_POLL_BYTES = 64 * 1024
_MAX_SNAPSHOT_BYTES = 2 << 20


def add_publish(
    app: FastAPI,
    api: Api,
    publisher: PublishService,
    pointers: PointerService,
    intake: Intake,
    ignored: IgnoredMembers,
) -> None:
    """Add publish. ``intake`` takes the operations of the oplog."""
    bodies = api.bodies

    @app.post(f"{TOPIC}/publish")
    @described(
        "topics",
        *(*BODY_ERRORS, 404, 409, 412),
        body=types.PublishBody,
        needs_body=True,
        answer=types.PublishedAnswer,
        text="The messages are durable. The body is empty without `transactionWritePointer`.",
        has_avro=True,
        asks={**OF_TOPIC, "lease": FenceHeader, "ttl": TtlQuery},
    )
    async def publish(request: Request) -> Response:
        """Publish messages.

        The messages are stored together or not at all, in their order. An answer of 200 means that
        they are durable. A message for `system/oplog` is an operation, or its JSON as text.

        With `transactionWritePointer` the messages belong to a foreign transaction: readers with
        `isolation` `read_committed` wait for its end at POST /v1/pointers/{pointer}/commit or
        abort. Without messages, the stored ones of the pointer are published; repeated, the answer
        is the same, and if none is stored, its `messages` are empty. A publish with a pointer takes
        no Oplog-Lease and no topic of `system`.
        """
        caller, name = await api.writer(request), name_of(request)
        caller.require_write(name)
        fence = allowed_fence(request, caller)
        require_known(name)
        if name == OPLOG:
            found = Ignored()
            given = await operations(request, codec_for(request), found)
            api.require_still(caller)
            caller.require_objects(each.key for each in given)
            await intake.submit(given, fence)
            return Response(
                status_code=200, headers=HEADERS | note_ignored(request, found, ignored)
            )
        refuse_reserved(name)
        codec = codec_for(request)
        pointer, messages = await read_messages(request, codec, bodies, publisher)
        api.require_still(caller)
        if pointer is None:
            await publisher.publish(name, messages, fence)
            return Response(status_code=200, headers=HEADERS)
        refuse_fence(request, "messages under a pointer")
        marks = await api.confirmed(
            pointers.publish(name, pointer, messages), STORES_TWICE if messages else CONTINUES
        )
        messages.clear()  # the answer may take their memory
        return await published(request, bodies, codec, pointer, marks)

    async def operations(request: Request, codec: Codec, found: Ignored) -> list[Operation]:
        arrival = bodies.arrival()
        try:
            async with bodies.received(request, "operations") as raw:
                pointer, operations = await bodies.work(
                    reading_publish(
                        codec,
                        raw,
                        lambda given: decode(codec.operation(given), arrival, found.add),
                        intake.max_operations,
                        queue=intake.queue.name,
                    )
                )
            if pointer is not None:
                raise MessageError("transactionWritePointer", "must be null")
            return operations
        except InvalidMessagesError as error:
            intake.refuse_invalid(error.count)
            raise


async def published(
    request: Request, bodies: BodyReader, codec: Codec, pointer: int, marks: Marks
) -> Response:
    """Return the answer to a publish under a pointer. A long one never exists as a whole."""
    if len(marks) <= PART_MARKS:
        body = b"".join(codec.encode_published(pointer, marks))
        return Response(body, 200, HEADERS, codec.media_type)

    def counting() -> Pieces[int]:
        size = 0
        for part in codec.encode_published(pointer, marks):
            size += len(part)
            yield
        return size

    async def parts() -> AsyncIterator[bytes]:
        for part in codec.encode_published(pointer, marks):
            yield part
            await asyncio.sleep(0)  # other requests run in between

    # Encoded twice: clients of HTTP/1.0 take no body of unknown length.
    length = {"Content-Length": str(await bodies.work(counting()))}
    extensions = request.scope.get("extensions") or {}
    if watch := extensions.get("oplog.watch"):
        watch()
    return StreamingResponse(parts(), 200, HEADERS | length, codec.media_type)


def add_poll(app: FastAPI, api: Api, poller: Poller, oplog: OplogPoller) -> None:
    """Add poll. ``oplog`` reads the operations."""
    bodies = api.bodies

    @app.post(f"{TOPIC}/poll")
    @described(
        "topics",
        *(*ERRORS, 404, 408, 413, 415, 431),
        body=types.PollBody,
        answer=list[types.PolledAnswer],
        has_avro=True,
        rights=READ,
        headers={
            "Oplog-Gap": "1 if messages that followed the position are gone.",
            "Oplog-Held-By": "The pointer at whose message the answer ends, because the reader must"
            " wait.",
            "Oplog-Position": "For readers of a shard, or of a part of `system/oplog`: the id up to"
            " which the answer has every message of theirs. Poll on from here.",
            SHARD: SHARD_TEXT,
        },
        asks={**OF_TOPIC, **ISOLATION, **OF_SHARD},
    )
    async def poll(request: Request) -> Response:
        """Poll messages.

        Returns the messages from a position on, at once, even if there is none. Returns about 1 MB
        at most, but at least one message. With `read_committed` it ends before the first message
        whose pointer is open, with a snapshot before the first one whose pointer is neither visible
        nor invalid.
        """
        caller, name = await api.reader(request), name_of(request)
        caller.require_read(name)
        require_known(name)
        shard = shard_of(request.query_params)
        codec, asked = await read(request)
        api.require_still_reading(caller)
        if name == OPLOG:
            filter_ = caller.right.narrow(Filter(shard=shard))
            is_whole = shard is None and not caller.right.is_narrow
            polling = oplog.poll(asked, None if is_whole else filter_)
        else:
            is_whole = shard is None
            polling = poller.poll(name, asked, shard)
        # One that leaves entries out may take long.
        answer = await (polling if is_whole else while_connected(request, polling))
        content = codec.encode(answer.messages)
        headers = {**poll_headers(answer), **shard_header(shard)}
        return Response(content, 200, headers, codec.media_type)

    async def read(request: Request) -> tuple[Codec, PollRequest]:
        isolation = isolation_of(request.query_params)
        async with bodies.received(request, "", _MAX_SNAPSHOT_BYTES, is_poll=True) as raw:
            is_empty = not raw.strip()
            codec = codec_for(request, default=JSON if is_empty else "")
            asked = PollRequest(isolation=isolation or DEFAULT_ISOLATION)
            if not is_empty:
                asked = await bodies.work(codec.decoding_poll(raw, isolation))
            if asked.snapshot is None and len(raw) > _MAX_POLL_BYTES:
                raise Problem(413, f"the body has more than {_MAX_POLL_BYTES:,} bytes")
            return codec, asked

"""POST: a body's operations into the queue, and the answer when they are durable."""

import asyncio
import logging
import time
from typing import TypeVar

import msgspec
from fastapi import Request, Response

from oplogd.agent import Agent
from oplogd.errors import (
    NotConfirmedError,
    OperationError,
    OplogError,
    QueueFullError,
    StoreUnavailableError,
)
from oplogd.ingest.budget import Budget, NoRoomError, Share
from oplogd.ingest.http import (
    JSON,
    NDJSON,
    Body,
    InvalidBodyError,
    Pieces,
    TooLargeError,
    TooManyError,
    decoding,
    decompressing,
)
from oplogd.logs import Episode
from oplogd.operation import format_ms, now_ms
from oplogd.values import Address
from oplogd.web.negotiate import media_type
from oplogd.web.problem import COMMON_HEADERS, Problem

_SLICE_SECONDS = 0.003
"""How long the work on a body may hold up the event loop."""

_QUIET_SECONDS = 5.0
_RETRY_AFTER = {"Retry-After": "1"}
_STORE_AWAY = {"Retry-After": "5"}

logger = logging.getLogger("oplogd.http")

_T = TypeVar("_T")


class Intake:
    """Bodies are received side by side, and large ones decoded one after the other."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._budget = Budget(agent.settings.max_upload_memory, agent.settings.body_timeout)
        self._decoding_large = asyncio.Lock()
        self._invalid = Episode(
            logger, "refusing invalid operations that come by HTTP", quiet=_QUIET_SECONDS
        )

    async def post(self, request: Request) -> Response:
        agent = self._agent
        if agent.stopping:
            raise Problem(
                503, "the agent is stopping; another one or its successor takes over", _RETRY_AFTER
            )
        type_ = media_type(request.headers.get("content-type", ""))
        if type_ not in (JSON, NDJSON):
            if not type_:
                raise Problem(415, f"Content-Type is missing; use {JSON} or {NDJSON}")
            raise Problem(415, f"Content-Type {type_} is not understood; use {JSON} or {NDJSON}")
        counters = agent.counters
        try:
            with self._budget.share() as share:
                body = await self._decode(request, type_, share)
        except InvalidBodyError as error:
            counters.received += error.lines
            counters.error += error.lines
            errors = [bad._asdict() for bad in error.bad]
            self._refused(request, error)
            raise Problem(400, str(error), errors=errors) from None
        except TooManyError as error:
            counters.received += error.lines
            counters.discarded += error.lines
            raise Problem(413, str(error)) from None
        except NoRoomError as error:
            raise Problem(503, str(error), _RETRY_AFTER) from None
        except (TooLargeError, OperationError) as error:
            counters.received += 1
            counters.error += 1
            self._refused(request, error)
            raise Problem(413 if isinstance(error, TooLargeError) else 400, str(error)) from None
        self._invalid.end()
        count = len(body.operations)
        counters.received += count
        try:
            await self._store(body)
        except QueueFullError as error:
            counters.discarded += count
            raise Problem(503, str(error), _RETRY_AFTER) from None
        except TooLargeError as error:
            counters.discarded += count
            raise Problem(413, str(error)) from None
        except NotConfirmedError as error:
            raise Problem(
                503, f"not confirmed, it may still be stored: {error}", _STORE_AWAY
            ) from None
        except StoreUnavailableError as error:
            raise Problem(
                503, f"dropped before it reached the store, send it again: {error}", _STORE_AWAY
            ) from None
        if body.batch:
            return Response(msgspec.json.encode({"ingested": count}), 200, COMMON_HEADERS, JSON)
        return Response(status_code=204, headers=COMMON_HEADERS)

    def _refused(self, request: Request, error: OplogError) -> None:
        client = request.client
        sender = Address(client.host, client.port) if client else "an unknown address"
        self._invalid.again(detail=f"from {sender}: {error}")

    async def _decode(self, request: Request, type_: str, share: Share) -> Body:
        limit = self._agent.settings.max_body_size
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "gzip", ""):
            raise Problem(
                415,
                f"a body may be compressed with gzip, not {encoding}",
                {"Accept-Encoding": "gzip"},
            )
        body = await _receive(request, limit, share)
        if encoding == "gzip":
            body = await self._work(decompressing(body, limit, share.take))
        return await self._work(
            decoding(body, type_, format_ms(now_ms()), self._agent.queue.max_operations)
        )

    async def _work(self, pieces: Pieces[_T]) -> _T:
        """Do the work on a body; after the first slice other requests come between, and only one such body at a time."""
        is_done, result = _slice(pieces)
        if not is_done:
            async with self._decoding_large:
                while not is_done:
                    await asyncio.sleep(0)
                    is_done, result = _slice(pieces)
        assert result is not None
        return result

    async def _store(self, body: Body) -> None:
        queue = self._agent.queue
        if not queue.could_hold(body.operations):
            raise TooLargeError(
                f"the {len(body.operations):,} operations are more than the queue holds ({queue.max_operations:,}"
                f" operations, {queue.max_bytes:,} bytes); send fewer at a time"
            )
        if trouble := self._agent.health.of("writer"):
            self._agent.counters.discarded += len(body.operations)
            raise StoreUnavailableError(trouble)
        done = queue.put(body.operations, wait=True)
        assert done is not None
        await done


async def _receive(request: Request, limit: int, share: Share) -> bytes:
    """The whole body, less than or as long as the limit. Raises TooLargeError and NoRoomError before that is held."""
    too_large = TooLargeError(
        f"the body has more than {limit:,} bytes; send fewer operations at a time"
    )
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > limit:
        raise too_large
    received = bytearray()
    try:
        async with asyncio.timeout(None) as timer:
            async for chunk in request.stream():
                if len(received) + len(chunk) > limit:
                    raise too_large
                share.take(len(chunk))
                if not received:
                    share.comes(lambda: timer.reschedule(0))
                received += chunk
    except TimeoutError:
        raise NoRoomError(
            "the body took longer than --body-timeout, and others need its part of --max-upload-memory; try again later"
        ) from None
    share.has_come()
    return bytes(received)


def _slice(pieces: Pieces[_T]) -> tuple[bool, _T | None]:
    """Work for a slice of time: whether it is the end, and the result."""
    until = time.perf_counter() + _SLICE_SECONDS
    try:
        while True:
            next(pieces)
            if time.perf_counter() > until:
                return False, None
    except StopIteration as end:
        return True, end.value

"""A consumer's stream as an HTTP response."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from oplogd.errors import StoreUnavailableError
from oplogd.stream.consumer import StreamConnection, StreamConsumer
from oplogd.stream.hub import Hub

_RETRY_SECONDS = 1.0

logger = logging.getLogger("oplogd.stream")


class EventStream(StreamingResponse):
    """The stream of ``consumer``; None answers HEAD with an empty body.

    The consumer is disconnected when the response ends. One task writes, another waits until the
    client goes. Nothing is cancelled then: only the garbage collector could free a cancelled stream
    (docs/internals/decisions/0012).
    """

    def __init__(
        self, hub: Hub, consumer: StreamConsumer | None, headers: Mapping[str, str]
    ) -> None:
        headers = {**headers, "X-Accel-Buffering": "no"}
        super().__init__(_body(consumer), headers=headers, media_type="text/event-stream")
        self._hub = hub
        self._consumer = consumer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._consumer is None:
            await self.stream_response(send)
            return
        self._consumer.connection = StreamConnection.of(scope)
        watch = asyncio.create_task(
            _end_with_client(self._consumer, receive), name=f"consumer {self._consumer.id} watch"
        )
        try:
            await self.stream_response(send)
        finally:
            watch.cancel()
            self._hub.disconnect(self._consumer)


async def _end_with_client(consumer: StreamConsumer, receive: Receive) -> None:
    """End the stream when the client has gone. A write to it returns at once from then on."""
    while (await receive())["type"] != "http.disconnect":
        pass
    consumer.end()


async def _body(consumer: StreamConsumer | None) -> AsyncIterator[bytes]:
    if consumer is None:
        return
    while chunk := await _next_chunk(consumer):
        consumer.connection.writing = True
        yield chunk
        consumer.connection.writing = False
    consumer.connection.writing = True  # the end of the body is a write, too


async def _next_chunk(consumer: StreamConsumer) -> bytes:
    """Return the next bytes, empty at the end. The consumer waits for an unreachable store."""
    while True:
        try:
            return await consumer.next_chunk()
        except StoreUnavailableError as error:
            logger.debug("consumer %d waits for the store: %s", consumer.id, error)
            if chunk := await consumer.pause(_RETRY_SECONDS):
                return chunk

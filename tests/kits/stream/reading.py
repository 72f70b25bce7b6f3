"""A consumer read by a test instead of a connection."""

import asyncio

from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.consumer_connection import Connection


class AwaitedConnection(Connection):
    """Writes nothing. A test awaits the next call of ``go_on``."""

    def __init__(self, *, is_full: bool = False) -> None:
        self._is_full = is_full
        self._called: asyncio.Future[None] | None = None

    @property
    def is_full(self) -> bool:
        return self._is_full

    def go_on(self) -> None:
        if self._called is not None and not self._called.done():
            self._called.set_result(None)

    async def called(self) -> None:
        self._called = asyncio.get_running_loop().create_future()
        await self._called

    def stalled_seconds(self, now: float, last_write: float) -> float:
        return 0.0

    def abort(self) -> bool:
        return False


async def awaited(consumer: StreamConsumer) -> bytes:
    """Return the next bytes of a consumer when it has some, empty when its stream is over."""
    consumer.connection = connection = AwaitedConnection()
    while (chunk := consumer.take()) is None:
        await connection.called()
    return chunk

"""Takes the operations of a request: counts them, queues them, and waits until they are durable."""

import asyncio
from collections.abc import Sequence

from oplogd.decode.compressed import TooLargeError
from oplogd.errors import QueueFullError, StoreUnavailableError
from oplogd.ingest.counters import Counters
from oplogd.ingest.fenced import FencedQueue
from oplogd.ingest.queue import IngestQueue
from oplogd.model.lease import Fence
from oplogd.model.operation import Operation
from oplogd.watch.health import Part


class Intake:
    """Takes operations while their sender waits. ``writer``: the health of the writer."""

    def __init__(
        self, queue: IngestQueue, fenced: FencedQueue, counters: Counters, writer: Part
    ) -> None:
        self._queue = queue
        self._fenced = fenced
        self._counters = counters
        self._writer = writer

    @property
    def max_operations(self) -> int:
        """Return the most operations that can be stored together."""
        return self._queue.max_operations

    def refuse_invalid(self, count: int) -> None:
        """Count operations refused as invalid."""
        self._counters.add_invalid(count)

    def refuse_too_many(self, count: int) -> None:
        """Count operations of a body that has too many."""
        self._counters.add_received(count)
        self._counters.add_discarded(count)

    async def store(self, operations: Sequence[Operation], fence: Fence | None = None) -> None:
        """Queue operations together and wait until they are durable.

        Raises TooLargeError, QueueFullError, NotConfirmedError, StoreUnavailableError, and
        StaleFenceError if the fence does not hold.
        """
        self._counters.add_received(len(operations))
        try:
            self._require_room(operations)
            done = self._submit(operations, fence)
        except (TooLargeError, QueueFullError, StoreUnavailableError):
            self._counters.add_discarded(len(operations))
            raise
        await done

    def _require_room(self, operations: Sequence[Operation]) -> None:
        queue = self._queue
        if not queue.could_hold(operations):
            raise TooLargeError(
                f"the {len(operations):,} operations are more than the queue holds"
                f" ({queue.max_operations:,} operations, {queue.max_bytes:,} bytes);"
                " send fewer at a time"
            )

    def _submit(
        self, operations: Sequence[Operation], fence: Fence | None
    ) -> "asyncio.Future[None]":
        if fence is not None:
            return self._fenced.submit(operations, fence)
        if trouble := self._writer.trouble:
            raise StoreUnavailableError(trouble)
        return self._queue.submit(operations)

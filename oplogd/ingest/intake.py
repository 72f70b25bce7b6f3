"""Takes the operations of a request: counts them, queues them, and waits until they are durable."""

from collections.abc import Sequence

from oplogd.decode.compressed import TooLargeError
from oplogd.errors import QueueFullError, StoreUnavailableError
from oplogd.ingest.counters import Counters
from oplogd.ingest.queue import IngestQueue, size_of
from oplogd.model.lease import Fence
from oplogd.model.operation import Operation
from oplogd.watch.health import Part


class Intake:
    """Takes operations while their sender waits. ``writer``: the health of the writer."""

    def __init__(
        self, queue: IngestQueue, fenced: IngestQueue, counters: Counters, writer: Part
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
        self._counters.received += count
        self._counters.error += count

    def refuse_too_many(self, count: int) -> None:
        """Count operations of a body that has too many."""
        self._counters.received += count
        self._counters.discarded += count

    async def store(self, operations: Sequence[Operation], fence: Fence | None = None) -> None:
        """Queue operations together and wait until they are durable.

        Raises TooLargeError, QueueFullError, NotConfirmedError, StoreUnavailableError, and
        StaleFenceError if the fence does not hold.
        """
        self._counters.received += len(operations)
        try:
            self._queue.require_room(len(operations), size_of(operations))
            if fence is not None:
                done = self._fenced.submit(operations, fence)
            elif trouble := self._writer.trouble:
                raise StoreUnavailableError(trouble)
            else:
                done = self._queue.submit(operations)
        except (TooLargeError, QueueFullError, StoreUnavailableError):
            self._counters.discarded += len(operations)
            raise
        await done

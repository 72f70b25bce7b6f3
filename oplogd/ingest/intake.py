"""Takes the operations of a request: counts them, queues them, and waits until they are durable."""

from collections.abc import Sequence
from dataclasses import dataclass

from oplogd.decode.compressed import TooLargeError
from oplogd.errors import QueueFullError, StoreUnavailableError
from oplogd.ingest.counters import Counters
from oplogd.ingest.queue import IngestQueue, size_of
from oplogd.model.lease import Fence
from oplogd.model.operation import Operation
from oplogd.watch.health import Part


@dataclass(eq=False)
class Intake:
    """Takes operations while their sender waits. ``writer``: the health of the writer."""

    queue: IngestQueue
    fenced: IngestQueue
    counters: Counters
    writer: Part

    @property
    def max_operations(self) -> int:
        """Return the most operations that can be stored together."""
        return self.queue.max_operations

    def refuse_invalid(self, count: int) -> None:
        """Count operations refused as invalid."""
        self.counters.received += count
        self.counters.error += count

    def refuse_too_many(self, count: int) -> None:
        """Count operations of a body that has too many."""
        self.counters.received += count
        self.counters.discarded += count

    async def store(self, operations: Sequence[Operation], fence: Fence | None = None) -> None:
        """Queue operations together and wait until they are durable.

        Raises TooLargeError, QueueFullError, NotConfirmedError, StoreUnavailableError, and
        StaleFenceError if the fence does not hold.
        """
        self.counters.received += len(operations)
        try:
            self.queue.require_room(len(operations), size_of(operations))
            if fence is not None:
                done = self.fenced.submit(operations, fence)
            elif trouble := self.writer.trouble:
                raise StoreUnavailableError(trouble)
            else:
                done = self.queue.submit(operations)
        except (TooLargeError, QueueFullError, StoreUnavailableError):
            self.counters.discarded += len(operations)
            raise
        await done

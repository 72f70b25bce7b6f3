"""The bounded queues of operations between intake and the writers."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from oplogd.decode.compressed import TooLargeError
from oplogd.errors import QueueFullError, StoreUnavailableError
from oplogd.ingest.counters import IngestCounters
from oplogd.model.lease import Fence
from oplogd.model.operation import Operation
from oplogd.watch.bounded import THE_QUEUE, Admit, BoundedQueue, Waiting, admit_all
from oplogd.watch.health import Part


class IngestItem(Waiting):
    """Operations stored together, with a ``fence`` only if it holds."""

    __slots__ = ("fence", "operations")

    def __init__(
        self,
        operations: Sequence[Operation],
        done: "asyncio.Future[None] | None",
        fence: Fence | None = None,
    ) -> None:
        super().__init__(len(operations), size_of(operations), done)
        self.operations = operations
        self.fence = fence

    def cut(self, count: int) -> None:
        """Remove the first ``count`` operations."""
        self.operations = self.operations[count:]
        self.count = len(self.operations)
        self.size = size_of(self.operations)


class IngestQueue(BoundedQueue[IngestItem]):
    """A queue bounded in operations and bytes. Operations count until they are written."""

    def __init__(
        self,
        max_operations: int,
        max_bytes: int,
        admit: Admit = admit_all,
        name: str = THE_QUEUE,
    ) -> None:
        super().__init__(max_operations, max_bytes, "operations", admit, name)

    @property
    def max_operations(self) -> int:
        return self.max_count

    def put(self, operations: Sequence[Operation]) -> None:
        """Add operations stored together. Raises QueueFullError and DiskFullError."""
        self.add(IngestItem(operations, None))

    def let_go(self, items: Sequence[IngestItem], count: int) -> None:
        """Free the room of the first ``count`` operations of taken items: the spool has them."""
        for item in items:
            if not count:
                break
            here, size = min(count, item.count), item.size
            item.cut(here)
            self.free(here, size - item.size)
            count -= here


@dataclass(eq=False)
class Intake:
    """Takes operations while their sender waits. ``writer``: the health of the writer."""

    queue: IngestQueue
    fenced: IngestQueue
    counters: IngestCounters
    writer: Part

    @property
    def max_operations(self) -> int:
        """Return the most operations to be stored together."""
        return self.queue.max_operations

    def refuse_invalid(self, count: int) -> None:
        """Count operations refused as invalid."""
        self.counters.received += count
        self.counters.error += count

    def refuse_too_many(self, count: int) -> None:
        """Count operations of a body with too many."""
        self.counters.received += count
        self.counters.discarded += count

    def submit(
        self, operations: Sequence[Operation], fence: Fence | None = None
    ) -> "asyncio.Future[None]":
        """Queue operations together. The future resolves when they are durable.

        It raises TooLargeError, QueueFullError, NotConfirmedError, StoreUnavailableError, and
        StaleFenceError if the fence does not hold.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.counters.received += len(operations)
        try:
            self._add(IngestItem(operations, done, fence))
        except (TooLargeError, QueueFullError, StoreUnavailableError) as error:
            self.counters.discarded += len(operations)
            done.set_exception(error)
        return done

    def _add(self, item: IngestItem) -> None:
        self.queue.require_fitting(item.count, item.size)
        if item.fence is not None:
            self.fenced.add(item)
        elif trouble := self.writer.trouble:
            raise StoreUnavailableError(trouble)
        else:
            self.queue.add(item)


def size_of(operations: Sequence[Operation]) -> int:
    """Return the bytes of operations that count in a queue."""
    return sum(len(op.data) + len(op.key) for op in operations)

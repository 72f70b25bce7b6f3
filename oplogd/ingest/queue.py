"""The bounded queues of operations between intake and the writers."""

import asyncio
from collections.abc import Sequence

from oplogd.model.lease import Fence
from oplogd.model.operation import Operation
from oplogd.watch.bounded import Admit, BoundedQueue, Waiting, admit_all


class Item(Waiting):
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


class IngestQueue(BoundedQueue[Item]):
    """A queue bounded in operations and bytes. Operations count until they are written."""

    def __init__(self, max_operations: int, max_bytes: int, admit: Admit = admit_all) -> None:
        super().__init__(max_operations, max_bytes, "operations", admit)

    @property
    def max_operations(self) -> int:
        return self.max_count

    def put(self, operations: Sequence[Operation]) -> None:
        """Add operations stored together. Raises QueueFullError and DiskFullError."""
        self.add(Item(operations, None))

    def submit(
        self, operations: Sequence[Operation], fence: Fence | None = None
    ) -> "asyncio.Future[None]":
        """Add operations as ``put`` does. The future resolves when they are durable.

        With a fence it may raise StaleFenceError.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.add(Item(operations, done, fence))
        return done

    def let_go(self, items: Sequence[Item], count: int) -> None:
        """Free the room of the first ``count`` operations of taken items: the spool has them."""
        for item in items:
            if not count:
                break
            here, size = min(count, item.count), item.size
            item.cut(here)
            self.free(here, size - item.size)
            count -= here


def size_of(operations: Sequence[Operation]) -> int:
    """Return the bytes of operations that count in a queue."""
    return sum(len(op.data) + len(op.key) for op in operations)

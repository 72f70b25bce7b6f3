"""The bounded queue of operations between intake and the writer."""

import asyncio
from collections.abc import Sequence

from oplogd.model.operation import Operation
from oplogd.watch.bounded import Admit, BoundedQueue, Waiting, admit_all


class Item(Waiting):
    """Operations stored together."""

    __slots__ = ("operations",)

    def __init__(
        self, operations: Sequence[Operation], done: "asyncio.Future[None] | None"
    ) -> None:
        super().__init__(len(operations), _octets(operations), done)
        self.operations = operations

    def cut(self, count: int) -> None:
        """Remove the first ``count`` operations."""
        self.operations = self.operations[count:]
        self.count = len(self.operations)
        self.octets = _octets(self.operations)


class IngestQueue(BoundedQueue[Item]):
    """A queue bounded in operations and bytes. Operations count until they are written."""

    def __init__(self, max_operations: int, max_bytes: int, admit: Admit = admit_all) -> None:
        super().__init__(max_operations, max_bytes, "operations", admit)

    @property
    def operations(self) -> int:
        return self.count

    @property
    def max_operations(self) -> int:
        return self.max_count

    def could_hold(self, operations: Sequence[Operation]) -> bool:
        """Return whether the operations would fit into the empty queue."""
        return len(operations) <= self.max_count and _octets(operations) <= self.max_bytes

    def put(self, operations: Sequence[Operation]) -> None:
        """Add operations stored together. Raises QueueFullError and DiskFullError."""
        self.add(Item(operations, None))

    def submit(self, operations: Sequence[Operation]) -> "asyncio.Future[None]":
        """Add operations as ``put`` does. The future resolves when they are durable."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.add(Item(operations, done))
        return done

    def let_go(self, items: Sequence[Item], count: int) -> None:
        """Free the room of the first ``count`` operations of taken items: the spool has them."""
        for item in items:
            if not count:
                break
            here = min(count, item.count)
            octets = item.octets
            item.cut(here)
            self.free(here, octets - item.octets)
            count -= here


def _octets(operations: Sequence[Operation]) -> int:
    return sum(len(op.data) + len(op.key) for op in operations)

"""The bounded queue between intake and the writer."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence

from oplogd.errors import QueueFullError, StoreUnavailableError
from oplogd.operation import Operation


class Item:
    """Operations that are stored together. ``done`` is None if no request waits for them.

    ``arrived``: time of their arrival, in seconds of the monotonic clock.
    """

    __slots__ = ("arrived", "done", "octets", "operations")

    def __init__(
        self, operations: Sequence[Operation], done: "asyncio.Future[None] | None"
    ) -> None:
        self.operations = operations
        self.octets = _octets(operations)
        self.done = done
        self.arrived = time.monotonic()

    def cut(self, count: int) -> None:
        """Remove the first ``count`` operations."""
        self.operations = self.operations[count:]
        self.octets = _octets(self.operations)

    def resolve(self) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_result(None)

    def fail(self, error: StoreUnavailableError) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_exception(error)


class IngestQueue:
    """A queue bounded in operations and bytes. Operations count until they are written."""

    def __init__(self, max_operations: int, max_bytes: int) -> None:
        self.max_operations = max_operations
        self.max_bytes = max_bytes
        self.operations = 0
        self.bytes = 0
        self._items: deque[Item] = deque()
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()

    def could_hold(self, operations: Sequence[Operation]) -> bool:
        """Return whether the operations would fit into the empty queue."""
        return len(operations) <= self.max_operations and _octets(operations) <= self.max_bytes

    def put(self, operations: Sequence[Operation]) -> None:
        """Add operations that are stored together. Raises QueueFullError."""
        self._add(Item(operations, None))

    def submit(self, operations: Sequence[Operation]) -> "asyncio.Future[None]":
        """Add operations as ``put`` does. The future resolves when they are durable."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._add(Item(operations, done))
        return done

    def _add(self, item: Item) -> None:
        operations = len(item.operations)
        if (
            self.operations + operations > self.max_operations
            or self.bytes + item.octets > self.max_bytes
        ):
            raise QueueFullError(
                f"the queue is full ({self.operations:,} operations); try again later"
            )
        self.operations += operations
        self.bytes += item.octets
        self._items.append(item)
        self._filled.set()
        self._emptied.clear()

    async def take(self, max_operations: int, max_bytes: int) -> list[Item]:
        """Wait for items and take as many as fit, at least one. Pass them to ``finish`` later."""
        while not self._items:
            self._filled.clear()
            await self._filled.wait()
        taken: list[Item] = []
        operations = octets = 0
        while self._items:
            item = self._items[0]
            operations += len(item.operations)
            octets += item.octets
            if taken and (operations > max_operations or octets > max_bytes):
                break
            taken.append(self._items.popleft())
        return taken

    def finish(self, items: Sequence[Item]) -> None:
        """Free the room of items that are done and resolve their requests."""
        for item in items:
            self._leave(item)
            item.resolve()

    def let_go(self, items: Sequence[Item], count: int) -> None:
        """Free the room of the first ``count`` operations of taken items: the spool has them."""
        for item in items:
            if not count:
                break
            here = min(count, len(item.operations))
            octets = item.octets
            item.cut(here)
            self._free(here, octets - item.octets)
            count -= here

    def refuse_waiting(self, error: StoreUnavailableError) -> int:
        """Remove the queued items of requests and fail them. Return the number of operations."""
        refused = [item for item in self._items if item.done is not None]
        self._items = deque(item for item in self._items if item.done is None)
        for item in refused:
            self._leave(item)
            item.fail(error)
        return sum(len(item.operations) for item in refused)

    async def emptied(self) -> None:
        """Wait until everything is written or kept in the spool."""
        await self._emptied.wait()

    def _leave(self, item: Item) -> None:
        self._free(len(item.operations), item.octets)

    def _free(self, operations: int, octets: int) -> None:
        self.operations -= operations
        self.bytes -= octets
        if not self.operations:
            self._emptied.set()


def _octets(operations: Sequence[Operation]) -> int:
    return sum(len(op.data) + len(op.key) for op in operations)

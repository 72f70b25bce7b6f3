"""A queue that is bounded in number and bytes. Items count until they are written."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, TypeVar

from oplogd.decode.compressed import TooLargeError
from oplogd.errors import OplogError, QueueFullError, StoreUnavailableError


class Waiting:
    """Operations or messages stored together. ``size``: their size in bytes.

    ``done``: resolves when they are stored, None if no request waits. ``arrived``: in seconds of
    the monotonic clock.
    """

    __slots__ = ("arrived", "count", "done", "size")

    def __init__(self, count: int, size: int, done: "asyncio.Future[None] | None") -> None:
        self.count = count
        self.size = size
        self.done = done
        self.arrived = time.monotonic()

    def resolve(self) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_result(None)

    def fail(self, error: OplogError) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_exception(error)


_Item = TypeVar("_Item", bound=Waiting)

# The queue of an agent, and of one of several workers, in messages to users.
THE_QUEUE = "the queue"
QUEUE_OF_A_WORKER = "the queue of a worker"

# Gets the number and the bytes of a new item. Raises DiskFullError.
Admit = Callable[[int, int], None]


def admit_all(count: int, size: int) -> None:
    """Do nothing: for queues without a gate."""


class BoundedQueue(Generic[_Item]):
    """``noun``: the plural of its items. ``admit``: called for each new item.

    ``noun`` and ``name`` are for messages to users.
    """

    def __init__(
        self,
        max_count: int,
        max_bytes: int,
        noun: str,
        admit: Admit = admit_all,
        name: str = THE_QUEUE,
    ) -> None:
        self.max_count = max_count
        self.max_bytes = max_bytes
        self.count = 0
        self.bytes = 0
        self.name = name
        self._noun = noun
        self._admit = admit
        self._items: deque[_Item] = deque()
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()
        # Awaited before items are taken: what comes meanwhile is taken, too.
        self.before_take: Callable[[], Awaitable[None]] | None = None

    def add(self, item: _Item) -> None:
        """Add an item. Raises QueueFullError and DiskFullError."""
        if self.count + item.count > self.max_count or self.bytes + item.size > self.max_bytes:
            raise QueueFullError(
                f"the queue is full ({self.count:,} {self._noun}); try again later"
            )
        self._admit(item.count, item.size)
        self.count += item.count
        self.bytes += item.size
        self._items.append(item)
        self._filled.set()
        self._emptied.clear()

    def require_fitting(self, count: int, size: int) -> None:
        """Raise TooLargeError if not even the empty queue has room for so many items and bytes."""
        if count > self.max_count or size > self.max_bytes:
            raise TooLargeError(
                f"the {count:,} {self._noun} are more than {self.name} holds"
                f" ({self.max_count:,} {self._noun}, {self.max_bytes:,} bytes;"
                " see --max-queued-events, --max-queued-bytes); send fewer at a time"
            )

    async def take(self, max_count: int, max_bytes: int) -> list[_Item]:
        """Wait for items and take as many as fit, at least one. Pass them to ``finish`` later."""
        while True:
            while not self._items:
                self._filled.clear()
                await self._filled.wait()
            if self.before_take is None:
                break
            await self.before_take()
            if self._items:  # they may have been refused meanwhile
                break
        taken: list[_Item] = []
        count = size = 0
        while self._items:
            item = self._items[0]
            count += item.count
            size += item.size
            if taken and (count > max_count or size > max_bytes):
                break
            taken.append(self._items.popleft())
        return taken

    def finish(self, items: Iterable[_Item]) -> None:
        """Free the room of finished items and resolve their requests."""
        for item in items:
            self.free(item.count, item.size)
            item.resolve()

    def refuse_waiting(self, error: StoreUnavailableError) -> int:
        """Remove the queued items of requests and fail them. Return the sum of their counts."""
        refused = [item for item in self._items if item.done is not None]
        self._items = deque(item for item in self._items if item.done is None)
        self.refuse(refused, error)
        return sum(item.count for item in refused)

    def refuse(self, items: Sequence[_Item], error: OplogError) -> None:
        """Free the room of items and fail their requests."""
        for item in items:
            item.fail(error)
        self.finish(items)

    def free(self, count: int, size: int) -> None:
        self.count -= count
        self.bytes -= size
        if not self.count:
            self._emptied.set()

    async def emptied(self) -> None:
        """Wait until the queue is empty and all items are written."""
        await self._emptied.wait()

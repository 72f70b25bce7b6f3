"""Fenced operations: their queue, and the writer that appends them if their fence holds.

They never enter the queue, the retry or the spool of other operations: an operation that was
answered with an error must not be stored after the next term of its sender has begun.
"""

import asyncio
import logging
import time
from collections.abc import Sequence

from oplogd.errors import StaleFenceError
from oplogd.ingest.appends import Appends
from oplogd.ingest.counters import Counters
from oplogd.ingest.queue import Item
from oplogd.ingest.request_writer import RequestWriter
from oplogd.model.lease import Fence, stale
from oplogd.model.operation import Operation
from oplogd.store.base import FencedBatch, Store
from oplogd.watch.bounded import Admit, BoundedQueue, admit_all
from oplogd.watch.health import Health
from oplogd.watch.lease_counters import LeaseCounters

logger = logging.getLogger("oplogd.writer")


class FencedItem(Item):
    """Operations of one request."""

    __slots__ = ("fence",)

    def __init__(
        self, operations: Sequence[Operation], fence: Fence, done: "asyncio.Future[None]"
    ) -> None:
        super().__init__(operations, done)
        self.fence = fence


class FencedQueue(BoundedQueue[FencedItem]):
    """A queue bounded in operations and bytes. Operations count until they are written."""

    def __init__(self, max_operations: int, max_bytes: int, admit: Admit = admit_all) -> None:
        super().__init__(max_operations, max_bytes, "operations", admit)

    def submit(self, operations: Sequence[Operation], fence: Fence) -> "asyncio.Future[None]":
        """Add operations stored together. Raises QueueFullError and DiskFullError.

        The future resolves when they are durable, and raises StaleFenceError.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.add(FencedItem(operations, fence, done))
        return done


class FencedWriter(RequestWriter[FencedItem]):
    def __init__(
        self,
        store: Store,
        queue: FencedQueue,
        counters: Counters,
        leases: LeaseCounters,
        health: Health,
        appends: Appends | None = None,
    ) -> None:
        super().__init__(queue, health, "writer of fenced operations", logger, appends)
        self._store = store
        self._counters = counters
        self._leases = leases

    async def append(self, items: Sequence[FencedItem]) -> None:
        groups: dict[Fence, list[Operation]] = {}
        for item in items:
            groups.setdefault(item.fence, []).extend(item.operations)
        batches = [FencedBatch(operations, fence) for fence, operations in groups.items()]
        begun = time.monotonic()
        appended = await self._store.append_fenced(batches)
        self._counters.commit_seconds.observe(time.monotonic() - begun)
        holds = dict(zip(groups, appended, strict=True))
        for item in items:
            if holds[item.fence]:
                self._counters.add_ingested(item.count)
            else:
                self._counters.add_stale(item.count)
                self._leases.add_stale_publish()
                item.fail(StaleFenceError(stale(item.fence)))

    def dropped(self, count: int) -> None:
        self._counters.add_discarded(count)

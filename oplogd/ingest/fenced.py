"""The writer of fenced operations: it appends them if their fence holds.

They never enter the queue, the retry or the spool of other operations: an operation that was
answered with an error must not be stored after the next term of its sender has begun.
"""

import logging
import time
from collections.abc import Sequence

from oplogd.errors import StaleFenceError
from oplogd.ingest.appends import Appends
from oplogd.ingest.counters import Counters
from oplogd.ingest.queue import IngestQueue, Item
from oplogd.ingest.request_writer import RequestWriter
from oplogd.model.lease import Fence, stale
from oplogd.model.operation import Operation
from oplogd.store.base import FencedBatch, Store
from oplogd.watch.health import Health
from oplogd.watch.lease_counters import LeaseCounters

logger = logging.getLogger("oplogd.writer")


class FencedWriter(RequestWriter[Item]):
    def __init__(
        self,
        store: Store,
        queue: IngestQueue,
        counters: Counters,
        leases: LeaseCounters,
        health: Health,
        appends: Appends | None = None,
    ) -> None:
        super().__init__(queue, health, "writer of fenced operations", logger, appends)
        self._store = store
        self._counters = counters
        self._leases = leases

    async def append(self, items: Sequence[Item]) -> None:
        groups: dict[Fence, list[Operation]] = {}
        for item in items:
            if item.fence is not None:
                groups.setdefault(item.fence, []).extend(item.operations)
        batches = [FencedBatch(operations, fence) for fence, operations in groups.items()]
        begun = time.monotonic()
        appended = await self._store.append_fenced(batches)
        self._counters.commit_seconds.observe(time.monotonic() - begun)
        holds = dict(zip(groups, appended, strict=True))
        for item in items:
            if item.fence is None or holds[item.fence]:
                self._counters.ingested += item.count
            else:
                self._counters.stale += item.count
                self._leases.add_stale_publish()
                item.fail(StaleFenceError(stale(item.fence)))

    def dropped(self, count: int) -> None:
        self._counters.discarded += count

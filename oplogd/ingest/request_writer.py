"""Writers for items whose senders wait: they try nothing again."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from logging import Logger, getLogger
from typing import Generic, TypeVar

from oplogd.errors import NotConfirmedError, StaleFenceError, StoreUnavailableError
from oplogd.ingest.appends import Appends, as_unavailable
from oplogd.ingest.counters import IngestCounters
from oplogd.ingest.queue import IngestItem, IngestQueue
from oplogd.model.lease import Fence, stale
from oplogd.model.operation import Operation
from oplogd.store.base import FencedBatch, Store
from oplogd.watch.bounded import BoundedQueue, Waiting
from oplogd.watch.health import Health
from oplogd.watch.lease_counters import LeaseCounters

BATCH_COUNT = 5_000
BATCH_BYTES = 4 * 1024 * 1024
# After this time without a request, a failed append says nothing about the store any more.
FORGET_SECONDS = 5.0

logger = getLogger("oplogd.writer")

_Item = TypeVar("_Item", bound=Waiting)


class RequestWriter(ABC, Generic[_Item]):
    """Appends items in order. Requests arriving during a commit share the next commit.

    If the store does not take a batch, its requests fail and it is dropped. After this answer, it
    must not be stored behind later items of the same sender.
    """

    def __init__(
        self,
        queue: BoundedQueue[_Item],
        health: Health,
        name: str,
        logger: Logger,
        appends: Appends | None,
    ) -> None:
        self._queue = queue
        self._part = health.part(name)
        self._logger = logger
        self._appends = appends or Appends(health)

    @abstractmethod
    async def append(self, items: Sequence[_Item]) -> None:
        """Append the content of these items to the store, and give each item its outcome."""

    def dropped(self, count: int) -> None:
        """Note that the requests of so many items have failed."""

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            items = await self._take()
            try:
                with as_unavailable(self._part, self._logger), self._watched(items):
                    await self.append(items)
            except NotConfirmedError as error:  # the store works; others need not wait
                self._queue.refuse(items, error)
                self.dropped(sum(item.count for item in items))
            except StoreUnavailableError as error:
                self._part.bad(str(error))
                self._queue.refuse(items, NotConfirmedError(str(error)))
                waiting = self._queue.refuse_waiting(StoreUnavailableError(str(error)))
                self.dropped(sum(item.count for item in items) + waiting)
            else:
                self._part.good()
                self._queue.finish(items)

    def _watched(self, items: Sequence[_Item]) -> AbstractContextManager[None]:
        def give_up(error: NotConfirmedError) -> None:
            """Answer requests. The items keep their room: they are still being written."""
            for item in items:
                item.fail(error)
            self.dropped(self._queue.refuse_waiting(StoreUnavailableError(str(error))))

        return self._appends.step(give_up)

    async def _take(self) -> list[_Item]:
        """Take items. Without any, a trouble ends: otherwise an idle agent would stay degraded."""
        if self._part.trouble is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(FORGET_SECONDS):
                    return await self._queue.take(BATCH_COUNT, BATCH_BYTES)
            self._part.good("no request has failed since")
        return await self._queue.take(BATCH_COUNT, BATCH_BYTES)


class FencedWriter(RequestWriter[IngestItem]):
    """Appends operations if their fence holds.

    They have no retry and no spool: after an error, an operation must not be stored once the next
    term of its sender has begun.
    """

    def __init__(
        self,
        store: Store,
        queue: IngestQueue,
        counters: IngestCounters,
        leases: LeaseCounters,
        health: Health,
        appends: Appends | None = None,
    ) -> None:
        super().__init__(
            queue, health, "writer of fenced operations", getLogger("oplogd.writer"), appends
        )
        self._store = store
        self._counters = counters
        self._leases = leases

    async def append(self, items: Sequence[IngestItem]) -> None:
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

"""A writer with a store that fails, driven by tests."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import cast

from oplogd.clock import SYSTEM, Clock
from oplogd.errors import StoreUnavailableError
from oplogd.ingest import writer
from oplogd.ingest.counters import IngestCounters
from oplogd.ingest.queue import IngestItem, IngestQueue
from oplogd.ingest.spool import Spool
from oplogd.model.operation import Operation
from oplogd.store import BatchId, Store
from oplogd.watch.health import Health
from tests.kits.processes.logged import DEADLINE

HUGE = 10**9


def submit(queue: IngestQueue, operations: Sequence[Operation]) -> "asyncio.Future[None]":
    """Queue operations whose sender waits for the future."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    queue.add(IngestItem(operations, done))
    return done


class FailingStore:
    """Fails the given number of times for each batch. Each append waits at ``gate`` first."""

    def __init__(self, failures: Sequence[int] = ()) -> None:
        self.failures = list(failures)
        self.batches: list[list[Operation]] = []
        self.error: Exception = StoreUnavailableError("the disk is full")
        self.tries = 0
        self.arrived = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def append(
        self, operations: Sequence[Operation], batch_id: BatchId | None = None
    ) -> None:
        self.tries += 1
        self.arrived.set()
        await self.gate.wait()
        if self.failures and self.failures[0] > 0:
            self.failures[0] -= 1
            raise self.error
        if self.failures:
            self.failures.pop(0)
        self.batches.append(list(operations))

    @property
    def commits(self) -> int:
        return len(self.batches)

    @property
    def log(self) -> list[Operation]:
        return [op for batch in self.batches for op in batch]


class Bench:
    def __init__(self, store: FailingStore, clock: Clock = SYSTEM) -> None:
        self.store = store
        self.clock = clock
        self.queue = IngestQueue(HUGE, HUGE)
        self.counters = IngestCounters()
        self.health = Health()

    def put(self, operations: list[Operation]) -> None:
        self.counters.received += len(operations)
        self.queue.put(operations)

    def submit(self, operations: list[Operation]) -> "asyncio.Future[None]":
        self.counters.received += len(operations)
        return submit(self.queue, operations)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Run the writer until the queue is empty. The test fails if the writer dies."""
        async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as group:
            store = cast(Store, self.store)
            made = writer.Writer(store, self.queue, self.counters, self.health, clock=self.clock)
            task = group.create_task(made.run(), name="writer")
            yield
            self.store.gate.set()
            await self.queue.emptied()
            task.cancel()

    def adds_up(self) -> bool:
        counts = self.counters
        kept = counts.in_spool + self.queue.count
        return (
            counts.received + counts.recovered
            == counts.ingested + counts.error + counts.discarded + kept
        )


class Writing:
    """A bench with a spool. The writer runs until a condition holds."""

    def __init__(self, store: FailingStore, spool: Spool, health: Health) -> None:
        self.bench = Bench(store)
        self.bench.health = health
        self._spool = spool

    async def until(self, condition: Callable[[], bool]) -> None:
        bench = self.bench
        store = cast(Store, bench.store)
        works = (
            writer.Writer(store, bench.queue, bench.counters, bench.health, self._spool).run(),
            self._spool.mend(),
        )
        tasks = [asyncio.create_task(work) for work in works]
        try:
            async with asyncio.timeout(DEADLINE):
                while not condition():
                    assert not [task.exception() for task in tasks if task.done()]
                    await asyncio.sleep(0.001)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

"""Fenced operations: stored while their term lasts, dropped after any failure."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest

from oplogd.decode.compressed import TooLargeError
from oplogd.errors import (
    NotConfirmedError,
    OplogError,
    QueueFullError,
    StaleFenceError,
    StoreUnavailableError,
)
from oplogd.ingest import request_writer
from oplogd.ingest.counters import IngestCounters
from oplogd.ingest.queue import IngestQueue, Intake
from oplogd.ingest.request_writer import FencedWriter
from oplogd.model.lease import Fence
from oplogd.model.operation import Operation
from oplogd.store import FencedBatch, Store
from oplogd.watch.health import Health
from oplogd.watch.lease_counters import LeaseCounters
from tests.kits.models.operations import numbered
from tests.kits.processes.logged import DEADLINE

OLD, NEW, OTHER = Fence("l", 1), Fence("l", 2), Fence("other", 5)


class FencedStore:
    """Appends batches with a fence in ``held``. Each call waits at ``gate`` first."""

    def __init__(self) -> None:
        self.held = {NEW, OTHER}
        self.calls: list[list[FencedBatch]] = []
        self.log: list[Operation] = []
        self.trouble: Exception | None = None
        # Each ends one call.
        self.troubles: list[Exception] = []
        self.arrived = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def append_fenced(self, batches: Sequence[FencedBatch]) -> list[bool]:
        self.arrived.set()
        await self.gate.wait()
        if self.trouble is not None:
            raise self.trouble
        if self.troubles:
            raise self.troubles.pop()
        self.calls.append(list(batches))
        results = [batch.fence in self.held for batch in batches]
        for batch, holds in zip(batches, results, strict=True):
            if holds:
                self.log += batch.operations
        return results


class Bench:
    """``most``: bound of the queues in operations."""

    def __init__(self, most: int = 1000) -> None:
        self.store = FencedStore()
        self.counters = IngestCounters()
        self.leases = LeaseCounters()
        self.health = Health()
        self.plain = IngestQueue(most, 10**6)
        self.queue = IngestQueue(most, 10**6)
        writer = self.health.part("writer")
        self.intake = Intake(self.plain, self.queue, self.counters, writer)

    def storing(self, operations: list[Operation], fence: Fence) -> "asyncio.Task[None]":
        return asyncio.ensure_future(self.intake.submit(operations, fence))

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Run the writer until the queue is empty. The test fails if the writer dies."""
        store = cast(Store, self.store)
        writer = FencedWriter(store, self.queue, self.counters, self.leases, self.health)
        async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as group:
            task = group.create_task(writer.run())
            yield
            await self.queue.emptied()
            task.cancel()

    async def queued(self, operations: int) -> None:
        async with asyncio.timeout(DEADLINE):
            while self.queue.count != operations:
                await asyncio.sleep(0)


async def errors_of(tasks: Sequence["asyncio.Task[None]"]) -> list[object]:
    results = await asyncio.gather(*tasks, return_exceptions=True)
    return [each if each is None else type(each) for each in results]


async def test_requests_share_a_commit_with_a_batch_for_each_fence() -> None:
    bench = Bench()
    tasks = [
        bench.storing(numbered(2, 1), NEW),
        bench.storing(numbered(1, 3), OTHER),
        bench.storing(numbered(1, 4), NEW),
    ]
    await bench.queued(4)
    async with bench.writing():
        assert await errors_of(tasks) == [None] * 3
    assert bench.store.calls == [
        [
            FencedBatch([*numbered(2, 1), *numbered(1, 4)], NEW),
            FencedBatch(numbered(1, 3), OTHER),
        ]
    ]
    assert bench.counters == IngestCounters(received=4, ingested=4)
    assert bench.counters.commit_seconds.count == 1
    assert bench.plain.count == 0


async def test_a_stale_request_is_told_so_and_the_others_are_stored() -> None:
    bench = Bench()
    tasks = [bench.storing(numbered(2, 1), OLD), bench.storing(numbered(1, 3), NEW)]
    await bench.queued(3)
    async with bench.writing():
        assert await errors_of(tasks) == [StaleFenceError, None]
        with pytest.raises(StaleFenceError, match="term 1 of the lease l is over; nothing was"):
            await bench.intake.submit(numbered(1, 4), OLD)
    assert bench.store.log == numbered(1, 3)
    assert bench.counters == IngestCounters(received=4, ingested=1, stale=3)
    assert bench.leases.counts.stale_publishes == 2
    assert (bench.queue.count, bench.queue.bytes) == (0, 0)


@pytest.mark.parametrize("error", [StoreUnavailableError("the disk is full"), ValueError("a bug")])
async def test_operations_of_a_failed_request_are_never_stored(error: Exception) -> None:
    bench = Bench()
    bench.store.gate.clear()
    async with bench.writing():
        in_flight = bench.storing(numbered(2, 1), NEW)
        await bench.store.arrived.wait()
        waiting = bench.storing(numbered(3, 3), NEW)
        await bench.queued(5)
        bench.store.trouble = error
        bench.store.gate.set()
        assert await errors_of([in_flight, waiting]) == [NotConfirmedError, StoreUnavailableError]
        assert bench.health.trouble is not None
        bench.store.trouble = None
        await bench.intake.submit(numbered(1, 6), NEW)
    assert bench.store.log == numbered(1, 6)
    assert bench.health.trouble is None
    assert bench.counters == IngestCounters(received=6, ingested=1, discarded=5)
    assert (bench.queue.count, bench.queue.bytes) == (0, 0)


async def test_requests_of_a_term_that_ends_while_they_are_stored_fail_alone() -> None:
    bench = Bench()
    bench.store.gate.clear()
    async with bench.writing():
        in_flight = bench.storing(numbered(2, 1), NEW)
        await bench.store.arrived.wait()
        waiting = bench.storing(numbered(3, 3), OTHER)
        await bench.queued(5)
        bench.store.troubles.append(NotConfirmedError("the term ended"))
        bench.store.gate.set()
        assert await errors_of([in_flight, waiting]) == [NotConfirmedError, None]
        assert bench.health.trouble is None
    assert bench.store.log == numbered(3, 3)
    assert bench.counters == IngestCounters(received=5, ingested=3, discarded=2)


async def test_a_trouble_ends_without_another_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_writer, "FORGET_SECONDS", 0.0)
    bench = Bench()
    bench.store.trouble = StoreUnavailableError("the disk is full")
    async with bench.writing():
        with pytest.raises(NotConfirmedError):
            await bench.intake.submit(numbered(1), NEW)
        assert bench.health.trouble is not None
        async with asyncio.timeout(DEADLINE):
            while bench.health.trouble is not None:
                await asyncio.sleep(0)
        bench.store.trouble = None
        await bench.intake.submit(numbered(1), NEW)
    assert bench.store.log == numbered(1)


async def test_the_queue_is_bounded_and_refused_operations_are_counted() -> None:
    bench = Bench(most=3)
    bench.store.gate.clear()
    with pytest.raises(TooLargeError, match="more than the queue holds"):
        await bench.intake.submit(numbered(4), NEW)
    async with bench.writing():
        stored = bench.storing(numbered(2), NEW)
        await bench.store.arrived.wait()
        with pytest.raises(QueueFullError):
            await bench.intake.submit(numbered(2, 3), NEW)
        bench.store.gate.set()
        await stored
    assert bench.counters == IngestCounters(received=8, ingested=2, discarded=6)


async def test_fenced_operations_do_not_wait_for_the_writer_of_the_others() -> None:
    bench = Bench()
    bench.health.part("writer").bad("the spool is full")
    async with bench.writing():
        await bench.intake.submit(numbered(1), NEW)
        with pytest.raises(OplogError, match="the spool is full"):
            await bench.intake.submit(numbered(1, 2))
    assert bench.store.log == numbered(1)

"""The writer: takes batches from the queue and appends them to the log."""

import asyncio
import logging
import random
import secrets
from collections.abc import Sequence

from oplog_kit.backoff import Backoff
from oplogd.clock import SYSTEM, Clock
from oplogd.errors import NotConfirmedError, StoreError, StoreUnavailableError
from oplogd.ingest.appends import Appends, as_unavailable
from oplogd.ingest.counters import IngestCounters
from oplogd.ingest.gate import Gate
from oplogd.ingest.queue import IngestItem, IngestQueue
from oplogd.ingest.spool import Spool
from oplogd.model.operation import Operation
from oplogd.store import BatchId, Store
from oplogd.watch.health import Health
from oplogd.watch.latency import LatencyProbe

BATCH_OPERATIONS = 5_000
BATCH_BYTES = 4 * 1024 * 1024
FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 30.0
SPOOL_FULL_SECONDS = 0.5

logger = logging.getLogger("oplogd.writer")


class _QueuedBatch:
    """Operations of ``items`` that are neither in the store nor in the spool."""

    def __init__(self, items: Sequence[IngestItem], writer: str, sequence: int) -> None:
        self.items = items
        self.operations = [operation for item in items for operation in item.operations]
        self.batch_id = BatchId(writer, sequence)

    def cut(self, count: int) -> None:
        """Remove the first operations: the spool has them."""
        del self.operations[:count]
        self.batch_id = BatchId(self.batch_id.writer, self.batch_id.sequence + count)


class Writer:
    """Appends batches in order. Operations arriving during a commit share the next commit.

    A failed batch is tried again with exponential back-off and jitter. Waiting requests fail at
    once: with NotConfirmedError if their operations are being written and stay, otherwise with
    StoreUnavailableError, and the operations leave the queue.

    With a ``spool``, failed and later operations go there until the spool is empty. If the spool is
    full or fails, they stay in memory.
    """

    def __init__(
        self,
        store: Store,
        queue: IngestQueue,
        counters: IngestCounters,
        health: Health,
        spool: Spool | None = None,
        latency: LatencyProbe | None = None,
        clock: Clock = SYSTEM,
        appends: Appends | None = None,
        gate: Gate | None = None,
    ) -> None:
        self._clock = clock
        self._appends = appends or Appends(health, clock)
        self._gate = gate or Gate(None, health)
        self._store = store
        self._queue = queue
        self._counters = counters
        self._health = health
        self._part = health.part("writer")
        self._spool = spool
        self._latency = latency or LatencyProbe()
        self._token = secrets.token_hex(8)
        self._sequence = 0

    async def run(self) -> None:
        """Write until cancelled."""
        batch: _QueuedBatch | None = None
        while True:
            if self._spool is not None and self._spool.operations:
                batch = await self._empty_spool(self._spool, batch)
            elif batch is None:
                batch = self._batch(await self._queue.take(BATCH_OPERATIONS, BATCH_BYTES))
            else:
                batch = await self._write(batch)

    async def _write(self, batch: _QueuedBatch) -> _QueuedBatch | None:
        """Write a batch or move it to the spool. Return the part the spool does not take."""
        backoff = Backoff(FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS)
        self._latency.begin(batch.operations[0].data, batch.items[0].arrived)
        while True:
            recoveries = self._health.recoveries
            try:
                await self._append(batch.operations, batch.batch_id, batch.items)
            except StoreUnavailableError as error:
                self._report(batch.items, error)
                if await self._move_to_spool(batch):
                    return None
                if self._spool is not None and self._spool.operations:
                    return batch
                await self._pause(backoff, recoveries)
                await self._gate.opened()  # a trial would take the room that deletions need
            else:
                self._part.good()
                self._counters.ingested += len(batch.operations)
                self._queue.finish(batch.items)
                return None

    async def _empty_spool(self, spool: Spool, batch: _QueuedBatch | None) -> _QueuedBatch | None:
        """Write the spool's operations to the store until the spool is empty.

        Meanwhile ``batch`` and new operations go to its end. Return the batch without room there.
        """
        sending = asyncio.create_task(self._send_spool(spool), name="sending the spool")
        try:
            while not sending.done():
                if batch is None:
                    batch = await self._take_for_spool(sending)
                elif await self._move_to_spool(batch):
                    batch = None
                else:
                    self._counters.discarded += self._queue.refuse_waiting(_behind_the_spool())
                    await asyncio.wait({sending}, timeout=SPOOL_FULL_SECONDS)
            sending.result()
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        return batch

    async def _send_spool(self, spool: Spool) -> None:
        backoff = Backoff(FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS)
        while True:
            recoveries = self._health.recoveries
            try:
                batch = await spool.first(BATCH_OPERATIONS, BATCH_BYTES)
                if batch is None:
                    break
                await self._append(batch.operations, batch.batch_id, [])
                self._counters.ingested += len(batch.operations)
                self._counters.in_spool -= len(batch.operations)
                await spool.drop(batch)
                backoff.reset()
            except StoreError as error:
                self._report([], error)
                await self._pause(backoff, recoveries)
        self._part.good()

    async def _pause(self, backoff: Backoff, recoveries: int) -> None:
        """Wait before the next attempt. The pause after it is longer.

        The pause ends when another part finds the store back. It is short if one did since
        ``recoveries``.
        """
        if self._health.recoveries != recoveries:
            backoff.reset()
        ends = [
            asyncio.ensure_future(self._clock.sleep(backoff.pause * random.uniform(0.5, 1.0))),
            asyncio.ensure_future(self._health.recovered(self._health.recoveries)),
        ]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
        backoff.grow()

    async def _take_for_spool(self, sending: "asyncio.Task[None]") -> _QueuedBatch | None:
        """Take a batch for the spool from the queue, and refuse waiting requests.

        Return None if only requests came, or if the spool became empty first.
        """
        taking = asyncio.create_task(self._queue.take(BATCH_OPERATIONS, BATCH_BYTES))
        try:
            await asyncio.wait({sending, taking}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            taking.cancel()
            await asyncio.wait({taking})
        if taking.cancelled():
            return None
        items = taking.result()
        refused = [item for item in items if item.done is not None]
        for item in refused:
            item.fail(_behind_the_spool())
            self._counters.discarded += len(item.operations)
        self._queue.finish(refused)
        remaining = [item for item in items if item.done is None]
        return self._batch(remaining) if remaining else None

    async def _append(
        self, operations: Sequence[Operation], batch_id: BatchId, items: Sequence[IngestItem]
    ) -> None:
        """Append to the store, for ``items``. Raises StoreUnavailableError for every failure."""
        begun = self._clock.monotonic()
        with (
            as_unavailable(self._part, logger),
            self._appends.step(lambda error: self._refuse(items, error)),
        ):
            await self._store.append(operations, batch_id)
        self._counters.commit_seconds.observe(self._clock.monotonic() - begun)

    async def _move_to_spool(self, batch: _QueuedBatch) -> bool:
        """Move operations to the spool. Return True if it took all of them."""
        if self._spool is None:
            return False
        try:
            count = await self._spool.put(batch.operations, batch.batch_id)
        except StoreError:  # the spool has reported it
            return False
        if count:
            self._latency.give_up()
        self._counters.spooled += count
        self._counters.in_spool += count
        self._queue.let_go(batch.items, count)
        batch.cut(count)
        if batch.operations:
            return False
        self._queue.finish(batch.items)
        return True

    def _batch(self, items: Sequence[IngestItem]) -> _QueuedBatch:
        batch = _QueuedBatch(items, self._token, self._sequence)
        self._sequence += len(batch.operations)
        return batch

    def _report(self, items: Sequence[IngestItem], error: StoreError) -> None:
        """Report a failed append to the requests of ``items`` and of the queue."""
        self._part.bad(str(error))
        self._refuse(items, error)

    def _refuse(self, items: Sequence[IngestItem], error: StoreError) -> None:
        for item in items:
            item.fail(NotConfirmedError(str(error)))
        self._counters.discarded += self._queue.refuse_waiting(StoreUnavailableError(str(error)))


def _behind_the_spool() -> StoreUnavailableError:
    return StoreUnavailableError("earlier operations wait in the spool; try again later")

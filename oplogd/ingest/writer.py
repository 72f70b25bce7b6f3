"""Takes batches from the queue and appends them to the log, for as long as it takes."""

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Sequence

from oplogd.errors import NotConfirmedError, StoreError, StoreUnavailableError
from oplogd.health import Health
from oplogd.ingest.counters import Counters
from oplogd.ingest.queue import IngestQueue, Item
from oplogd.ingest.spool import Spool
from oplogd.operation import Operation
from oplogd.passage import Passage
from oplogd.store import Stamp, Store

BATCH_OPERATIONS = 5_000
BATCH_BYTES = 4 * 1024 * 1024
FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 30.0
_FULL_SECONDS = 0.5

logger = logging.getLogger("oplogd.writer")


async def write(
    store: Store,
    queue: IngestQueue,
    counters: Counters,
    health: Health,
    spool: Spool | None = None,
    passage: Passage | None = None,
) -> None:
    """Run for ever. All that arrives while a batch is being committed shares the next commit.

    A batch that cannot be written is tried again, with exponential back-off and jitter, until it can. Waiting requests
    fail at once. Their operations that are being written stay (NotConfirmedError); the others leave the queue. With a ``spool``,
    operations that cannot be written go there, and all later ones behind them, until the spool is empty again. If the
    spool is full or fails, they stay in memory.
    """
    await _Writer(store, queue, counters, health, spool, passage or Passage()).run()


class _Batch:
    """Operations of ``items`` that are neither in the store nor in the spool, with their stamp."""

    def __init__(self, items: Sequence[Item], writer: str, sequence: int) -> None:
        self.items = items
        self.operations = [operation for item in items for operation in item.operations]
        self.stamp = Stamp(writer, sequence)

    def cut(self, count: int) -> None:
        """Leave out the first operations: the spool has them."""
        del self.operations[:count]
        self.stamp = Stamp(self.stamp.writer, self.stamp.sequence + count)


class _Writer:
    def __init__(
        self,
        store: Store,
        queue: IngestQueue,
        counters: Counters,
        health: Health,
        spool: Spool | None,
        passage: Passage,
    ) -> None:
        self._store = store
        self._queue = queue
        self._counters = counters
        self._part = health.part("writer")
        self._spool = spool
        self._passage = passage
        self._name = secrets.token_hex(8)
        self._sequence = 0

    async def run(self) -> None:
        batch: _Batch | None = None
        while True:
            if self._spool is not None and self._spool.operations:
                batch = await self._empty(self._spool, batch)
            elif batch is None:
                batch = self._batch(await self._queue.take(BATCH_OPERATIONS, BATCH_BYTES))
            else:
                batch = await self._write(batch)

    async def _write(self, batch: _Batch) -> _Batch | None:
        """Write a batch or move it to the spool. Return the rest if only its beginning fits there."""
        delay = FIRST_RETRY_SECONDS
        self._passage.begin(batch.operations[0].data, batch.items[0].arrived)
        while True:
            try:
                await self._append(batch.operations, batch.stamp)
            except StoreUnavailableError as error:
                self._refuse(batch.items, error)
                if await self._keep(batch):
                    return None
                if self._spool is not None and self._spool.operations:
                    return batch
                await asyncio.sleep(delay * random.uniform(0.5, 1.0))
                delay = min(2 * delay, LAST_RETRY_SECONDS)
            else:
                self._part.good()
                self._done(batch)
                return None

    async def _empty(self, spool: Spool, batch: _Batch | None) -> _Batch | None:
        """Send the spool's operations, oldest first; put ``batch`` and all that arrives meanwhile behind them.

        Return the batch that found no room until the end.
        """
        sending = asyncio.create_task(self._send(spool), name="sending the spool")
        try:
            while not sending.done():
                if batch is None:
                    batch = await self._take(sending)
                elif await self._keep(batch):
                    batch = None
                else:
                    self._counters.add_discarded(self._queue.refuse_waiting(_behind_the_spool()))
                    await asyncio.wait({sending}, timeout=_FULL_SECONDS)
            sending.result()
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        return batch

    async def _send(self, spool: Spool) -> None:
        delay = FIRST_RETRY_SECONDS
        while True:
            try:
                batch = await spool.first(BATCH_OPERATIONS, BATCH_BYTES)
                if batch is None:
                    break
                await self._append(batch.operations, batch.stamp)
                self._counters.add_ingested_from_spool(len(batch.operations))
                await spool.drop(batch)
                delay = FIRST_RETRY_SECONDS
            except StoreError as error:
                self._refuse([], error)
                await asyncio.sleep(delay * random.uniform(0.5, 1.0))
                delay = min(2 * delay, LAST_RETRY_SECONDS)
        self._part.good()

    async def _take(self, sending: "asyncio.Task[None]") -> _Batch | None:
        """Take operations for the spool, None if it is empty before any come. Refuse those of waiting requests."""
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
            self._counters.add_discarded(len(item.operations))
        self._queue.finish(refused)
        kept = [item for item in items if item.done is None]
        return self._batch(kept) if kept else None

    async def _append(self, operations: Sequence[Operation], stamp: Stamp) -> None:
        """Raise StoreUnavailableError for every failure: no error of a store may end the agent with its queue."""
        begun = time.monotonic()
        try:
            await self._store.append(operations, stamp)
        except StoreUnavailableError:
            raise
        except StoreError as error:
            raise StoreUnavailableError(str(error)) from error
        except Exception as error:
            message = f"the store failed, the log tells more: {error!r}"
            if self._part.trouble != message:
                logger.error("an append failed", exc_info=error)
            raise StoreUnavailableError(message) from error
        self._counters.commit_seconds.observe(time.monotonic() - begun)

    async def _keep(self, batch: _Batch) -> bool:
        """Move operations to the spool as far as they fit. Return whether all did."""
        if self._spool is None:
            return False
        try:
            count = await self._spool.put(batch.operations, batch.stamp)
        except StoreError:  # told by the spool
            return False
        if count:
            self._passage.give_up()
        self._counters.add_spooled(count)
        self._queue.let_go(batch.items, count)
        batch.cut(count)
        if batch.operations:
            return False
        self._queue.finish(batch.items)
        return True

    def _batch(self, items: Sequence[Item]) -> _Batch:
        batch = _Batch(items, self._name, self._sequence)
        self._sequence += len(batch.operations)
        return batch

    def _refuse(self, items: Sequence[Item], error: StoreError) -> None:
        self._part.bad(str(error))
        for item in items:
            item.fail(NotConfirmedError(str(error)))
        self._counters.add_discarded(self._queue.refuse_waiting(StoreUnavailableError(str(error))))

    def _done(self, batch: _Batch) -> None:
        self._counters.add_ingested(len(batch.operations))
        self._queue.finish(batch.items)


def _behind_the_spool() -> StoreUnavailableError:
    return StoreUnavailableError("operations that came before wait in the spool; try again later")

"""Takes batches from the queue and appends them to the log, for as long as it takes."""

import asyncio
import contextlib
import random
import secrets
from collections.abc import Sequence

from oplogd.errors import StoreError, StoreUnavailableError
from oplogd.health import Health
from oplogd.ingest.counters import Counters
from oplogd.ingest.queue import IngestQueue, Item
from oplogd.ingest.spool import Spool
from oplogd.operation import Operation
from oplogd.store import Stamp, Store

BATCH_OPERATIONS = 5_000
BATCH_BYTES = 4 * 1024 * 1024
FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 30.0
_FULL_SECONDS = 0.5


async def write(
    store: Store, queue: IngestQueue, counters: Counters, health: Health, spool: Spool | None = None
) -> None:
    """Run for ever. All that arrives while a batch is being committed shares the next commit.

    A batch that cannot be written is tried again, with exponential back-off and jitter, until it can. Those who wait for
    an answer are told at once; the operations of theirs that are being written stay, the others leave the queue. With a
    ``spool``, what cannot be written goes there, and all that comes behind it, until the spool is empty again.
    """
    await _Writer(store, queue, counters, health, spool).run()


class _Writer:
    def __init__(
        self, store: Store, queue: IngestQueue, counters: Counters, health: Health, spool: Spool | None
    ) -> None:
        self._store = store
        self._queue = queue
        self._counters = counters
        self._health = health
        self._spool = spool
        self._name = secrets.token_hex(8)
        self._sequence = 0

    async def run(self) -> None:
        while True:
            if self._spool is not None and self._spool.operations:
                await self._empty(self._spool)
            items = await self._queue.take(BATCH_OPERATIONS, BATCH_BYTES)
            await self._write(items)

    async def _write(self, items: list[Item]) -> None:
        operations = [operation for item in items for operation in item.operations]
        stamp = self._stamp(operations)
        delay = FIRST_RETRY_SECONDS
        while True:
            try:
                await self._store.append(operations, stamp)
                self._health.good("writer")
                break
            except StoreUnavailableError as error:
                self._refuse(items, error)
                if await self._put(operations, stamp):
                    break
                await asyncio.sleep(delay * random.uniform(0.5, 1.0))
                delay = min(2 * delay, LAST_RETRY_SECONDS)
        self._done(items)

    async def _empty(self, spool: Spool) -> None:
        """Send what the spool holds, oldest first; what comes meanwhile is put behind it."""
        sending = asyncio.create_task(self._send(spool), name="spool")
        try:
            while not sending.done():
                taking = asyncio.create_task(self._queue.take(BATCH_OPERATIONS, BATCH_BYTES))
                try:
                    await asyncio.wait({sending, taking}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    taking.cancel()
                    await asyncio.wait({taking})
                if not taking.cancelled():
                    await self._keep(taking.result(), sending)
            sending.result()
        finally:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, StoreError):
                await sending

    async def _send(self, spool: Spool) -> None:
        delay = FIRST_RETRY_SECONDS
        while batch := await spool.first(BATCH_OPERATIONS):
            try:
                await self._store.append(batch.operations, batch.stamp)
            except StoreUnavailableError as error:
                self._refuse([], error)
                await asyncio.sleep(delay * random.uniform(0.5, 1.0))
                delay = min(2 * delay, LAST_RETRY_SECONDS)
                continue
            await spool.drop(batch)
            delay = FIRST_RETRY_SECONDS
        self._health.good("writer")

    async def _keep(self, items: list[Item], sending: "asyncio.Task[None]") -> None:
        """Put them behind the others in the spool, or write them if it has become empty. Who waits is refused."""
        error = StoreUnavailableError("operations that came before wait in the spool; try again later")
        refused = [item for item in items if item.done is not None]
        for item in refused:
            item.fail(error)
            self._counters.discarded += len(item.operations)
        self._queue.finish(refused)
        kept = [item for item in items if item.done is None]
        operations = [operation for item in kept for operation in item.operations]
        if not operations:
            return
        stamp = self._stamp(operations)
        while not await self._put(operations, stamp):
            if sending.done():
                sending.result()
            await asyncio.sleep(_FULL_SECONDS)
        self._done(kept)

    async def _put(self, operations: Sequence[Operation], stamp: Stamp) -> bool:
        if self._spool is None:
            return False
        try:
            return await self._spool.put(operations, stamp)
        except StoreError as error:
            self._health.bad("spool", str(error))
            return False

    def _stamp(self, operations: Sequence[Operation]) -> Stamp:
        stamp = Stamp(self._name, self._sequence)
        self._sequence += len(operations)
        return stamp

    def _refuse(self, items: Sequence[Item], error: StoreUnavailableError) -> None:
        self._health.bad("writer", str(error))
        for item in items:
            item.fail(error)
        self._counters.discarded += self._queue.refuse_waiting(error)

    def _done(self, items: Sequence[Item]) -> None:
        self._counters.ingested += sum(len(item.operations) for item in items)
        self._queue.finish(items)

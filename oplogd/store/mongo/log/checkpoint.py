"""Waiting for the fold. All waiters share one reading of the checkpoint."""

import asyncio

from oplogd.errors import StoreUnavailableError
from oplogd.store.mongo.link.lease import FoldLease
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.notifier import Notifier, wait
from oplogd.store.mongo.log.log import Log, LogRow

ASK_SECONDS = 0.03


class CheckpointWaiter:
    """``changed`` notifies of entries folded by this process.

    Other agents may fold, too: while a caller waits, the checkpoint is read every 30 ms.
    """

    def __init__(self, link: Link, log: Log, lease: FoldLease, changed: Notifier) -> None:
        self._link = link
        self._log = log
        self._lease = lease
        self._changed = changed
        self._reading: asyncio.Task[LogRow] | None = None
        self._read_at = float("-inf")

    async def reached(self, upto: int) -> LogRow:
        """Wait until the checkpoint is at an offset or past it. Return the row read then.

        Raises StoreUnavailableError if it stands still for ``FoldLease.stall_seconds``.
        """
        folded, moved = -1, self._link.clock.monotonic()
        while True:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._read(), name="checkpoint")
                # Its waiters may all have gone.
                self._reading.add_done_callback(lambda task: task.cancelled() or task.exception())
            row = await asyncio.shield(self._reading)
            if row.folded.offset >= upto:
                return row
            now = self._link.clock.monotonic()
            if row.folded.offset != folded:
                folded, moved = row.folded.offset, now
            elif now - moved > self._lease.stall_seconds:
                raise StoreUnavailableError(
                    f"MongoDB at {self._link.hosts}: no agent folds the log (offset {folded} of"
                    f" {upto}); is the agent that holds the lease stuck?"
                )

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self) -> LogRow:
        """Read the row, at most once in 30 ms unless entries were folded here."""
        changed = self._changed.listen()
        if (left := self._read_at + ASK_SECONDS - self._link.clock.monotonic()) > 0:
            await wait(changed, left)
        async with self._link.reading() as session:
            row = await self._log.row(session)
        self._read_at = self._link.clock.monotonic()
        return row

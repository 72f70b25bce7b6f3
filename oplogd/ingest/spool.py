"""The spool: operations received by UDP while the store was unreachable. They survive a restart.

Each operation keeps the batch id of its first attempt, so the log gets it once.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from oplogd.clock import SYSTEM, Clock
from oplogd.errors import StoreError
from oplogd.ingest.counters import IngestCounters
from oplogd.ingest.spool_file import SpooledBatch, SpoolFile, reason, size_of
from oplogd.model.operation import Operation
from oplogd.store import BatchId
from oplogd.watch.health import Health, Part

MEND_SECONDS = 1.0

_T = TypeVar("_T")


class Spool:
    """A bounded file. ``max_bytes`` counts keys and data.

    Methods raise StoreError if the file fails, and report it to ``health``. ``counters`` get the
    operations found in the file or lost from it. The caller counts its own.
    """

    def __init__(
        self,
        path: Path,
        max_bytes: int,
        health: Health,
        counters: IngestCounters | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        self._clock = clock
        self._path = path
        self._counters = counters or IngestCounters()
        self.max_bytes = max_bytes
        self._reading = health.part("spool (reading)", "the file can be read again")
        self._writing = health.part("spool", "the file can be written again")
        self._tried = 0.0
        self._counted_found = self._counted_lost = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spool")
        self._file = SpoolFile(path)  # used in the thread only, except for its numbers

    @property
    def operations(self) -> int:
        return self._file.operations

    @property
    def bytes(self) -> int:
        return self._file.bytes

    async def open(self) -> None:
        await self._run(self._file.open, None)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._file.close)
        self._thread.shutdown(wait=False)

    async def mend(self) -> None:
        """While the file cannot be written, try again once per second. Runs until cancelled."""
        while True:
            await self._clock.sleep(MEND_SECONDS)
            if self._writing.trouble and self._clock.monotonic() - self._tried > MEND_SECONDS:
                with contextlib.suppress(StoreError):  # `_run` has reported it
                    await self._run(self._file.delete_sent, self._writing)

    async def put(self, operations: Sequence[Operation], batch_id: BatchId) -> int:
        """Add the first operations, as many as fit, and return their number."""
        count, size = 0, self.bytes
        for operation in operations:
            size += size_of(operation)
            if size > self.max_bytes:
                break
            count += 1
        if count:
            fitting = operations[:count]
            await self._run(lambda: self._file.put(fitting, batch_id), self._writing)
        return count

    async def first(self, max_operations: int, max_bytes: int) -> SpooledBatch | None:
        """Return the oldest operations of one writer that fit, at least one; None if empty."""
        return await self._run(lambda: self._file.first(max_operations, max_bytes), self._reading)

    async def drop(self, batch: SpooledBatch) -> None:
        """Remove the first batch. If that fails, ``first`` does not return it again either."""
        with contextlib.suppress(StoreError):  # `_run` has reported it
            await self._run(lambda: self._file.drop(batch), self._writing)

    async def _run(self, work: Callable[[], _T], part: Part | None) -> _T:
        try:
            result = await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except (sqlite3.Error, StoreError) as error:
            message = str(error)
            if isinstance(error, sqlite3.Error):
                message = f"spool {self._path}: {reason(error)} (--spool)"
            if part is not None:
                part.bad(message)
            raise StoreError(message) from error
        finally:
            self._tried = self._clock.monotonic()
            self._count_found_and_lost()
        if part is not None:
            part.good()
        return result

    def _count_found_and_lost(self) -> None:
        """Count the operations found and lost since the last call. The thread may add more."""
        found = self._file.found - self._counted_found
        lost = self._file.lost - self._counted_lost
        self._counted_found += found
        self._counted_lost += lost
        self._counters.recovered += found
        self._counters.in_spool += found
        self._counters.discarded += lost
        self._counters.in_spool -= lost

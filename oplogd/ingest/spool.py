"""The spool: operations received by UDP while the store was unreachable. They survive a restart.

Each operation keeps the batch id of its first attempt, so the log gets it once. Each worker has a
file of its own. Files that more workers of an earlier run left are sent first, and then removed.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from oplogd.clock import SYSTEM, Clock
from oplogd.config.settings import Settings
from oplogd.errors import StoreError
from oplogd.ingest.counters import IngestCounters
from oplogd.ingest.spool_file import SpooledBatch, SpoolFile, reason, size_of
from oplogd.ingest.spool_paths import SpoolPaths
from oplogd.model.operation import Operation
from oplogd.store import BatchId
from oplogd.watch.health import Health, Part

MEND_SECONDS = 1.0

_T = TypeVar("_T")


class Spool:
    """A bounded file, and the files that are left. ``max_bytes`` counts keys and data of all.

    Methods raise StoreError if a file fails, and report it to ``health``. ``counters`` get the
    operations found in the files or lost from them. The caller counts its own. ``in_spool`` may
    be the number that an earlier process with the same counters has counted already.
    """

    def __init__(
        self,
        path: Path,
        max_bytes: int,
        health: Health,
        counters: IngestCounters | None = None,
        clock: Clock = SYSTEM,
        left: Callable[[], Sequence[Path]] = tuple,
    ) -> None:
        """``left``: returns the paths of the files that are left."""
        self._clock = clock
        self._find_left = left
        self._counters = counters or IngestCounters()
        self.max_bytes = max_bytes
        self._reading = health.part("spool (reading)", "the file can be read again")
        self._writing = health.part("spool", "the file can be written again")
        self._tried = 0.0
        self._counted_found, self._counted_lost = self._counters.in_spool, 0
        self._is_open = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spool")
        # Files are used in the thread only, except for their numbers.
        self._file = SpoolFile(path)
        self._left: list[SpoolFile] = []
        self._files = [self._file]
        # The file of the last batch of ``first``.
        self._read = self._file

    @classmethod
    def of(
        cls,
        settings: Settings,
        number: int,
        count: int,
        health: Health,
        counters: IngestCounters,
        clock: Clock,
    ) -> Self | None:
        """Return the spool of a worker, 0 to ``count`` - 1; None without --spool."""
        if settings.spool is None:
            return None
        paths = SpoolPaths(settings.spool, number, count)
        return cls(paths.own, settings.spool_size, health, counters, clock, paths.left)

    @property
    def operations(self) -> int:
        return sum(file.operations for file in self._files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self._files)

    async def open(self) -> None:
        await self._run(self._open, None)
        self._is_open = True
        self._count_found_and_lost()

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    async def mend(self) -> None:
        """While the file cannot be written, try again once per second. Runs until cancelled."""
        while True:
            await self._clock.sleep(MEND_SECONDS)
            if self._writing.trouble and self._clock.monotonic() - self._tried > MEND_SECONDS:
                with contextlib.suppress(StoreError):  # `_run` has reported it
                    await self._run(self._delete_sent, self._writing)

    async def put(self, operations: Sequence[Operation], batch_id: BatchId) -> int:
        """Add the first operations, as many as fit, and return their number."""
        count, size = 0, self.bytes
        for operation in operations:
            size += size_of(operation)
            if size > self.max_bytes:
                break
            count += 1
        if count:
            put = partial(self._file.put, operations[:count], batch_id)
            await self._run(lambda: _named(self._file, put), self._writing)
        return count

    async def first(self, max_operations: int, max_bytes: int) -> SpooledBatch | None:
        """Return the oldest operations of one writer that fit, at least one; None if empty."""
        return await self._run(lambda: self._first(max_operations, max_bytes), self._reading)

    async def drop(self, batch: SpooledBatch) -> None:
        """Remove the first batch. If that fails, ``first`` does not return it again either."""
        with contextlib.suppress(StoreError):  # `_run` has reported it
            file = self._read
            await self._run(lambda: _named(file, partial(file.drop, batch)), self._writing)

    def _open(self) -> None:
        self._left = [SpoolFile(path) for path in self._find_left()]
        self._files = [*self._left, self._file]
        for file in self._files:
            _named(file, file.open)

    def _close(self) -> None:
        for file in self._files:
            file.close()

    def _first(self, max_operations: int, max_bytes: int) -> SpooledBatch | None:
        """Return the first batch of the first file that has one. Remove empty files before it."""
        while self._left:
            file = self._read = self._left[0]
            if batch := _named(file, partial(file.first, max_operations, max_bytes)):
                return batch
            file.remove()
            del self._left[0]
        file = self._read = self._file
        return _named(file, partial(file.first, max_operations, max_bytes))

    def _delete_sent(self) -> None:
        for file in (*self._left, self._file):
            _named(file, file.delete_sent)

    async def _run(self, work: Callable[[], _T], part: Part | None) -> _T:
        try:
            result = await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except StoreError as error:
            if part is not None:
                part.bad(str(error))
            raise
        finally:
            self._tried = self._clock.monotonic()
            self._count_found_and_lost()
        if part is not None:
            part.good()
        return result

    def _count_found_and_lost(self) -> None:
        """Count the operations found and lost since the last call. The thread may add more."""
        if not self._is_open:
            return
        found = sum(file.found for file in self._files)
        lost = sum(file.lost for file in self._files)
        more, less = found - self._counted_found, lost - self._counted_lost
        self._counted_found, self._counted_lost = found, lost
        if more < 0:  # an earlier process has counted operations that are gone
            more, less = 0, less - more
        self._counters.recovered += more
        self._counters.in_spool += more
        self._counters.discarded += less
        self._counters.in_spool -= less


def _named(file: SpoolFile, work: Callable[[], _T]) -> _T:
    """Return the result of work on a file. Raises StoreError, which names the file."""
    try:
        return work()
    except sqlite3.Error as error:
        raise StoreError(f"spool {file.path}: {reason(error)} (--spool)") from error

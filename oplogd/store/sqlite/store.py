"""The embedded store: one SQLite file in WAL mode.

Entries, states and the log's row change in one transaction, so the checkpoint is always the head.
One statement takes a whole batch (``json_each``) or returns one (``group_concat``): SQLite then
runs without the GIL, and the event loop continues meanwhile.
"""

import asyncio
import contextlib
import dataclasses
import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from oplogd.clock import SYSTEM, Clock
from oplogd.clock.guard import GuardedClock
from oplogd.errors import StoreUnavailableError
from oplogd.model.event_id import Mark
from oplogd.model.operation import Operation
from oplogd.shared.place import WriterPlace
from oplogd.store.base import (
    BatchId,
    Entry,
    FencedBatch,
    LogBounds,
    StateCursor,
    StatesPage,
    StoreStats,
)
from oplogd.store.cached_count import CachedCount
from oplogd.store.corrections import Correction, CorrectionResult
from oplogd.store.sqlite.consumers import SqliteConsumers
from oplogd.store.sqlite.file import statements as sql
from oplogd.store.sqlite.file.connection import StoreFile, snapshot
from oplogd.store.sqlite.file.disk import Disk
from oplogd.store.sqlite.file.pool import ConnectionPool, Pools
from oplogd.store.sqlite.file.space import SqliteSpace
from oplogd.store.sqlite.interface.pointers import SqlitePointers
from oplogd.store.sqlite.interface.topics import SqliteTopics
from oplogd.store.sqlite.interface.transactions import SqliteTransactions
from oplogd.store.sqlite.leases import SqliteLeases
from oplogd.store.sqlite.log import clock_rows, log
from oplogd.store.sqlite.log.hand_over import PAUSE_SECONDS, HandOver
from oplogd.store.sqlite.log.objects import SqliteObjects
from oplogd.store.sqlite.topics import statements as topic_statements

DEFAULT_CAP_BYTES = 256 * 1024 * 1024

_T = TypeVar("_T")

logger = logging.getLogger("oplogd.store")


class SqliteStore:
    """One file for log and states.

    ``max_bytes``: the log's cap; None keeps the cap in the file. ``new_bytes``: the cap of a new
    file if ``max_bytes`` is None. ``topic_ttl``: time to live in seconds of topics without their
    own. ``topics_max_bytes``: bound of all topics together, 0 for none. None keeps the values in
    the file. ``clock``: its guarded time dates all entries. ``reserve``: see ``Disk``.
    ``small_cache``: write in a small process. ``place``: of this process among the workers that
    write to the file; None: there are no others.
    """

    kind = "sqlite"

    def __init__(
        self,
        path: Path,
        max_bytes: int | None = None,
        new_bytes: int = DEFAULT_CAP_BYTES,
        topic_ttl: int | None = None,
        clock: Clock = SYSTEM,
        reserve: int | None = 0,
        topics_max_bytes: int | None = None,
        small_cache: bool = False,
        place: WriterPlace | None = None,
    ) -> None:
        self._path = path
        self.identity: str | None = None
        self.secret: bytes | None = None
        self._values = (max_bytes, new_bytes, topic_ttl, topics_max_bytes)
        self.clock = GuardedClock(clock)
        self._clock = dataclasses.replace(clock, now_ms=self.clock.now_ms)
        disk = Disk(path, reserve)
        may_create = place is None or place.is_first
        self._file = file = StoreFile(
            path, self._replaced, disk, self.clock.now_ms, may_create=may_create
        )
        self._writer = ConnectionPool(
            file,
            "store-writer",
            1,
            topic_statements.APPENDER + disk.pragmas() + sql.SMALL_CACHE * small_cache,
            writes=True,
            prepare=self._prepare,
            place=place,
        )
        self._follower = ConnectionPool(file, "store-follower", 1, sql.SMALL_CACHE)
        self._readers = ConnectionPool(file, "store-reader", 3)
        # Pools of their own: neither a connect nor /status waits for pages of states.
        self._lookups = ConnectionPool(file, "store-lookup", 1, sql.SMALL_CACHE)
        self._figures = ConnectionPool(file, "store-stats", 1, sql.SMALL_CACHE)
        self._hand_over = HandOver(pause=PAUSE_SECONDS if place else 0.0)
        self._place = place
        self._listening: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False
        self._counter = ConnectionPool(file, "store-counter", 1, sql.SMALL_CACHE)
        pools = Pools(self._writer, self._readers, self._lookups)
        self.topics = SqliteTopics(
            file, pools, self.clock, clock.monotonic, changes=place and place.changes
        )
        self.objects = SqliteObjects(self._readers, self._lookups)
        self.transactions = SqliteTransactions(pools, self._wake, self.clock)
        self.pointers = SqlitePointers(pools, self._wake, self.clock)
        # Terms make leases safe whatever the clock says, and their rule repairs what it has said.
        self.leases = SqliteLeases(self._writer, self._lookups, clock)
        self.consumers = SqliteConsumers(self._writer, self._lookups, clock)
        self.space = SqliteSpace(file, self._complete_opening, place)
        self._states_count = CachedCount(lambda: self._counter.run(_count_states))

    async def open(self) -> None:
        """Open the file. Without room for an existing one, ``space`` completes the opening later.

        A worker waits for a file that others have opened and that is gone. All other failures are
        raised.
        """
        self._loop = asyncio.get_running_loop()
        if self._place is not None:
            listen = self._place.bell.listen(self._heard)
            self._listening = asyncio.create_task(listen, name="bell of the store")
        is_new = not await asyncio.to_thread(self._path.exists)
        await asyncio.to_thread(self._file.disk.prepare)
        try:
            await self._complete_opening()
            await self._follower.run(lambda db: db.execute(sql.HEAD).fetchone())
        except StoreUnavailableError as error:
            is_gone = is_new and not self._file.may_create
            if not is_gone and (is_new or not self._file.disk.refused):
                raise
            until = "it is back" if is_gone else "there is room"
            logger.error("%s; the store opens as soon as %s", error, until)

    async def close(self) -> None:
        self._closing = True
        if self._listening is not None:
            self._listening.cancel()
        self._hand_over.add([])
        await self.topics.close()
        await self.space.close()
        for pool in (self._readers, self._lookups, self._figures, self._counter):
            await pool.close(interrupt=True)
        for pool in (self._writer, self._follower):
            await pool.close()

    async def append(
        self, operations: Sequence[Operation], batch_id: BatchId | None = None
    ) -> None:
        if operations:  # one transaction: a failed append leaves nothing
            append = self._writer.run(lambda db: log.append(db, operations, self._clock))
            self._hand_over.add(await append)

    async def append_fenced(self, batches: Sequence[FencedBatch]) -> list[bool]:
        return await self._write(lambda db: log.append_fenced(db, batches, self._clock))

    async def correct(self, corrections: Sequence[Correction]) -> list[CorrectionResult]:
        if not corrections:
            return []
        return await self._write(lambda db: log.correct(db, corrections, self._clock))

    async def follow(
        self, after: int, limit: int, seconds: float, at_ms: int | None = None
    ) -> list[Entry]:
        deadline = time.monotonic() + seconds
        hand_over = self._hand_over
        while True:
            entries = hand_over.take(after, at_ms, limit)
            left = deadline - time.monotonic()
            if not entries and (most := hand_over.to_read(after, limit, left)):
                found = await self._follower.run(lambda db: log.read(db, after, most, at_ms))
                entries = hand_over.take(after, at_ms, limit)
                if not entries:
                    entries = found
                    hand_over.has_read(found, most)
            if entries or left <= 0 or self._closing:
                return entries
            await hand_over.wait(left)

    async def read(self, after: int, limit: int, at_ms: int | None = None) -> list[Entry]:
        return await self._readers.run(lambda db: log.read(db, after, limit, at_ms))

    async def seek(self, ms: int) -> Mark:
        return await self._lookups.run(lambda db: log.seek(db, ms))

    async def checkpoint(self) -> Mark:
        return await self._lookups.run(log.read_head)

    async def states(self, start: StateCursor, upto: int, limit: int, **only: bool) -> StatesPage:
        return await self._readers.run(lambda db: log.states(db, start, upto, limit, **only))

    async def locate(self, offset: int = 0) -> LogBounds:
        return await self._lookups.run_shared(
            (log.read_bounds, offset), lambda db: log.read_bounds(db, offset, self._clock)
        )

    async def stats(self) -> StoreStats:
        counts = await self._states_count.value()
        return await self._figures.run(lambda db: self._stats(db, counts))

    async def purge(self, before_ms: int) -> int:
        purged = 0
        while count := await self._writer.run(lambda db: log.purge(db, before_ms)):
            purged += count
        return purged

    async def keep_clock(self) -> None:
        if not self._writer.is_prepared:  # the time saved in the file is not known yet
            return
        self.clock.step()
        if self.clock.is_unsure:
            self.clock.compare(await self._lookups.run(clock_rows.find))
        if (saved := self.clock.due()) is not None:
            await self._writer.run(lambda db: clock_rows.save(db, saved))
            self.clock.was_saved(saved)

    async def ahead_ms(self) -> int:
        return await self._lookups.run(lambda db: clock_rows.ahead(db, self.clock.now_ms()))

    async def new_epoch(self) -> None:
        self.clock.trust()  # the operator that repairs a store declares the clock right
        await self._writer.run(lambda db: log.new_epoch(db, self._clock))
        await self.keep_clock()

    async def _complete_opening(self) -> None:
        if not self._writer.is_prepared:
            await self._writer.run(lambda db: None, frees_space=True)

    def _prepare(self, db: sqlite3.Connection) -> None:
        log.prepare(db, self._path, self.clock, *self._values)
        self.identity, self.secret = log.read_identity(db), log.read_secret(db)

    def _replaced(self, db: sqlite3.Connection, path: Path) -> None:
        log.record_replacement(db, path)
        self.identity, self.secret = log.read_identity(db), log.read_secret(db)

    def _wake(self) -> None:
        """Let the followers of the log and of the topics look for entries. Called in a thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed
                self._loop.call_soon_threadsafe(self._hand_over.add, ())
        self.topics.wake()

    def _heard(self) -> None:
        """Let the followers look for what another worker has written."""
        self._hand_over.add(())
        self.topics.wake()

    async def _write(self, call: Callable[[sqlite3.Connection], _T]) -> _T:
        """Call in the writer's thread, then let the follower look for entries."""
        result = await self._writer.run(call)
        self._hand_over.add([])
        return result

    def _stats(self, db: sqlite3.Connection, counts: tuple[int, int] | None) -> StoreStats:
        with snapshot(db):
            bounds = log.read_bounds(db, 0, self._clock)
            size, cap = db.execute(sql.CAP).fetchone()
            operations = bounds.head.offset - bounds.oldest.offset + 1 if bounds.oldest else 0
            newest = bounds.head if bounds.oldest else None
            states, deleted = counts or (db.execute(sql.STATES_BOUND).fetchone()[0], None)
            wal = self._file.wal
            return StoreStats(
                operations,
                states,
                size,
                cap,
                bounds.oldest,
                newest,
                lag=0,
                warnings=tuple(filter(None, [wal.warning()])),
                deleted=deleted,
                wal_bytes=wal.size(),
            )


def _count_states(db: sqlite3.Connection) -> tuple[tuple[int, int], float]:
    """Return the numbers of states and of tombstones among them, and the cost in seconds."""
    started = time.monotonic()
    with snapshot(db):
        present = db.execute(sql.STATES_COUNT).fetchone()[0]
        deleted = db.execute(sql.DELETED_COUNT).fetchone()[0]
    return (present, deleted), time.monotonic() - started

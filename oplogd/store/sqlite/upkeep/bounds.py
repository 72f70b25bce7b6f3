"""Keeps the bounds between appends: of each topic, and of all topics together."""

import heapq
import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from oplogd.clock.guard import GuardedClock
from oplogd.store.bounds import slack
from oplogd.store.sqlite.file.connection import transaction
from oplogd.store.sqlite.file.pool import Pools
from oplogd.store.sqlite.topics import bound_statements as sql
from oplogd.store.sqlite.topics.statements import MAX_STAMP
from oplogd.store.sqlite.upkeep import leaving, room, sweep
from oplogd.store.topics import ENTRY_BYTES, MessageBatch, Topic

# One call counts for so long. Then the bounds get their turn.
COUNT_SECONDS = 0.5
# Another agent on the file may have set a bound. While another worker is the keeper, appends look
# so often.
KNOWN_SECONDS = 3.0
# Topics without a bound are counted for the figures only.
FIGURES_SECONDS = 60.0
# Several topics are counted, or shrunk, together in one transaction of about this time.
TOGETHER_SECONDS = 0.005
# After so many bytes of appends a topic with a bound is counted before the next one.
APPENDED_BYTES = 64 * 1024
PROGRESS_SECONDS = 5.0

# Stamp of the oldest entry of a topic, and its log.
_Front = tuple[int, int]

logger = logging.getLogger("oplogd.store")


class BoundsKeeper:
    """Uses the pools of its store. ``wake``: called after entries have left.

    ``changes``: returns a number that grows with each change of a topic at any worker. Another
    worker may call ``shrink``, instead of this one. None: there are no others.
    """

    def __init__(
        self,
        pools: Pools,
        wake: Callable[[], None],
        clock: GuardedClock,
        monotonic: Callable[[], float],
        *,
        changes: Callable[[], int] | None = None,
    ) -> None:
        self._changes = changes
        self._known_changes = -1
        self._writer, self._readers, self._lookups = pools
        self._wake = wake
        self._present = clock.present
        self._monotonic = monotonic
        self._logged_at = monotonic()
        self._figures_at = float("-inf")
        self._looked_at = float("-inf")
        # Topics with a bound, and the bytes appended to them by this process since their last
        # count.
        self._bounded: set[int] = set()
        self._appended: dict[int, int] = {}
        # Whether there may be bounds: without any, an append costs nothing more.
        self.exist = True

    def has_bound(self, topic: Topic) -> None:
        """Note a created or changed topic."""
        if topic.max_bytes is not None:
            self._bounded.add(topic.log)
            self.exist = True

    def appended(self, batches: Sequence[MessageBatch]) -> None:
        """Note an append."""
        for log, messages, _ in batches:
            if log in self._bounded:
                size = sum(len(data) + ENTRY_BYTES for data, _ in messages)
                self._appended[log] = self._appended.get(log, 0) + size

    async def before_append(self) -> None:
        """Shrink topics with many bytes since their last count."""
        if self._changes is not None:
            is_old = self._monotonic() - self._looked_at >= KNOWN_SECONDS
            if is_old or self._changes() != self._known_changes:
                await self._look()
        for log in [log for log, got in self._appended.items() if got >= APPENDED_BYTES]:
            del self._appended[log]
            await self._writer.run(partial(self._step, log=log), frees_space=True)

    async def shrink(self) -> int:
        """Each step is a call of the writer, so appends interleave."""
        found = await self._look()
        removed = 0
        for log in found.behind:
            removed += await self._shrink_topic(log)
        now = self._monotonic()
        if found.total_max is not None or now - self._figures_at >= FIGURES_SECONDS:
            self._figures_at = now
            if not await self._count(frees_space=found.total_max is not None):
                self._figures_at = float("-inf")
        if found.total_max is not None:
            removed += await self._keep_total(found.total_max, found.total)
        return removed

    async def _look(self) -> "_Found":
        """Look up the bounds."""
        if self._changes is not None:
            self._known_changes = self._changes()
        self._looked_at = self._monotonic()
        found = await self._lookups.run(_look)
        self._bounded = found.bounded
        self._appended = {log: got for log, got in self._appended.items() if log in found.bounded}
        self.exist = bool(found.bounded) or found.total_max is not None
        return found

    async def _count(self, *, frees_space: bool) -> bool:
        """Count new bytes of all topics, for some time. Return whether everything is counted."""
        end = time.monotonic() + COUNT_SECONDS
        logs, stored = await self._lookups.run(_to_count)
        while logs:
            await self._writer.run(partial(_count_together, logs), frees_space=frees_space)
            if time.monotonic() >= end:
                break
        is_whole = not logs
        while stored and is_whole and await self._writer.run(_count_stored):
            is_whole = time.monotonic() < end
        now = self._monotonic()
        if not is_whole and now - self._logged_at > PROGRESS_SECONDS:
            self._logged_at = now
            logger.info("counting the bytes of topics: %d topics are left", max(1, len(logs)))
        return is_whole

    async def _shrink_topic(self, log: int) -> int:
        removed = 0
        while True:
            step, reason = await self._writer.run(partial(self._step, log=log), frees_space=True)
            if step is None:
                return removed
            removed += step.removed
            self._wake()
            if reason is not None:
                return removed

    def _step(
        self, db: sqlite3.Connection, log: int
    ) -> tuple[leaving.LeavingStep | None, str | None]:
        with transaction(db):
            return room.shrink(db, log, self._present())

    async def _keep_total(self, max_bytes: int, stored: int) -> int:
        """Let the oldest entries of all topics leave. Note whether they are full."""
        removed = 0
        excess = await self._lookups.run(_total) - max_bytes
        if excess > 0:
            for log in await self._readers.run(sweep.deleted):
                removed += await sweep.complete(self._writer, partial(sweep.forget, log=log))
            excess = await self._lookups.run(_total) - max_bytes
        if excess > 0:
            fronts = await self._readers.run(lambda db: db.execute(sql.FRONTS).fetchall())
            count, newest = await self._shed_oldest(fronts, excess + slack(max_bytes))
            removed += count
            excess = await self._lookups.run(_total) - max_bytes
            if excess > 0 and (alone := sum(newest.values()) - max_bytes) > 0:
                count, _ = await self._shed_oldest([*newest], alone, newest=True)
                removed += count
                excess = await self._lookups.run(_total) - max_bytes
        total = max_bytes + excess if excess > 0 else 0
        if total != stored:
            await self._writer.run(lambda db: db.execute(sql.SET_TOTAL, (total,)).rowcount)
        return removed

    async def _shed_oldest(
        self, fronts: list[_Front], wanted: int, *, newest: bool = False
    ) -> tuple[int, dict[_Front, int]]:
        """Let the oldest entries of all topics leave until ``wanted`` bytes have.

        Return the number of entries, and the newest entries that stayed only because they are the
        newest, each with its bytes. ``newest``: they may leave, too.
        """
        removed = 0
        heapq.heapify(fronts)
        stayed: dict[_Front, int] = {}
        while fronts and wanted > 0:
            count, size, stopped = await self._writer.run(
                partial(self._some, fronts, wanted, newest), frees_space=True
            )
            removed += count
            wanted -= size
            stayed |= stopped
            self._wake()
        return removed, stayed

    def _some(
        self, fronts: list[_Front], wanted: int, newest: bool, db: sqlite3.Connection
    ) -> tuple[int, int, dict[_Front, int]]:
        """Let some entries leave, the oldest first. Return their number and bytes.

        ``fronts``: a heap. The others: see ``_shed_oldest``.
        """
        end = time.monotonic() + TOGETHER_SECONDS
        removed = size = 0
        stayed: dict[_Front, int] = {}
        rest = fronts.copy()  # the call may be made again
        with transaction(db):
            while rest and size < wanted and time.monotonic() < end:
                oldest, log = heapq.heappop(rest)
                upto = max(oldest, rest[0][0]) if rest else MAX_STAMP
                topic = leaving.find_counted(db, log)
                if topic is None:
                    continue
                step = leaving.leave(db, topic, wanted - size, upto, self._present(), newest=newest)
                removed += step.removed
                size += step.size
                if step.held_by is None:
                    heapq.heappush(rest, (step.next_stamp or oldest, log))
                elif step.spare and step.next_stamp is not None:
                    stayed[step.next_stamp, log] = step.spare
        fronts[:] = rest
        return removed, size, stayed


def _count_together(logs: list[int], db: sqlite3.Connection) -> None:
    """Count some entries of these topics, the last ones first. Take finished ones out."""
    end = time.monotonic() + TOGETHER_SECONDS
    with transaction(db):
        while logs and time.monotonic() < end:
            topic = leaving.find_counted(db, logs[-1])
            if topic is None or topic.counted >= topic.head:
                logs.pop()


def _count_stored(db: sqlite3.Connection) -> bool:
    """Count the older stored messages of one pointer. Return whether there was one."""
    with transaction(db):
        found = db.execute(sql.STORED_TO_COUNT).fetchone()
        if found is not None:
            log, pointer, _ = found
            (size,) = db.execute(sql.OLD_STORED, found).fetchone()
            db.execute(sql.ADD_STORED, (size, log))
            db.execute(sql.STORED_COUNTED, (log, pointer))
    return found is not None


def _to_count(db: sqlite3.Connection) -> tuple[list[int], int]:
    """Return the topics with new entries, and the number of pointers with older messages."""
    logs = [log for (log,) in db.execute(sql.BEHIND)]
    return logs, db.execute(sql.LEFT_TO_COUNT).fetchone()[0]


class _Found(NamedTuple):
    """``behind``: bounded logs to count or to shrink. ``total``: of the row of all topics."""

    bounded: set[int]
    behind: list[int]
    total_max: int | None
    total: int


def _look(db: sqlite3.Connection) -> _Found:
    total, total_max, _ = db.execute(sql.TOTAL_ROW).fetchone()
    bounded = {log for (log,) in db.execute(sql.BOUND)} - {sql.TOTAL_LOG}
    behind = [log for (log,) in db.execute(sql.BOUND_BEHIND)] if bounded else []
    return _Found(bounded, behind, total_max, total)


def _total(db: sqlite3.Connection) -> int:
    size: int = db.execute(sql.TOTAL).fetchone()[0]
    return size


def bound_figures(db: sqlite3.Connection) -> tuple[int, int | None, int]:
    """Return the bytes of all topics, their bound, and the number of removed entries."""
    _, max_bytes, left = db.execute(sql.TOTAL_ROW).fetchone()
    return _total(db), max_bytes, left

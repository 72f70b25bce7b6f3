"""The task of the agent that holds the lease: fold the log into the states, trim a plain log, keep the collections."""

import asyncio
import logging
import random
import time
from collections import deque

from oplogd.errors import StoreError, StoreUnavailableError
from oplogd.event_id import Mark
from oplogd.store.mongo.bell import Bell, wait
from oplogd.store.mongo.connect import Link
from oplogd.store.mongo.errors import translating
from oplogd.store.mongo.fold import fold, forget_writers, raise_checkpoint
from oplogd.store.mongo.layout import LOG, mark_of
from oplogd.store.mongo.lease import Lease
from oplogd.store.mongo.log import RECENT_SECONDS, Log
from oplogd.store.mongo.setup import Setup

BATCH = 1_000
STALL_LEASES = 3
"""How many lease times the fold may stand still before its waiters give up."""

_LEAST_BATCH = 50
_IDLE_SECONDS = 0.1
_KEEP_SECONDS = 1.0
_KEEP_SHARE = 20
_RETRY_SECONDS = 0.5
_TRIM_SHARE = 20
"""A plain log is trimmed once about a twentieth of its cap was added."""

TRIM_SECONDS = 2 * RECENT_SECONDS
"""An entry of a plain log stays so long after it was folded. A writer takes its insert for late, and looks where it landed, if it
took RECENT_SECONDS: in less nothing that was put in its way may be gone."""

logger = logging.getLogger("oplogd.store")


class Projection:
    """``run`` for ever as a task; ``ready`` and ``trouble`` tell how it stands."""

    def __init__(self, link: Link, log: Log, setup: Setup, lease: Lease) -> None:
        self._link = link
        self._log = log
        self._setup = setup
        self._lease = lease
        self.ready = False
        """The log is set up: it can be read and written."""
        self.trouble: StoreError | None = None
        self.changed = Bell()
        """Rings when ``ready`` or ``trouble`` changed and when entries were folded here."""
        self._greeted = False
        self._keep_at = 0.0
        self._checkpoint: Mark | None = None
        self._first = 0
        self._trim_at = 0
        self._folded: deque[tuple[float, int]] = deque()
        """When the checkpoint was at which offset, in monotonic time: those of the last TRIM_SECONDS and one before."""
        self._batch = _LEAST_BATCH

    async def run(self) -> None:
        while True:
            try:
                with translating(self._link.where):
                    await self._turn()
                self._report(None)
                continue
            except StoreError as error:
                self._report(error)
            except Exception as error:  # whatever a document holds: it is put right in the database, not by a restart
                trouble = StoreUnavailableError(
                    f"MongoDB at {self._link.where}: its collections hold something that is not understood"
                    f" ({type(error).__name__}: {str(error)[:200]})"
                )
                if str(trouble) != str(self.trouble):
                    logger.error("%s", trouble, exc_info=error)
                self._report(trouble)
            self._lease.lose()
            self._checkpoint = None
            await asyncio.sleep(_RETRY_SECONDS * random.uniform(0.5, 1))

    async def _turn(self) -> None:
        if not self._greeted:
            await self._link.greet()
            self._greeted = True
        held = await self._lease.hold()
        if (
            self._lease.longest > self._lease.seconds
        ):  # whoever waits for the fold needs as much patience
            self._log.stall_seconds = max(
                self._log.stall_seconds, STALL_LEASES * self._lease.longest
            )
        if not held:
            self._checkpoint = None
            if not self.ready:
                self.ready = await self._setup.check()
                self.changed.ring()
            else:
                await self._watch()
            await asyncio.sleep(min(self._lease.seconds / 5, 0.5 if self.ready else 0.05))
            return
        await self._keep()
        heard = self._log.appended.listen()
        if not await self._fold() and self._checkpoint:
            followed = time.monotonic() < self._log.followed_until + _KEEP_SECONDS
            await wait(
                heard, min(_KEEP_SECONDS if followed else _IDLE_SECONDS, self._lease.seconds / 5)
            )

    async def _watch(self) -> None:
        """Not the holder: look now and again whether the collections still are what they must be."""
        began = time.monotonic()
        if began >= self._keep_at:
            await self._setup.check()
            await self._setup.look_for_strangers()
            self._keep_next(began)

    async def _keep(self) -> None:
        began = time.monotonic()
        if self._checkpoint is not None and began < self._keep_at:
            return
        await self._setup.keep(self._lease.hold)
        await self._setup.look_for_strangers()
        if self._checkpoint is None:
            await forget_writers(self._link)
            logger.info("this agent folds the log into the states now")
        row = await self._log.row()
        self._checkpoint, self._first = row.folded, row.first
        self._keep_next(began)
        if not self.ready:
            self.ready = True
            self.changed.ring()
        if not self._log.capped_bytes:
            await self._trim()

    def _keep_next(self, began: float) -> None:
        """A look at the collections that took long is not repeated soon: it may be the look that makes the server slow."""
        now = time.monotonic()
        self._keep_at = now + max(_KEEP_SECONDS, _KEEP_SHARE * (now - began))

    async def _fold(self) -> bool:
        """One batch; whether there was one."""
        checkpoint = self._checkpoint
        assert checkpoint is not None
        async with self._link.reading() as session:
            documents = await self._log.documents(checkpoint.offset, self._batch, session)
        if not documents:
            return False
        start = checkpoint.offset + 1
        if documents[0]["n"] != start:
            self._setup.lost(documents[0]["n"] - start)
        began = time.monotonic()
        if not await fold(self._link, documents, self._lease.hold):
            self._checkpoint = None
            return False
        # A batch that takes long would keep the lease busy; one that fails must not be tried at the same size for ever.
        took = time.monotonic() - began
        self._batch = (
            max(_LEAST_BATCH, self._batch // 2)
            if took > self._lease.seconds / 4
            else min(BATCH, 2 * self._batch)
        )
        if not self._lease.held or not await raise_checkpoint(
            self._link, documents, self._first, checkpoint.offset
        ):
            self._checkpoint = (
                None  # another one folds, or the log was set aside or restored: look again
            )
            return False
        self._checkpoint = mark_of(documents[-1])
        self._log.folded = self._checkpoint.offset
        self.changed.ring()
        if not self._log.capped_bytes and self._checkpoint.offset >= self._trim_at:
            await self._trim()
        return True

    async def _trim(self) -> None:
        """Delete the oldest entries of a plain log past its cap, but only those folded TRIM_SECONDS ago, and keep the last.

        By the mean size of all entries, so the cap is met on average.
        """
        checkpoint = self._checkpoint
        if checkpoint is None:
            return
        folded = self._long_folded(checkpoint.offset)
        cap = (await self._log.row()).max_bytes
        stats = await self._link.database.command("collStats", LOG)
        count, size = int(stats.get("count", 0)), int(stats.get("size", 0))
        if not count or not size:
            return
        mean = size / count
        self._trim_at = checkpoint.offset + max(1, int(cap / _TRIM_SHARE / mean))
        if size <= cap:
            return
        oldest = (await self._log.locate(0)).oldest
        if oldest is None:
            return
        upto = min(oldest.offset + int((size - cap) / mean), folded - 1)
        if upto >= oldest.offset:
            await self._link.log.delete_many({"n": {"$gt": 0, "$lte": upto}})
            # Entries of other programs leave with ours of the same time.
            first = await self._link.log.find_one({"n": {"$gt": upto}}, {"_id": 1}, sort=[("n", 1)])
            if first is not None:
                stray = {"n": None, "_id": {"$lt": first["_id"]}}
                gone = await self._link.log.find(stray, {"_id": 1}).limit(BATCH).to_list()
                if gone:
                    await self._link.log.delete_many(
                        {"n": None, "_id": {"$in": [each["_id"] for each in gone]}}
                    )

    def _long_folded(self, offset: int) -> int:
        """Note the checkpoint; where it was TRIM_SECONDS ago at the latest, 0 where that is not known."""
        now, times = time.monotonic(), self._folded
        if times and times[-1][1] > offset:  # it went back
            times.clear()
        if not times or times[-1][1] < offset:
            times.append((now, offset))
        while len(times) > 1 and times[1][0] <= now - TRIM_SECONDS:
            times.popleft()
        return times[0][1] if times[0][0] <= now - TRIM_SECONDS else 0

    def _report(self, trouble: StoreError | None) -> None:
        if trouble is not None and (self.trouble is None or str(trouble) != str(self.trouble)):
            logger.debug("the projection waits: %s", trouble)
        refused = trouble is not None and not isinstance(trouble, StoreUnavailableError)
        if refused:
            self.ready = False
        if trouble is not self.trouble:
            self.trouble = trouble
            self.changed.ring()

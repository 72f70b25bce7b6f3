"""The store that several agents share."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

from bson.datetime_ms import DatetimeMS
from pymongo.errors import PyMongoError
from pymongo.monitoring import CommandListener

from oplogd.clock import SYSTEM, Clock
from oplogd.clock.rule import lead
from oplogd.errors import StoreUnavailableError
from oplogd.model.event_id import Mark
from oplogd.store.base import StoreStats
from oplogd.store.cached_count import CachedCount
from oplogd.store.corrections import Correction, CorrectionResult
from oplogd.store.mongo.interface.pointers import MongoPointers
from oplogd.store.mongo.interface.topics import MongoTopics
from oplogd.store.mongo.interface.transactions import MongoTransactions
from oplogd.store.mongo.link.errors import translating
from oplogd.store.mongo.link.layout import LOG
from oplogd.store.mongo.link.lease import FoldLease, older_holds
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.notifier import wait
from oplogd.store.mongo.link.timing import DEFAULT_TIMING, Timing
from oplogd.store.mongo.log.batch import BatchAppender
from oplogd.store.mongo.log.checkpoint import CheckpointWaiter
from oplogd.store.mongo.log.conditional import ConditionalAppender
from oplogd.store.mongo.log.corrections import CorrectionGuard
from oplogd.store.mongo.log.log import LOST_STATES, Log, LogRow
from oplogd.store.mongo.log.room import LogRoom
from oplogd.store.mongo.log.tail import Tail
from oplogd.store.mongo.reading.consumers import MongoConsumers
from oplogd.store.mongo.reading.leases import MongoLeases
from oplogd.store.mongo.reading.objects import MongoObjects
from oplogd.store.mongo.reading.topic_log import guarded
from oplogd.store.mongo.setup.setup import DEFAULT_CAP_BYTES, CollectionKind, Setup
from oplogd.store.mongo.states.pages import StatePages
from oplogd.store.mongo.states.projection import Projection
from oplogd.store.mongo.transactions.operations import OperationAppender
from oplogd.store.mongo.transactions.payloads import Payloads

LEASE_SECONDS = 5.0

# How long a start waits for the server: longer than it takes to find it unreachable.
_OPEN_SECONDS = 5.0

_ASK_SECONDS = 0.03

_PURGE_BATCH = 1_000

logger = logging.getLogger("oplogd.store")


class MongoStore:
    """See ``Store``. ``url`` names the database; without a name it is ``oplog``.

    ``collection`` None takes the log as it is, or creates a capped one. ``max_bytes``: the log's
    cap. ``new_bytes``: the cap of a log created now. ``topic_ttl``: time to live in seconds of
    topics without one. ``topics_max_bytes``: bound of all topics together, 0 for none. None keeps
    the values in the store. ``lease``: seconds of silence after which another agent folds.
    ``clock``: the agent's. ``timing`` and ``event_listeners`` (PyMongo's) are for tests. The
    attributes are the store's parts. The constructor makes no connection; it raises StoreError.
    """

    kind = "mongodb"
    space = None

    def __init__(
        self,
        url: str,
        *,
        collection: CollectionKind | None = "capped",
        max_bytes: int | None = None,
        new_bytes: int = DEFAULT_CAP_BYTES,
        topic_ttl: int | None = None,
        topics_max_bytes: int | None = None,
        lease: float = LEASE_SECONDS,
        clock: Clock = SYSTEM,
        timing: Timing = DEFAULT_TIMING,
        event_listeners: Sequence[CommandListener] = (),
    ) -> None:
        self.link = Link(url, event_listeners=event_listeners, clock=clock, timing=timing)
        self.clock = self.link.guarded
        self.log = Log(self.link)
        self.lease = FoldLease(self.link.meta, lease, timing.stall_seconds, clock.monotonic)
        self.topics = MongoTopics(self.link, self.lease, topic_ttl, self._working, topics_max_bytes)
        self.setup = Setup(self.link, self.log, collection, max_bytes, new_bytes, self.topics.setup)
        self.tail = Tail(self.link, self.log)
        self.projection = Projection(self.link, self.log, self.setup, self.lease, self.tail)
        self.room = LogRoom(self.link, self.log, self.lease)
        self.appender = ConditionalAppender(self.link, self.log, self.room)
        self.batches = BatchAppender(self.link, self.log, self.appender)
        self.guard = CorrectionGuard(self.link, self.log, self.appender)
        payloads = Payloads(self.link)
        operations = OperationAppender(self.link, self.log, self.appender, payloads)
        self.transactions = MongoTransactions(
            self.link, self.lease, self.topics, payloads, operations, self._working
        )
        self.pointers = MongoPointers(self.link, self.lease, self.topics, self._working)
        self.leases = MongoLeases(self.link, self._working, self.transactions.decider.end_terms)
        self.consumers = MongoConsumers(self.link, self._working)
        self._checkpoint = CheckpointWaiter(
            self.link, self.log, self.lease, self.projection.changed
        )
        self.objects = MongoObjects(self.link, self._working)
        pages = StatePages(self.link)
        self._deleted = CachedCount(pages.count_deleted)
        self.append = guarded(self._working, self.batches.append)
        self.append_fenced = guarded(self._working, self.batches.append_fenced)
        self.follow = guarded(self._working, self.tail.follow)
        self.read = guarded(self._working, self.log.read)
        self.locate = guarded(self._working, self.log.locate)
        self.seek = guarded(self._working, self.log.seek)
        self.states = guarded(self._working, pages.page)
        self.keep_clock = guarded(self._working, self.link.keep_clock)

    @property
    def identity(self) -> str | None:
        return self.setup.identity

    @property
    def secret(self) -> bytes | None:
        return self.setup.secret

    async def open(self) -> None:
        """Wait until the log is set up, at most five seconds; then continue in the background.

        Raises StoreError if the collections are not of the wanted kind.
        """
        self.projection.start()
        deadline = self.link.clock.monotonic() + _OPEN_SECONDS
        while not self.projection.ready and (left := deadline - self.link.clock.monotonic()) > 0:
            changed = self.projection.changed.listen()
            trouble = self.projection.trouble
            if trouble is not None and not isinstance(trouble, StoreUnavailableError):
                await self.close()
                raise trouble
            await wait(changed, left)
        if not self.projection.ready:
            logger.error(
                "%s; the agent starts without it",
                self.projection.trouble or "the log is being set up",
            )

    async def close(self) -> None:
        self._checkpoint.close()
        await self._deleted.close()
        await self.projection.stop()
        # The cursor and the lease end by themselves if the server is unreachable.
        with contextlib.suppress(PyMongoError, TimeoutError):
            async with asyncio.timeout(2):
                await self.tail.close()
                await self.lease.release()
        await self.link.close()

    async def correct(self, corrections: Sequence[Correction]) -> list[CorrectionResult]:
        """Return when the states hold the corrections. If no agent runs, this store folds them."""
        async with self._working():
            results, upto = await self.guard.correct(corrections)
            await self._checkpoint.reached(upto)
        return results

    async def checkpoint(self) -> Mark:
        async with self._working():
            row = await self._all_folded()
            if row.has_lost_states:
                raise StoreUnavailableError(f"MongoDB at {self.link.hosts}: {LOST_STATES}")
            return row.folded

    async def settle(self) -> None:
        """Do ``checkpoint``, but accept lost states: for a tool that replaces them."""
        async with self._working():
            await self._all_folded()

    async def ahead_ms(self) -> int:
        async with self._working():
            newest = max((await self.log.locate()).head.ms, await self.topics.ahead.newest_ms())
            return lead(newest, await self.link.now_ms())

    async def stats(self) -> StoreStats:
        async with self._working():
            bounds = await self.log.locate()
            row = await self.log.row()
            states = await self.link.states.estimated_document_count()
            deleted = await self._deleted.value()
            log: dict[str, Any] = await self.link.database.command("collStats", LOG)
        head, oldest = bounds.head, bounds.oldest
        older = self.lease.older_holder
        warnings = (self.link.damage.warning, None if older is None else older_holds(older))
        return StoreStats(
            operations=head.offset - oldest.offset + 1 if oldest else 0,
            states=states,
            bytes=int(log.get("size", 0)) if oldest else 0,
            max_bytes=self.log.known.capped_bytes or row.max_bytes,
            oldest=oldest,
            newest=head if oldest else None,
            lag=max(0, head.offset - row.folded.offset),
            deleted=None if deleted is None else min(deleted, states),
            warnings=(*self.setup.warnings.values(), *filter(None, warnings)),
        )

    async def purge(self, before_ms: int) -> int:
        """Only the agent that folds does it. Young tombstones stay: see ``Timing.purge_leases``."""
        async with self._working():
            stay_ms = int(1_000 * self.link.timing.purge_leases * self.lease.seconds)
            before_ms = min(before_ms, await self.link.before_ms(stay_ms))
            old = {"event": "delete", "ts": {"$lt": DatetimeMS(before_ms)}}
            states = self.link.states
            if not self.lease.held or await states.find_one(old, {"_id": 1}) is None:
                return 0
            await self.link.meta.update_one({"_id": LOG}, {"$max": {"purged": before_ms}})
            count = 0
            while found := await states.find(old, {"_id": 1}).limit(_PURGE_BATCH).to_list():
                chosen = {**old, "_id": {"$in": [each["_id"] for each in found]}}
                count += (await states.delete_many(chosen)).deleted_count
            return count

    async def new_epoch(self) -> None:
        """The agent with the lease carries it out."""
        await self.settle()
        async with self._working():
            await self.link.now_ms()
            self.clock.trust()  # whoever repairs a store says that the clock is right
            await self.setup.new_epoch(await self.link.now_ms())
            give_up_at = self.link.clock.monotonic() + self.lease.stall_seconds
            while await self.setup.is_under_repair():
                trouble = self.projection.trouble
                if trouble is not None and self.link.clock.monotonic() > give_up_at:
                    raise trouble
                await wait(self.projection.changed.listen(), _ASK_SECONDS)
            await self.topics.ahead.repair()
            await self.link.keep_clock()

    async def _all_folded(self) -> LogRow:
        """Wait until the states hold every entry of the log. Return the row read then."""
        return await self._checkpoint.reached((await self.log.locate()).head.offset)

    @contextlib.asynccontextmanager
    async def _working(self) -> AsyncIterator[None]:
        """Raise StoreUnavailableError while the log is not set up, and for PyMongo's errors."""
        if self.projection.is_dead:
            raise StoreUnavailableError("the fold has died; restart the agent")
        if not self.projection.ready:
            trouble = self.projection.trouble
            raise StoreUnavailableError(
                str(trouble or f"MongoDB at {self.link.hosts}: the log is being set up")
            )
        with translating(self.link.hosts):
            yield

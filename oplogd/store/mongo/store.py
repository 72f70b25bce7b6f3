"""The store that several agents share."""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pymongo
from bson.datetime_ms import DatetimeMS
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import OperationFailure, PyMongoError

from oplogd.errors import StoreError, StoreUnavailableError
from oplogd.event_id import Mark
from oplogd.operation import Operation
from oplogd.store.base import (
    BatchId,
    Correction,
    CorrectionResult,
    Entry,
    LogBounds,
    State,
    StateCursor,
    StatesPage,
    StoreStats,
)
from oplogd.store.cached_count import CachedCount
from oplogd.store.mongo.append import Appender
from oplogd.store.mongo.bell import wait
from oplogd.store.mongo.checkpoint import Checkpoint
from oplogd.store.mongo.connect import Link
from oplogd.store.mongo.errors import translating
from oplogd.store.mongo.follow import Tail
from oplogd.store.mongo.guard import Guard
from oplogd.store.mongo.layout import (
    LIVE_STATES_ORDER,
    LOG,
    STATES,
    STATES_ORDER,
    state,
    states_past,
)
from oplogd.store.mongo.lease import Lease
from oplogd.store.mongo.log import LOST_STATES, READ_CHARACTERS, BatchSize, Log, Row
from oplogd.store.mongo.projection import STALL_LEASES, Projection
from oplogd.store.mongo.setup import DEFAULT_CAP_BYTES, CollectionKind, Setup

LEASE_SECONDS = 5.0
_OPEN_SECONDS = 5.0
"""How long a start waits for the server; longer than it takes to find out that it is away."""

PURGE_LEASES = 10
"""How many lease times a deleted state stays at least: a late holder of the lease could make it anew."""

_STALLED_SECONDS = 15.0
_ASK_SECONDS = 0.03
_COUNT_SECONDS = 60.0
"""How long the server may count deleted states, in the background."""

_PURGE_BATCH = 1_000

logger = logging.getLogger("oplogd.store")


class MongoStore:
    """``url`` names the database, else it is ``oplog``.

    ``collection`` None takes the log as it is, or makes a capped one. ``max_bytes``: the log's cap; None keeps the log's
    own. ``new_bytes``: the cap where the log is created now. ``lease``: after how many seconds of silence another agent
    goes on folding. The constructor raises StoreError.
    """

    kind = "mongodb"

    def __init__(
        self,
        url: str,
        *,
        collection: CollectionKind | None = "capped",
        max_bytes: int | None = None,
        new_bytes: int = DEFAULT_CAP_BYTES,
        lease: float = LEASE_SECONDS,
    ) -> None:
        self._link = Link(url)
        self._log = Log(self._link)
        self._setup = Setup(self._link, self._log, collection, max_bytes, new_bytes)
        self._lease = Lease(self._link, lease)
        self._log.stall_seconds = max(_STALLED_SECONDS, STALL_LEASES * lease)
        self._projection = Projection(self._link, self._log, self._setup, self._lease)
        self._checkpoint = Checkpoint(self._link, self._log, self._projection.changed)
        self._tail = Tail(self._link, self._log)
        self._appender = Appender(self._link, self._log)
        self._guard = Guard(self._link, self._log, self._appender)
        self._states_size = BatchSize()
        self._deleted = CachedCount(self._count_deleted)
        self._task: asyncio.Task[None] | None = None
        self._writer = secrets.token_hex(8)
        self._sequence = 0

    async def open(self) -> None:
        """Raises StoreError if the collections are not of the wanted kind. Goes on in the background if it takes long."""
        self._task = asyncio.create_task(self._projection.run(), name="projection")
        self._task.add_done_callback(_tell_death)
        deadline = time.monotonic() + _OPEN_SECONDS
        while not self._projection.ready and (left := deadline - time.monotonic()) > 0:
            changed = self._projection.changed.listen()
            trouble = self._projection.trouble
            if trouble is not None and not isinstance(trouble, StoreUnavailableError):
                await self.close()
                raise trouble
            await wait(changed, left)
        if not self._projection.ready:
            logger.error(
                "%s; the agent starts without it",
                self._projection.trouble or "the log is being set up",
            )

    async def close(self) -> None:
        self._checkpoint.close()
        await self._deleted.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        with contextlib.suppress(PyMongoError, TimeoutError):
            async with asyncio.timeout(2):
                await self._tail.close()
                await self._lease.release()
        await self._link.close()

    async def append(
        self, operations: Sequence[Operation], batch_id: BatchId | None = None
    ) -> None:
        if not operations:
            return
        if batch_id is None:
            batch_id = BatchId(self._writer, self._sequence)
            self._sequence += len(operations)
        async with self._working():
            await self._appender.append(operations, batch_id)

    async def correct(self, corrections: Sequence[Correction]) -> list[CorrectionResult]:
        """See ``Corrector``. What is appended is in the states when it returns, folded here where no agent runs."""
        async with self._working():
            verdicts, last = await self._guard.correct(corrections)
            await self._folded(last)
        return verdicts

    async def follow(
        self, after: int, limit: int, seconds: float, at_ms: int | None = None
    ) -> list[Entry]:
        async with self._working():
            return await self._tail.follow(after, limit, seconds, at_ms)

    async def read(self, after: int, limit: int, at_ms: int | None = None) -> list[Entry]:
        async with self._working():
            return await self._log.read(after, limit, at_ms)

    async def locate(self, offset: int = 0) -> LogBounds:
        async with self._working():
            return await self._log.locate(offset)

    async def checkpoint(self) -> Mark:
        async with self._working():
            row = await self._folded((await self._log.locate(0)).head.offset)
            if row.has_lost_states:
                raise StoreUnavailableError(f"MongoDB at {self._link.where}: {LOST_STATES}")
            return row.folded

    async def settle(self) -> None:
        """As ``checkpoint``, also where states are lost: for a tool that replaces them."""
        async with self._working():
            await self._folded((await self._log.locate(0)).head.offset)

    async def states(
        self, start: StateCursor, upto: int, limit: int, *, live_only: bool
    ) -> StatesPage:
        async with self._working(), self._link.reading() as session:
            if live_only:
                with contextlib.suppress(
                    OperationFailure
                ):  # until the agent that folds has made this index
                    return await self._page(
                        start, upto, live_only, limit, LIVE_STATES_ORDER, session
                    )
            return await self._page(start, upto, live_only, limit, STATES_ORDER, session)

    async def _page(
        self,
        start: StateCursor,
        upto: int,
        live_only: bool,
        limit: int,
        index: list[tuple[str, int]],
        session: AsyncClientSession | None,
    ) -> StatesPage:
        """The hint refuses a collection that was dropped and filled again by the fold: it has no index."""
        found: list[State] = []
        size = 0
        for chosen in states_past(start, upto, live_only):
            cursor = self._link.states.find(chosen, session=session).sort(STATES_ORDER).hint(index)
            left = limit - len(found)
            async with cursor.limit(left).batch_size(
                self._states_size.documents(left, READ_CHARACTERS - size)
            ):
                async for document in cursor:
                    found.append(state(document, self._link.damage))
                    size += len(found[-1].data)
                    if size > READ_CHARACTERS:
                        break
            if len(found) == limit or size > READ_CHARACTERS:
                break
        self._states_size.saw(size, len(found))
        is_full = len(found) == limit or size > READ_CHARACTERS
        if not is_full and upto:
            await self._check_states(session)
        return StatesPage(found, found[-1].cursor if is_full else None)

    async def _check_states(self, session: AsyncClientSession | None) -> None:
        """Raise StoreUnavailableError where the states were dropped: a copy of what is left would not be whole."""
        if len(await self._link.states.index_information(session=session)) < 2:
            raise StoreUnavailableError(
                f"MongoDB at {self._link.where}: the collection {STATES} was dropped; the agent that folds looks after it"
            )

    async def stats(self) -> StoreStats:
        async with self._working():
            located = await self._log.locate(0)
            row = await self._log.row()
            states = await self._link.states.estimated_document_count()
            deleted = await self._deleted.value()
            log: dict[str, Any] = await self._link.database.command("collStats", LOG)
        head, oldest = located.head, located.oldest
        return StoreStats(
            operations=head.offset - oldest.offset + 1 if oldest else 0,
            states=states,
            bytes=int(log.get("size", 0)) if oldest else 0,
            max_bytes=self._log.capped_bytes or row.max_bytes,
            oldest=oldest,
            newest=head if oldest else None,
            lag=max(0, head.offset - row.folded.offset),
            deleted=None if deleted is None else min(deleted, states),
            warnings=(*self._setup.warnings.values(), *filter(None, [self._link.damage.warning])),
        )

    async def purge(self, before_ms: int) -> int:
        """Only the agent that folds does it. Deleted states younger than PURGE_LEASES lease times stay."""
        async with self._working():
            before_ms = min(
                before_ms,
                await self._link.now_ms() - int(1_000 * PURGE_LEASES * self._lease.seconds),
            )
            old = {"event": "delete", "ts": {"$lt": DatetimeMS(before_ms)}}
            if not self._lease.held or await self._link.states.find_one(old, {"_id": 1}) is None:
                return 0
            await self._link.meta.update_one({"_id": LOG}, {"$max": {"purged": before_ms}})
            count = 0
            while (
                found := await self._link.states.find(old, {"_id": 1}).limit(_PURGE_BATCH).to_list()
            ):
                chosen = {**old, "_id": {"$in": [each["_id"] for each in found]}}
                count += (await self._link.states.delete_many(chosen)).deleted_count
            return count

    async def new_epoch(self) -> None:
        """The agent that holds the lease carries it out."""
        await self.settle()
        async with self._working():
            await self._setup.new_epoch(await self._link.now_ms())
            give_up_at = time.monotonic() + self._log.stall_seconds
            while await self._setup.is_under_repair():
                trouble = self._projection.trouble
                if trouble is not None and time.monotonic() > give_up_at:
                    raise trouble
                await wait(self._projection.changed.listen(), _ASK_SECONDS)

    async def _count_deleted(self) -> tuple[int | None, float]:
        """The deleted states, None if the server cannot tell in time, and the seconds that this took."""
        started = time.monotonic()
        count: int | None = None
        with contextlib.suppress(PyMongoError), pymongo.timeout(_COUNT_SECONDS):
            count = await self._link.states.count_documents({"event": "delete"})
        return count, time.monotonic() - started

    async def _folded(self, upto: int) -> Row:
        """Wait until the states hold the log up to an offset; the row that says so."""
        return await self._checkpoint.reached(upto, self._log.stall_seconds)

    @contextlib.asynccontextmanager
    async def _working(self) -> AsyncIterator[None]:
        """Raises StoreUnavailableError while the log is not set up, and for what PyMongo raises inside."""
        if self._task is not None and self._task.done():
            raise StoreUnavailableError("the projection has died; restart the agent")
        if not self._projection.ready:
            trouble: StoreError | None = self._projection.trouble
            raise StoreUnavailableError(
                str(trouble or f"MongoDB at {self._link.where}: the log is being set up")
            )
        with translating(self._link.where):
            yield


def _tell_death(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.critical("the projection has died: %r", error, exc_info=error)

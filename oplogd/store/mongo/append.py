"""The conditional append: whatever is written to the log goes this way.

    loop:  head := the newest entry that a majority has
           judge which operations may go in behind it
           insert these at exactly head + 1, in order
           duplicate key → loop

Whatever changes the judgement is itself an entry, and takes head + 1. So the unique index on the offset tells when the judgement is
out of date, and nothing is numbered again without being judged again. The order matters: an operation that was judged before the
head was read may have gone in between, and be doubled; a head that no majority has may be gone after a fail-over, and leave a hole.

An insert that takes long may be carried out after the log was trimmed past its place: then it meets no duplicate key, and stands
where nobody reads. So a late one counts only where the checkpoint shows that it is folded or will be.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from pymongo.errors import BulkWriteError

from oplogd.errors import StoreUnavailableError
from oplogd.event_id import Mark
from oplogd.operation import Operation
from oplogd.store.base import BatchId
from oplogd.store.mongo.connect import Link
from oplogd.store.mongo.errors import DUPLICATE_KEY
from oplogd.store.mongo.layout import ENTRY_OVERHEAD, LOG, entry_document, entry_id
from oplogd.store.mongo.log import RECENT_SECONDS, Head, Log, boot_seconds, server_seconds

RECENT_SERVER_SECONDS = 3
"""As RECENT_SECONDS by the cluster's clock, for a machine whose own clock stood still. It moves with writes only, such as the
renewals of the lease, and is told in whole seconds."""

_JITTER_SECONDS = 0.02
_LAG_JITTER_SECONDS = 0.5
_LANDING_SECONDS = 5.0
_ROOM_SECONDS = 0.05
_MOST_STRAYS = 3
"""A writer that inserts behind the log so often in a row was not late: the log does not fit its checkpoint."""

Numbered = tuple[int, Operation]
"""An operation and its number: among the writer's own, or among the corrections."""


class Batch(Protocol):
    """Operations that go in under one condition, and which of them are still to do."""

    todo: list[Numbered]

    @property
    def writer(self) -> str | None:
        """The token by which they are recognised; None: by none."""

    async def head(self) -> Head:
        """Where to go on. A majority has it, and every entry before it is known to ``judge``."""

    async def judge(self, head: Head, chunk: Sequence[Numbered]) -> list[Numbered]:
        """Those of the chunk that may go in behind ``head``. Strikes off ``todo`` what may not, or is in already."""

    async def standing(self, landed: Sequence[Numbered], first: int) -> list[Numbered]:
        """Those of the operations inserted late from offset ``first`` on that are folded or will be."""

    def landed(self, landed: Sequence[Numbered], head: Head | None, is_beaten: bool) -> None:
        """Strike these off ``todo``. ``head``: the last of them, None where the log must be looked at anew.

        ``is_beaten``: another entry was in the way of the next.
        """


class Landing(NamedTuple):
    """How many operations were inserted, the last one's place, and whether that took long."""

    number: int
    head: Head
    is_late: bool


class _Obstacle:
    """The last entry that was in the way. The primary has it; a majority, by which heads are read, may not have it yet."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._place = 0
        self._lags_since: float | None = None
        self._pause = _JITTER_SECONDS

    async def met(self, place: int) -> None:
        self._place = place
        await asyncio.sleep(random.uniform(0, self._pause))

    def compare(self, head: int) -> None:
        if head >= self._place:
            self._lags_since, self._pause = None, _JITTER_SECONDS
            return
        now = time.monotonic()
        self._lags_since = self._lags_since or now
        self._pause = min(2 * self._pause, _LAG_JITTER_SECONDS)
        if now - self._lags_since > _LANDING_SECONDS:
            raise StoreUnavailableError(
                f"MongoDB at {self._where}: no majority of the replica set has what its primary wrote"
            )


class Appender:
    """Methods raise PyMongo's errors; what is wrong with the log itself is a StoreUnavailableError."""

    def __init__(self, link: Link, log: Log) -> None:
        self._link = link
        self._log = log
        self._entry_bytes = 2.0 * ENTRY_OVERHEAD
        """The mean size of the entries written here: up at once, down slowly, so that there is rather too much room."""
        self._landed: dict[str, int] = {}
        """The last operation in the log of each writer that is not in doubt."""

    async def append(self, operations: Sequence[Operation], batch_id: BatchId) -> None:
        """Put in what of these is not in the log yet, by the writer's token and number."""
        batch = _Stamped(
            self._link, self._log, operations, batch_id, self._landed.pop(batch_id.writer, None)
        )
        await self.put(batch)  # raises: in doubt, what landed is looked up when this is tried again
        if batch.last is not None:
            self._landed[batch_id.writer] = batch.last

    async def put(self, batch: Batch) -> None:
        """Append all of a batch that its condition lets in. Raises StoreUnavailableError after some seconds without a majority."""
        obstacle = _Obstacle(self._link.where)
        strays = 0
        while batch.todo:
            chunk = await self.chunk(batch.todo)
            head = await batch.head()
            obstacle.compare(head.mark.offset)
            accepted = await batch.judge(head, chunk)
            if not accepted:
                continue
            landing = await self.insert(head, accepted, batch.writer)
            is_beaten = landing.number < len(accepted)
            landed = standing = accepted[: landing.number]
            if landed and landing.is_late:
                standing = await batch.standing(landed, head.mark.offset + 1)
            if len(standing) < len(landed):
                await self._remove_strays(head.mark, landed, standing, landing.head.mark)
                batch.landed(standing, None, is_beaten)
                strays += 1
                if strays == _MOST_STRAYS:
                    raise StoreUnavailableError(
                        f"MongoDB at {self._link.where}: the log ends with offset {head.mark.offset}, before the checkpoint in"
                        " oplog_meta; were they restored from different times?"
                    )
                continue
            if landed:
                strays = 0
                self._log.saw(landing.head.mark)
                self._log.appended.ring()
            batch.landed(landed, landing.head, is_beaten)
            if is_beaten:
                await obstacle.met(head.mark.offset + landing.number + 1)

    async def chunk(self, todo: list[Numbered]) -> list[Numbered]:
        """As many as make a tenth of the cap, once there is room for them: no entry may leave the log unfolded.

        A plain log has no such bound: it is trimmed behind the checkpoint only.
        """
        log = self._log
        if not log.capped_bytes:
            return todo[: self._link.inserts_per_command]
        most = max(log.capped_bytes // 10, 1)
        size = count = 0
        for _, operation in todo[: self._link.inserts_per_command]:
            size += len(operation.data) + len(operation.key) + ENTRY_OVERHEAD
            if count and size > most:
                break
            count += 1
        mean = size / count
        self._entry_bytes = max(mean, self._entry_bytes + (mean - self._entry_bytes) / 8)
        if self._is_crowded():
            await self._wait_for_room()
        return todo[:count]

    async def _wait_for_room(self) -> None:
        """Raise StoreUnavailableError if the fold stands still meanwhile."""
        log = self._log
        await log.newest()  # the head seen here may be of a log that is gone
        await log.row()
        folded, moved = log.folded, time.monotonic()
        while self._is_crowded():
            await asyncio.sleep(_ROOM_SECONDS)
            await log.row()
            now = time.monotonic()
            if log.folded != folded:
                folded, moved = log.folded, now
            elif now - moved > log.stall_seconds:
                raise StoreUnavailableError(
                    f"MongoDB at {self._link.where}: no agent folds the log (offset {folded} of {log.head.offset}), and"
                    " what is not folded fills half of its cap; is the agent that holds the lease stuck?"
                )

    def _is_crowded(self) -> bool:
        return (
            self._log.head.offset - self._log.folded
        ) * self._entry_bytes > self._log.capped_bytes / 2

    async def insert(self, head: Head, chunk: Sequence[Numbered], writer: str | None) -> Landing:
        """Number a chunk from ``head`` on and insert it, up to where another entry is in the way. A majority has what landed."""
        now = max(await self._link.now_ms(), head.mark.ms)
        marks = [Mark(head.mark.offset + number, now) for number in range(1, len(chunk) + 1)]
        documents = [
            entry_document(operation, mark, writer, sequence)
            for mark, (sequence, operation) in zip(marks, chunk, strict=True)
        ]
        count = len(documents)
        began = boot_seconds()
        session = self._link.session()
        try:
            await self._link.log.insert_many(documents, ordered=True, session=session)
        except BulkWriteError as error:
            errors: list[dict[str, Any]] = error.details["writeErrors"]
            if (
                not errors
                or errors[0]["code"] != DUPLICATE_KEY
                or error.details["writeConcernErrors"]
            ):
                raise
            count = int(errors[0]["index"])  # nInserted is not to be trusted
        finally:
            server_at = server_seconds(session)
            if session:
                await session.end_session()
        is_late = (
            boot_seconds() - head.asked_at > RECENT_SECONDS or head.mark.offset < self._log.folded
        )
        if server_at is not None and head.server_seconds is not None:
            is_late |= server_at - head.server_seconds > RECENT_SERVER_SECONDS
        if not count:
            return Landing(0, head, is_late)
        return Landing(count, Head(marks[count - 1], began, server_at), is_late)

    async def _remove_strays(
        self, head: Mark, inserted: Sequence[Numbered], standing: Sequence[Numbered], last: Mark
    ) -> None:
        """Delete what was inserted behind a plain log, as the gap between it and the log shows. A capped one drops it in time."""
        if self._log.capped_bytes or await self._log.has(last.offset + 1):
            return
        numbers = {number for number, _ in standing}
        places = [
            place
            for place, (number, _) in enumerate(inserted, head.offset + 1)
            if number not in numbers
        ]
        await self._link.log.delete_many(
            {"_id": {"$in": [entry_id(Mark(place, last.ms)) for place in places]}}
        )


class _Stamped:
    """Operations with a batch id: each goes in unless it is in already. ``last``: the writer's last one in the log; None: in doubt."""

    def __init__(
        self,
        link: Link,
        log: Log,
        operations: Sequence[Operation],
        batch_id: BatchId,
        last: int | None,
    ) -> None:
        self._link = link
        self._log = log
        self._writer = batch_id.writer
        self.todo = list(enumerate(operations, batch_id.sequence))
        self.last = last
        self._known: Mark | None = None
        """Up to here the log was searched for the writer's operations."""
        if last is not None:
            self._strike(last)

    @property
    def writer(self) -> str:
        return self._writer

    async def head(self) -> Head:
        return await self._log.newest(self._known)

    async def judge(self, head: Head, chunk: Sequence[Numbered]) -> list[Numbered]:
        if self._known is not None and self.last is not None:
            passed = head.last_of(self._writer, self._known.offset)
            self.last = None if passed is None else max(self.last, passed)
        if self.last is None:
            self.last = await self._last_of()
        self._known = None
        self._strike(self.last)
        return [each for each in chunk if each[0] > self.last]

    async def standing(self, landed: Sequence[Numbered], first: int) -> list[Numbered]:
        row = await self._link.meta.find_one({"_id": LOG}, {"n": 1, f"writers.{self._writer}": 1})
        if row is None:
            raise StoreUnavailableError(f"MongoDB at {self._link.where}: the log's row is gone")
        known: list[int] = row.get("writers", {}).get(self._writer, [-1])
        return [
            each
            for place, each in enumerate(landed, first)
            if place > row["n"] or each[0] <= known[0]
        ]

    def landed(self, landed: Sequence[Numbered], head: Head | None, is_beaten: bool) -> None:
        if head is None:
            self.last = None
            return
        if landed:
            self.last = landed[-1][0]
            self._strike(self.last)
        if is_beaten:
            self._known = head.mark

    def _strike(self, last: int) -> None:
        self.todo = [each for each in self.todo if each[0] > last]

    async def _last_of(self) -> int:
        """The last of the writer's operations in the log or, as the row remembers, folded; -1 if there is none."""
        async with self._link.reading() as session:
            folded = (await self._log.row(session)).folded.offset
            mine = {"n": {"$gt": folded}, "w": self._writer}
            last = await self._link.log.find_one(mine, {"s": 1}, sort=[("n", -1)], session=session)
            if last is not None:
                return int(last["s"])
            # Folded and trimmed meanwhile, or before: the row is read after the log, so it knows.
            row = await self._link.meta.find_one(
                {"_id": LOG}, {f"writers.{self._writer}": 1}, session=session
            )
            known: list[int] = (row or {}).get("writers", {}).get(self._writer, [-1])
            return int(known[0])

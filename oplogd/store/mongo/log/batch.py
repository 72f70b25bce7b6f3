"""Appending the batches of producers: each operation once, however often its batch is tried."""

from collections.abc import Sequence

from pymongo.asynchronous.client_session import AsyncClientSession

from oplogd.errors import StoreUnavailableError
from oplogd.model.event_id import Mark
from oplogd.model.operation import Operation
from oplogd.store.base import BatchId
from oplogd.store.mongo.link.layout import LOG, Numbered
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.log.conditional import ConditionalAppender
from oplogd.store.mongo.log.head import Head
from oplogd.store.mongo.log.log import Log


class BatchAppender:
    """Methods raise PyMongo's errors, and StoreUnavailableError for a log that cannot be used."""

    def __init__(self, link: Link, log: Log, appender: ConditionalAppender) -> None:
        self._link = link
        self._log = log
        self._appender = appender
        # Largest sequence in the log of each writer that is not in doubt.
        self._last: dict[str, int] = {}

    async def append(self, operations: Sequence[Operation], batch_id: BatchId) -> None:
        """Append the operations that are not in the log yet, by the writer's token and sequence."""
        last = self._last.pop(batch_id.writer, None)
        batch = WriterBatch(self._link, self._log, operations, batch_id, last)
        # If this raises, the writer is in doubt: the next try looks up which operations landed.
        await self._appender.append(batch)
        if batch.last is not None:
            self._last[batch_id.writer] = batch.last


class WriterBatch:
    """A ``ConditionalBatch`` whose condition is that an operation is not in the log yet.

    ``last``: the writer's largest sequence in the log; None: in doubt.
    """

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
        self.todo: list[Numbered] = list(enumerate(operations, batch_id.sequence))
        self.last = last
        # The log was searched for the writer's operations up to here.
        self._known: Mark | None = None
        if last is not None:
            self._remove(last)

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
            self.last = await self._look_up_last()
        self._known = None
        self._remove(self.last)
        return [each for each in chunk if each[0] > self.last]

    async def standing(self, landed: Sequence[Numbered], first: int) -> list[Numbered]:
        folded, last = await self._folded()
        return [
            each for offset, each in enumerate(landed, first) if offset > folded or each[0] <= last
        ]

    def landed(self, landed: Sequence[Numbered], head: Head | None, *, is_beaten: bool) -> None:
        if head is None:
            self.last = None
            return
        if landed:
            self.last = landed[-1][0]
            self._remove(self.last)
        if is_beaten:
            self._known = head.mark

    def _remove(self, last: int) -> None:
        self.todo = [each for each in self.todo if each[0] > last]

    async def _look_up_last(self) -> int:
        """Return the writer's largest sequence in the log or in the checkpoint; -1 if none."""
        async with self._link.reading() as session:
            folded = (await self._log.row(session)).folded.offset
            unfolded = {"n": {"$gt": folded}, "w": self._writer}
            last = await self._link.log.find_one(
                unfolded, {"n": 1, "s": 1}, sort=[("n", -1)], session=session
            )
            folded, known = await self._folded(session)
        # The log may have been trimmed meanwhile. Then an entry before the checkpoint may be a
        # stray, and the checkpoint, read after the log, knows all others.
        return int(last["s"]) if last and last["n"] > folded else known

    async def _folded(self, session: AsyncClientSession | None = None) -> tuple[int, int]:
        """Return the checkpoint's offset, and the writer's largest folded sequence; -1 if none."""
        row = await self._link.meta.find_one(
            {"_id": LOG}, {"n": 1, f"writers.{self._writer}": 1}, session=session
        )
        if row is None:
            raise StoreUnavailableError(f"MongoDB at {self._link.hosts}: the log's row is gone")
        known: list[int] = row.get("writers", {}).get(self._writer, [-1])
        return int(row["n"]), int(known[0])

"""Appending the batches of producers: each operation once, however often its batch is tried."""

import secrets
from collections import Counter
from collections.abc import Sequence

from oplogd.errors import StoreUnavailableError
from oplogd.model.event_id import Mark
from oplogd.model.operation import Operation
from oplogd.store.base import BatchId, FencedBatch
from oplogd.store.mongo.link.fences import ended_meanwhile, holding
from oplogd.store.mongo.link.layout import LOG, Numbered
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.log.conditional import ConditionalAppender, OrderedBatch
from oplogd.store.mongo.log.ends import Head
from oplogd.store.mongo.log.log import Log


class OwnNumbers:
    """Batch ids of a writer with a token of its own."""

    def __init__(self) -> None:
        self._writer = secrets.token_hex(8)
        self._sequence = 0

    def take(self, count: int) -> BatchId:
        batch_id = BatchId(self._writer, self._sequence)
        self._sequence += count
        return batch_id


class BatchAppender:
    """Appends operations of producers. Each method has one caller at a time."""

    def __init__(self, link: Link, log: Log, appender: ConditionalAppender) -> None:
        self._link = link
        self._log = log
        self._appender = appender
        self._numbers, self._fenced_numbers = OwnNumbers(), OwnNumbers()
        # Largest sequence in the log of each writer without doubt.
        self._last: dict[str, int] = {}

    async def append(
        self, operations: Sequence[Operation], batch_id: BatchId | None = None
    ) -> None:
        """Append the operations missing in the log, by the writer's token and sequence."""
        if not operations:
            return
        batch_id = batch_id or self._numbers.take(len(operations))
        last = self._last.pop(batch_id.writer, None)
        batch = WriterBatch(self._link, self._log, operations, batch_id, last)
        # If this raises, the writer is in doubt: the next try looks up which operations landed.
        await self._appender.append(batch)
        if batch.last is not None:
            self._last[batch_id.writer] = batch.last

    async def append_fenced(self, batches: Sequence[FencedBatch]) -> list[bool]:
        """Batches share the inserts.

        Raises NotConfirmedError if a term ends after a part of its batch was appended.
        """
        batch_id = self._fenced_numbers.take(sum(len(batch.operations) for batch in batches))
        writing = FencedWriterBatch(self._link, self._log, batches, batch_id)
        await self._appender.append(writing)
        return [place not in writing.stale for place in range(len(batches))]


class WriterBatch(OrderedBatch):
    """Its condition: an operation is not in the log yet.

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
        super().__init__(list(enumerate(operations, batch_id.sequence)))
        self._link = link
        self._log = log
        self.writer = batch_id.writer
        self.last = last
        # The log was searched for the writer's operations up to here.
        self._known: Mark | None = None
        if last is not None:
            self.remove(last)

    async def head(self) -> Head:
        return await self._log.newest(self._known)

    async def judge(self, head: Head, chunk: Sequence[Numbered]) -> list[Numbered]:
        if self._known is not None and self.last is not None:
            passed = head.last_of(self.writer, self._known.offset)
            self.last = None if passed is None else max(self.last, passed)
        if self.last is None:
            self.last = await self._log.last_number({"w": self.writer}, "s", self.folded)
        self._known = None
        self.remove(self.last)
        return [each for each in chunk if each[0] > self.last]

    def landed(self, landed: Sequence[Numbered], head: Head | None, *, is_beaten: bool) -> None:
        if head is None:
            self.last = None
            return
        if landed:
            self.last = landed[-1][0]
            self.remove(self.last)
        if is_beaten:
            self._known = head.mark

    async def folded(self) -> tuple[int, int]:
        async with self._link.reading() as session:
            row = await self._link.meta.find_one(
                {"_id": LOG}, {"n": 1, f"writers.{self.writer}": 1}, session=session
            )
        if row is None:
            raise StoreUnavailableError(f"MongoDB at {self._link.hosts}: the log's row is gone")
        known: list[int] = row.get("writers", {}).get(self.writer, [-1])
        return int(row["n"]), int(known[0])


class FencedWriterBatch(WriterBatch):
    """The operations of several batches, each with the condition of its fence.

    ``stale``: places of the batches whose fence does not hold. None of their operations is in the
    log.
    """

    def __init__(
        self, link: Link, log: Log, batches: Sequence[FencedBatch], batch_id: BatchId
    ) -> None:
        self._batches = batches
        operations: list[Operation] = []
        # Place of the batch of each operation.
        self._places: list[int] = []
        for place, batch in enumerate(batches):
            operations += batch.operations
            self._places += [place] * len(batch.operations)
        self._first = batch_id.sequence
        self.stale: set[int] = set()
        # No operation was tried before, so none is in doubt.
        super().__init__(link, log, operations, batch_id, self._first - 1)

    async def judge(self, head: Head, chunk: Sequence[Numbered]) -> list[Numbered]:
        accepted = await super().judge(head, chunk)
        waiting = Counter(map(self._place, self.todo))
        held = await holding(self._link, {self._batches[place].fence for place in waiting})
        for place, count in waiting.items():
            operations, fence = self._batches[place]
            if fence in held:
                continue
            if count < len(operations):
                raise ended_meanwhile(self._link, fence)
            self.stale.add(place)
        if not self.stale:
            return accepted
        self.todo = [each for each in self.todo if self._place(each) not in self.stale]
        return [each for each in accepted if self._place(each) not in self.stale]

    def _place(self, numbered: Numbered) -> int:
        return self._places[numbered[0] - self._first]

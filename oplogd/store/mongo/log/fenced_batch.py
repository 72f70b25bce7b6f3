"""Appending operations with fences: batches that wait at the same time share the inserts."""

import secrets
from collections import Counter
from collections.abc import Sequence

from oplogd.model.operation import Operation
from oplogd.store.base import BatchId, FencedBatch
from oplogd.store.mongo.link.fences import ended_meanwhile, holding
from oplogd.store.mongo.link.layout import Numbered
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.log.batch import WriterBatch
from oplogd.store.mongo.log.conditional import ConditionalAppender
from oplogd.store.mongo.log.head import Head
from oplogd.store.mongo.log.log import Log


class FencedAppender:
    """Methods raise PyMongo's errors, and StoreUnavailableError for a log that cannot be used.

    One caller at a time. It is a writer with a token of its own.
    """

    def __init__(self, link: Link, log: Log, appender: ConditionalAppender) -> None:
        self._link = link
        self._log = log
        self._appender = appender
        self._writer = secrets.token_hex(8)
        self._sequence = 0

    async def append(self, batches: Sequence[FencedBatch]) -> list[bool]:
        """See ``Store.append_fenced``.

        Raises NotConfirmedError if a term ends after a part of its batch was appended.
        """
        batch_id = BatchId(self._writer, self._sequence)
        writing = FencedWriterBatch(self._link, self._log, batches, batch_id)
        self._sequence += len(writing.todo)
        await self._appender.append(writing)
        return [place not in writing.stale for place in range(len(batches))]


class FencedWriterBatch(WriterBatch):
    """The operations of several batches, each with the condition that its fence holds.

    ``stale``: places of the batches whose fence does not hold. No operation of theirs is in the
    log.
    """

    def __init__(
        self,
        link: Link,
        log: Log,
        batches: Sequence[FencedBatch],
        batch_id: BatchId,
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

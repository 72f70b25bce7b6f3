"""A store in memory: the model of a store with transactions, as one of the kits."""

import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from oplogd.model.event_id import Mark
from oplogd.model.operation import Operation
from oplogd.store import Entry, FencedBatch
from oplogd.store.leases import Leases
from oplogd.store.pointers import Pointers
from oplogd.store.topics import DEFAULT_TTL, Topics
from oplogd.store.transactions import Transactions
from tests.kits.clock.virtual import VirtualClock
from tests.kits.store.kits import Kits
from tests.kits.topics.memory import MemoryTopics
from tests.kits.topics.memory_pointers import MemoryPointers
from tests.kits.topics.memory_transactions import MemoryTransactions


class MemoryStore:
    """One handle: the part of ``oplogd.store.Store`` for tests of its parts besides the log."""

    def __init__(
        self, topics: MemoryTopics, transactions: MemoryTransactions, pointers: MemoryPointers
    ) -> None:
        self.topics: Topics = topics
        self.transactions: Transactions = transactions
        self.pointers: Pointers = pointers
        self.leases: Leases = topics.leases
        self._holds = topics.leases.holds
        self._clock = topics.clock
        self._entries = transactions.operations

    async def close(self) -> None:
        pass

    async def append(self, operations: Sequence[Operation]) -> None:
        last = self._entries[-1] if self._entries else Entry(0, 0, "", "")
        ms = max(self._clock(), last.ms)
        for k, each in enumerate(operations, 1):
            self._entries.append(Entry(last.offset + k, ms, each.event, each.data.decode()))

    async def append_fenced(self, batches: Sequence[FencedBatch]) -> list[bool]:
        results = [self._holds(batch.fence) for batch in batches]
        for batch, holds in zip(batches, results, strict=True):
            if holds:
                await self.append(batch.operations)
        return results

    async def read(self, after: int, limit: int, at_ms: int | None = None) -> list[Entry]:
        return self._entries[after : after + limit]

    async def checkpoint(self) -> Mark:
        last = self._entries[-1] if self._entries else Entry(0, 0, "", "")
        return Mark(last.offset, last.ms)


class MemoryKit:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.bulk = 12_000
        self._topics: MemoryTopics | None = None
        self._transactions: MemoryTransactions | None = None
        self._pointers: MemoryPointers | None = None

    async def open(
        self,
        max_bytes: int | None = None,
        topic_ttl: int | None = None,
        topics_max_bytes: int | None = None,
    ) -> MemoryStore:
        if self._topics is None or self._transactions is None or self._pointers is None:
            self._topics = MemoryTopics(self.clock.now_ms, topic_ttl or DEFAULT_TTL)
            self._transactions = MemoryTransactions(self._topics)
            self._pointers = MemoryPointers(self._topics)
        return MemoryStore(self._topics, self._transactions.another(), self._pointers.another())

    async def close(self) -> None:
        pass


def memory_kits(request: pytest.FixtureRequest, patch: pytest.MonkeyPatch) -> Kits:
    @contextlib.asynccontextmanager
    async def kit() -> AsyncIterator[MemoryKit]:
        yield MemoryKit()

    return kit  # type: ignore[return-value]

"""A topic in memory with messages under pointers, and a poller."""

import json
from collections.abc import Callable, Collection, Sequence
from typing import Any

from oplogd.model.event_id import Mark
from oplogd.model.message_id import stamp
from oplogd.model.names import TopicName
from oplogd.model.pointer import Decision, Snapshot
from oplogd.model.transaction import Isolation
from oplogd.store.topic_bounds import TopicBounds
from oplogd.store.topics import MessageBatch, Topic, TopicEntry, TopicLog, TopicRecord
from oplogd.store.transactions import RecordLimits
from oplogd.topics.codec.codec import PollRequest
from oplogd.topics.counters import TopicCounters
from oplogd.topics.known import KnownTopics
from oplogd.topics.poll import PollAnswer
from oplogd.topics.poller import Poller
from tests.kits.topics.memory import MemoryTopics
from tests.kits.topics.memory_pointers import MemoryPointers
from tests.kits.topics.messages import of_json

NAME = TopicName("ns", "t")
START_MS = 1_700_000_000_000
TTL_MS = 100_000
LIMIT = 1000
TIMEOUT_MS = 900_000
COMMITTED, UNCOMMITTED = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED
TEPHRA = START_MS * 1_000_000 + 1
ABOVE_ALL = Snapshot(1 << 62)


class _Topics(MemoryTopics):
    """``calls``: the reads and the questions for decisions. ``hooks``: run before the next ones."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(clock)
        self.calls: list[str] = []
        self.hooks: dict[str, Callable[[], None]] = {}

    def log(self, topic: Topic) -> TopicLog:
        return _Log(self, super().log(topic))

    def called(self, name: str) -> None:
        self.calls.append(name)
        self.hooks.pop(name, lambda: None)()


class _Log:
    def __init__(self, topics: _Topics, log: TopicLog) -> None:
        self._topics = topics
        self._log = log

    async def locate(self, ms: int = 0, sequence: int = 0) -> TopicBounds:
        return await self._log.locate(ms, sequence)

    async def read(self, after: int, limit: int, at_ms: int | None = None) -> list[TopicEntry]:
        self._topics.called("read")
        return await self._log.read(after, limit, at_ms)

    async def expand(self, entry: TopicEntry, after: int, limit: int) -> list[TopicRecord]:
        self._topics.called("expand")
        return await self._log.expand(entry, after, limit)

    async def decisions(self, pointers: Collection[int]) -> dict[int, Decision]:
        self._topics.called("decisions")
        return await self._log.decisions(pointers)


class World:
    """A topic in memory with a poller."""

    def __init__(self) -> None:
        self.now = START_MS
        self.topics = _Topics(lambda: self.now)
        self.pointers = MemoryPointers(self.topics)
        self.poller = Poller(self.topics, KnownTopics(self.topics), TopicCounters(), LIMIT)
        self.log = 0

    @classmethod
    async def new(cls) -> "World":
        world = cls()
        world.log = (await world.topics.create(NAME, TTL_MS // 1000)).log
        return world

    async def plain(self, *messages: Any) -> None:
        batch = MessageBatch(self.log, [of_json(each) for each in messages])
        await self.topics.append([batch])

    async def direct(self, pointer: int, *messages: Any) -> list[Mark]:
        given = [of_json(each) for each in messages]
        return [*await self.pointers.publish(self.log, pointer, given, TIMEOUT_MS)]

    async def store(self, pointer: int, *messages: Any) -> None:
        given = [of_json(each) for each in messages]
        await self.pointers.store(self.log, pointer, given, TIMEOUT_MS, RecordLimits())

    async def publish(self, pointer: int) -> Mark:
        mark = await self.pointers.publish_stored(self.log, pointer, TIMEOUT_MS)
        assert mark is not None
        return mark

    async def decide(self, pointer: int, decision: Decision) -> None:
        await self.pointers.decide([self.log], pointer, decision)

    async def rollback(self, pointer: int, marks: Sequence[Mark] | None = None) -> None:
        stamps = None if marks is None else [stamp(each.ms, each.sequence) for each in marks]
        await self.pointers.rollback(self.log, pointer, stamps)

    def void(self, mark: Mark) -> None:
        """Do what another agent's rollback does at once."""
        entries = self.topics.generation(self.log).entries
        self.topics.void(self.log, [entries[mark.offset - 1]])

    async def answer(
        self,
        reader: Isolation | Snapshot,
        start: str | int | None = None,
        *,
        inclusive: bool = False,
        limit: int | None = None,
    ) -> PollAnswer:
        position = bytes.fromhex(start) if isinstance(start, str) else start
        snapshot = reader if isinstance(reader, Snapshot) else None
        isolation = reader if isinstance(reader, Isolation) else COMMITTED
        request = PollRequest(position, inclusive, limit, isolation, snapshot)
        return await self.poller.poll(NAME, request)

    async def poll(self, reader: Isolation | Snapshot, *start: str, **members: Any) -> str:
        """Return the payloads of an answer without a gap, and the pointer that holds it."""
        answer = await self.answer(reader, *start, **members)
        assert not answer.gap
        held = () if answer.held_by is None else (f"held by {answer.held_by}",)
        return " ".join([*payloads(answer), *held])


def payloads(answer: PollAnswer) -> list[str]:
    return [json.loads(each.data)["payload"] for each in answer.messages]

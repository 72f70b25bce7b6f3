"""Pointers with names of topics: deleted topics, what the next poll must see, room, counts."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from oplogd.errors import (
    QueueFullError,
    StoreUnavailableError,
    TopicNotFoundError,
    TransactionConflictError,
    TransactionTooLargeError,
)
from oplogd.model.event_id import Mark
from oplogd.model.message import Message
from oplogd.model.message_id import stamp
from oplogd.model.names import TopicName
from oplogd.model.pointer import Decision
from oplogd.store.topics import Topic
from oplogd.store.transactions import RecordLimits
from oplogd.topics.counters import TopicCounters
from oplogd.topics.known import KnownTopics
from oplogd.topics.pointers.service import PointerService
from oplogd.topics.transactions.room import RecordRoom
from tests.kits.processes.logged import DEADLINE
from tests.kits.topics.memory import MemoryTopics
from tests.kits.topics.memory_pointers import MemoryPointers
from tests.kits.topics.messages import of_json

NAME, OTHER = TopicName("ns", "t"), TopicName("ns", "other")
P = 1_800_000_000_000_000_001
AWAY = StoreUnavailableError("store x: away")


class Pointers(MemoryPointers):
    """``reported``: the logs of each report that came to the store."""

    def __init__(self, topics: MemoryTopics) -> None:
        super().__init__(topics)
        self.reported: list[list[int]] = []

    async def decide(
        self, logs: Sequence[int], pointer: int, decision: Decision
    ) -> dict[int, Mark]:
        self.reported.append([*logs])
        return await super().decide(logs, pointer, decision)


class Bench:
    """A service over a store in memory. ``followed``: logs that this agent keeps in memory."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000
        self.topics = MemoryTopics(lambda: self.now)
        self.pointers = Pointers(self.topics)
        self.counters = TopicCounters()
        self.acknowledged: dict[int, int] = {}
        self.followed: set[int] = set()
        self.service = PointerService(
            self.pointers,
            self.topics,
            KnownTopics(self.topics),
            self.counters,
            RecordLimits(5, 1000),
            900,
            RecordRoom(10, 1000),
            self.acknowledged.__setitem__,
            self.followed.__contains__,
        )

    async def again(self, name: TopicName = NAME) -> Topic:
        """Delete a topic as another agent does, and create it again."""
        await self.topics.delete(name)
        return await self.topics.create(name, None)

    async def heads(self) -> dict[int, int]:
        """Return the offset of the head of each topic by log."""
        found = await self.topics.in_namespace("ns")
        return {t.log: (await self.topics.log(t).locate()).head.offset for t in found}

    async def kinds(self, name: TopicName = NAME) -> list[str]:
        return [each["kind"] for each in await self.service.entries(name, 0, 1000)]


def run(work: Callable[[Bench], Awaitable[None]]) -> None:
    async def with_topics() -> None:
        bench = Bench()
        for name in (NAME, OTHER):
            await bench.topics.create(name, None)
        async with asyncio.timeout(DEADLINE):
            await work(bench)

    asyncio.run(with_topics())


def messages(*payloads: str) -> list[Message]:
    return [of_json(each) for each in payloads]


def stamps(marks: Any) -> list[int]:
    return [stamp(each.ms, each.sequence) for each in marks]


def test_what_is_answered_is_seen_by_the_next_poll_of_this_agent() -> None:
    async def work(bench: Bench) -> None:
        service = bench.service

        async def is_acknowledged() -> bool:
            heads = {log: head for log, head in (await bench.heads()).items() if head}
            found = dict(bench.acknowledged)
            bench.acknowledged.clear()
            return found == heads

        first = await service.publish(NAME, P, messages("a", "b"))
        assert await is_acknowledged()
        await service.rollback(NAME, P, stamps(first))
        assert await is_acknowledged()
        await service.store(NAME, P, messages("c"))
        assert bench.acknowledged == {}, "nobody can read it"
        (place,) = await service.publish(NAME, P, [])
        assert await is_acknowledged()
        assert [*await service.publish(NAME, P, [])] == [place]
        bench.acknowledged.clear()
        await service.entries(NAME, None, 1)
        assert await is_acknowledged()
        await service.decide([NAME, OTHER], P, Decision.COMMITTED)
        assert await is_acknowledged()

    run(work)


def test_a_repeated_rollback_shows_the_one_before_to_the_next_poll() -> None:
    async def work(bench: Bench) -> None:
        await bench.service.publish(NAME, P, messages("a"))
        topic = await bench.topics.find(NAME)
        assert topic is not None
        await bench.pointers.another().rollback(topic.log, P, None)
        bench.acknowledged.clear()
        await bench.service.rollback(NAME, P, None)
        assert bench.acknowledged == {}, "nobody follows the topic"
        bench.followed.add(topic.log)
        await bench.service.rollback(NAME, P, None)
        assert bench.acknowledged == {topic.log: 2}

    run(work)


def test_a_topic_that_was_created_again_is_another_one() -> None:
    async def work(bench: Bench) -> None:
        service = bench.service
        await service.publish(NAME, P, messages("a"))
        await service.store(OTHER, P, messages("a"))
        await bench.again()
        (mark,) = await service.publish(NAME, P, messages("b"))
        assert mark.offset == 1
        await bench.again()
        await service.store(NAME, P, messages("c"))
        assert [each.has_entries for each in await service.select(NAME, 10)] == [False]
        await bench.again()
        assert not await service.publish(NAME, P, [])
        await bench.again()
        await service.rollback(NAME, P, stamps([mark]))
        await bench.again()
        assert await service.entries(NAME, None, 10) == []
        await bench.again()
        assert await service.select(NAME, 10) == []
        topic = await bench.again()
        await service.decide([OTHER, NAME], P, Decision.ABORTED)
        assert await bench.topics.log(topic).decisions([P]) == {P: Decision.ABORTED}
        assert await bench.kinds() == await bench.kinds(OTHER) == ["abort"]

    run(work)


def test_a_topic_that_is_gone_is_not_found() -> None:
    async def work(bench: Bench) -> None:
        service = bench.service
        await service.publish(OTHER, P, messages("a"))
        await service.publish(NAME, P, messages("a"))
        await bench.topics.delete(NAME)
        for call in (
            lambda: service.decide([OTHER, NAME], P, Decision.COMMITTED),
            lambda: service.publish(NAME, P, messages("b")),
            lambda: service.publish(NAME, P, []),
            lambda: service.store(NAME, P, messages("b")),
            lambda: service.rollback(NAME, P, None),
            lambda: service.select(NAME, 10),
            lambda: service.entries(NAME, None, 10),
        ):
            with pytest.raises(TopicNotFoundError, match="ns/t"):
                await call()
        assert await bench.kinds(OTHER) == ["direct"]
        assert bench.pointers.reported == [], "a store might decide the topics before it"

    run(work)


def test_a_topic_that_is_deleted_while_a_report_waits_is_looked_up_again() -> None:
    async def work(bench: Bench) -> None:
        bench.pointers.gate.clear()
        report = asyncio.create_task(bench.service.decide([NAME, OTHER], P, Decision.COMMITTED))
        await bench.pointers.arrived.wait()
        await bench.again()
        bench.pointers.gate.set()
        await report
        assert await bench.kinds() == await bench.kinds(OTHER) == ["commit"]

    run(work)


def test_another_decision_is_refused_with_the_name_of_the_topic() -> None:
    async def work(bench: Bench) -> None:
        decide = bench.service.decide
        await decide([OTHER], P, Decision.ABORTED)
        await decide([OTHER], P, Decision.ABORTED)
        sentence = rf"^ns/other: pointer {P} was aborted in this topic$"
        with pytest.raises(TransactionConflictError, match=sentence):
            await decide([NAME, OTHER], P, Decision.COMMITTED)
        await decide([NAME], P, Decision.COMMITTED)

    run(work)


def test_a_pointer_has_the_time_of_the_flag() -> None:
    async def work(bench: Bench) -> None:
        await bench.service.publish(NAME, P, messages("a"))
        await bench.service.store(NAME, 5, messages("a"))
        found = await bench.service.select(NAME, 10)
        assert [each.expires_ms - each.begun_ms for each in found] == [900_000, 900_000]
        assert len(await bench.service.select(NAME, 1)) == 1

    run(work)


def test_messages_are_counted_once_and_refused_ones_apart() -> None:
    async def work(bench: Bench) -> None:
        service = bench.service
        await service.publish(NAME, P, messages("a", "b"))
        await service.store(NAME, 5, messages("c", "d", "e"))
        await service.publish(NAME, 5, [])
        await service.publish(NAME, 5, [])
        await service.rollback(NAME, 5, None)
        counts = bench.counters.counts
        assert (counts.publishes, counts.messages_published) == (4, 5)
        assert bench.counters.published.shown()["ns/t"] == 5
        with pytest.raises(TransactionTooLargeError):
            await service.store(NAME, 5, messages(*"abcdef"))
        await service.decide([NAME], P, Decision.COMMITTED)
        with pytest.raises(TransactionConflictError):
            await service.publish(NAME, P, messages("f"))
        bench.pointers.trouble = AWAY
        with pytest.raises(StoreUnavailableError):
            await service.publish(NAME, 5, messages("f", "g"))
        assert (counts.publishes, counts.messages_published) == (4, 5)
        assert counts.messages_refused == 6 + 1 + 2

    run(work)


def test_messages_that_wait_for_the_store_have_a_bound() -> None:
    async def work(bench: Bench) -> None:
        service, gate = bench.service, bench.pointers.gate
        gate.clear()
        first = asyncio.create_task(service.publish(NAME, P, messages("x" * 2000)))
        await bench.pointers.arrived.wait()
        for call in (service.publish, service.store):
            with pytest.raises(QueueFullError, match="bytes of records from other requests"):
                await call(NAME, P, messages("b"))
        gate.set()
        await first
        await service.publish(NAME, P, messages("b"))
        assert bench.counters.counts.messages_refused == 2

    run(work)


def test_a_store_that_is_away_is_told_to_the_client() -> None:
    async def work(bench: Bench) -> None:
        bench.pointers.trouble = AWAY
        service = bench.service
        for call in (
            lambda: service.publish(NAME, P, messages("b")),
            lambda: service.publish(NAME, P, []),
            lambda: service.store(NAME, P, messages("b")),
            lambda: service.rollback(NAME, P, None),
            lambda: service.decide([NAME], P, Decision.COMMITTED),
            lambda: service.select(NAME, 10),
        ):
            with pytest.raises(StoreUnavailableError, match="store x: away"):
                await call()
        bench.pointers.trouble = None
        assert await bench.kinds() == []

    run(work)


def test_the_newest_entries_are_shown_unless_an_offset_is_given() -> None:
    async def work(bench: Bench) -> None:
        service = bench.service
        for pointer in range(5):
            await service.publish(NAME, pointer, messages("a"))
        await service.decide([NAME], 1, Decision.COMMITTED)

        async def offsets(after: int | None, limit: int) -> list[int]:
            return [each["offset"] for each in await service.entries(NAME, after, limit)]

        assert await offsets(None, 2) == [5, 6]
        assert await offsets(None, 100) == [1, 2, 3, 4, 5, 6]
        assert await offsets(0, 2) == [1, 2]
        assert await offsets(4, 2) == [5, 6]
        assert await offsets(6, 2) == []
        found = await service.entries(NAME, 0, 2)
        assert [each["state"] for each in found] == ["open", "committed"]

    run(work)


def test_large_entries_are_shown_without_a_hole() -> None:
    async def work(bench: Bench) -> None:
        for _ in range(5):
            await bench.service.publish(NAME, P, messages("x" * 600_000))
        found = await bench.service.entries(NAME, None, 4)
        assert [(each["offset"], each["bytes"]) for each in found] == [
            (offset, 600_000 + len('{"payload":""}')) for offset in (2, 3, 4, 5)
        ]

    run(work)

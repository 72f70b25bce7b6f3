"""Transactions with names of topics: commit logs, deleted topics, what the next poll must see."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from oplogd.errors import (
    QueueFullError,
    StoreUnavailableError,
    TopicError,
    TopicExistsError,
    TopicNotFoundError,
    TransactionConflictError,
    TransactionTooLargeError,
)
from oplogd.model.names import OPLOG, TopicName
from oplogd.model.once import OnceNumber
from oplogd.model.pointer import DEFAULT_RULES, PointerRules
from oplogd.model.transaction import State
from oplogd.store.topics import Topic
from oplogd.store.transactions import RecordLimits, Transaction
from oplogd.topics.known import KnownTopics
from oplogd.topics.transactions.begin import Begin
from oplogd.topics.transactions.room import RecordRoom
from oplogd.topics.transactions.rules import parsing_records
from oplogd.topics.transactions.service import TransactionService
from tests.kits.processes.logged import DEADLINE
from tests.kits.topics.memory import MemoryTopics
from tests.kits.topics.memory_transactions import MemoryTransactions

NAME, OTHER = TopicName("ns", "t"), TopicName("ns", "other")
GROUP = Begin("g", None, 60_000)
GROUP_LOG = TopicName("system", "_txn.g")
NOW = "2024-12-01T10:00:00.000Z"


class Topics(MemoryTopics):
    """``faster``: another agent that creates the next topic first."""

    faster = False

    async def create(
        self,
        name: TopicName,
        ttl: int | None,
        pointers: PointerRules = DEFAULT_RULES,
        *,
        max_bytes: int | None = None,
    ) -> Topic:
        if self.faster:
            self.faster = False
            await super().create(name, ttl, pointers)
        return await super().create(name, ttl, pointers)


class Bench:
    """A service over a store in memory. ``followed``: logs that this agent keeps in memory."""

    def __init__(self, octets: int = 10**6) -> None:
        self.topics = Topics(lambda: 1_700_000_000_000)
        self.transactions = MemoryTransactions(self.topics)
        self.acknowledged: dict[int, int] = {}
        self.followed: set[int] = set()
        self.service = TransactionService(
            self.transactions,
            self.topics,
            KnownTopics(self.topics),
            RecordLimits(100, octets),
            self.acknowledged.__setitem__,
            self.followed.__contains__,
        )

    async def write(self, id_: int, *given: tuple[TopicName, int, Any]) -> Any:
        records = [{"topic": str(name), "lsn": lsn, "payload": p} for name, lsn, p in given]
        pieces = parsing_records(json.dumps({"records": records}).encode(), NOW, 10**6)
        while True:
            try:
                next(pieces)
            except StopIteration as end:
                return await self.service.write(id_, end.value)

    async def head(self, name: TopicName) -> tuple[int, int]:
        """Return the log of a topic and the offset of its head."""
        topic = await self.topics.find(name)
        assert topic is not None
        return topic.log, (await self.topics.log(topic).locate()).head.offset

    async def names(self) -> list[str]:
        return [topic.name.topic for topic in await self.topics.in_namespace("system")]


def run(work: Callable[[Bench], Any], bench: Bench | None = None) -> None:
    asyncio.run(work(bench or Bench()))


def test_records_that_wait_for_the_store_have_a_bound() -> None:
    class SlowTransactions(MemoryTransactions):
        """``answer``: the store takes records when it is set."""

        def __init__(self, topics: MemoryTopics) -> None:
            super().__init__(topics)
            self.asked, self.answer = asyncio.Event(), asyncio.Event()

        async def write(self, id_: int, records: Any, limits: RecordLimits) -> Transaction:
            self.asked.set()
            await self.answer.wait()
            return await super().write(id_, records, limits)

    async def work(bench: Bench) -> None:
        async with asyncio.timeout(DEADLINE):
            await fill(bench)

    async def fill(bench: Bench) -> None:
        store = SlowTransactions(bench.topics)
        bench.service = TransactionService(
            store, bench.topics, KnownTopics(bench.topics), RecordLimits(), room=RecordRoom(3, 100)
        )
        await bench.topics.create(NAME, None)
        id_ = (await bench.service.begin(GROUP)).id
        first = asyncio.create_task(bench.write(id_, (NAME, 0, "x" * 200)))  # larger than the room
        await store.asked.wait()
        with pytest.raises(QueueFullError, match="bytes of records from other requests"):
            await bench.write(id_, (NAME, 1, "b"))
        store.answer.set()
        assert (await first).records == 1
        store.answer.clear()
        store.asked.clear()
        waiting = asyncio.create_task(bench.write(id_, (NAME, 1, "b"), (NAME, 2, "c")))
        await store.asked.wait()
        with pytest.raises(QueueFullError):
            await bench.write(id_, (NAME, 3, "d"), (NAME, 4, "e"))
        store.answer.set()
        assert (await waiting).records == 3

    run(work)


def test_the_first_transaction_of_a_group_creates_its_commit_log() -> None:
    async def work(bench: Bench) -> None:
        first = await bench.service.begin(GROUP)
        again = await bench.service.begin(GROUP)
        assert await bench.names() == ["_txn.g"]
        assert (first.group, first.only_log, first.log) == ("g", None, again.log)
        await bench.service.begin(Begin("default", None, 5))
        assert await bench.names() == ["_txn.default", "_txn.g"]

    run(work)


def test_another_agent_may_create_the_commit_log_first() -> None:
    async def work(bench: Bench) -> None:
        bench.topics.faster = True
        await bench.service.begin(GROUP)
        assert await bench.names() == ["_txn.g"]
        with pytest.raises(TopicExistsError):
            await bench.topics.create(GROUP_LOG, None)

    run(work)


def test_a_commit_log_that_was_deleted_is_created_again() -> None:
    async def work(bench: Bench) -> None:
        first = await bench.service.begin(GROUP)
        await bench.topics.delete(GROUP_LOG)
        again = await bench.service.begin(GROUP)
        assert again.log != first.log
        assert await bench.names() == ["_txn.g"]

    run(work)


def test_a_transaction_of_a_topic_uses_its_log_as_the_commit_log() -> None:
    async def work(bench: Bench) -> None:
        begin = Begin(None, NAME, 5)
        with pytest.raises(TopicNotFoundError):
            await bench.service.begin(begin)
        topic = await bench.topics.create(NAME, None)
        found = await bench.service.begin(begin)
        assert (found.group, found.log, found.only_log) == (None, topic.log, topic.log)
        await bench.topics.delete(NAME)
        again = await bench.topics.create(NAME, None)
        assert (await bench.service.begin(begin)).log == again.log
        assert await bench.names() == []

    run(work)


def test_a_transaction_of_the_oplog_is_in_the_default_group_and_takes_operations_only() -> None:
    async def work(bench: Bench) -> None:
        await bench.topics.create(NAME, None)
        found = await bench.service.begin(Begin(None, OPLOG, 5))
        assert (found.group, found.only_log) == ("default", 0)
        operation = {"event": "insert", "type": "video", "id": "a"}
        with pytest.raises(TopicError, match=r"^records\[1\]\.topic: "):
            await bench.write(found.id, (OPLOG, 0, operation), (NAME, 1, "a"))
        written = await bench.write(found.id, (OPLOG, 0, operation))
        (shown,) = await bench.service.shown([written])
        assert (shown["topic"], shown["topics"]) == ("system/oplog", ["system/oplog"])

    run(work)


def test_other_topics_of_the_system_do_not_exist() -> None:
    async def work(bench: Bench) -> None:
        name = TopicName("system", "other")
        with pytest.raises(TopicNotFoundError, match="system/other"):
            await bench.service.begin(Begin(None, name, 5))
        begun = await bench.service.begin(GROUP)
        with pytest.raises(TopicNotFoundError, match="system/other"):
            await bench.write(begun.id, (name, 0, "a"))

    run(work)


def test_a_topic_that_was_created_again_is_looked_up_once_more() -> None:
    async def work(bench: Bench) -> None:
        await bench.topics.create(NAME, None)
        await bench.topics.create(OTHER, None)
        begun = await bench.service.begin(GROUP)
        await bench.write(begun.id, (NAME, 0, "a"), (OTHER, 1, "b"))
        await bench.topics.delete(NAME)
        with pytest.raises(TopicNotFoundError, match="ns/t"):
            await bench.write(begun.id, (NAME, 2, "a"), (OTHER, 3, "b"))
        await bench.topics.create(NAME, None)
        written = await bench.write(begun.id, (NAME, 2, "a"), (OTHER, 3, "b"))
        assert written.records == 4
        (shown,) = await bench.service.shown([written])
        assert shown["topics"] == ["ns/other", "ns/t"]

    run(work)


def test_a_write_names_the_flag_of_the_limit_that_it_exceeds() -> None:
    async def work(bench: Bench) -> None:
        await bench.topics.create(NAME, None)
        begun = await bench.service.begin(GROUP)
        with pytest.raises(TransactionTooLargeError, match=r"50 bytes \(--txn-max-bytes\)"):
            await bench.write(begun.id, (NAME, 0, "x" * 50))
        await bench.write(begun.id, (NAME, 0, "x"))

    run(work, Bench(octets=50))


def test_a_commit_of_more_records_than_a_transaction_may_have_lacks_some() -> None:
    async def work(bench: Bench) -> None:
        begun = await bench.service.begin(GROUP)
        with pytest.raises(TransactionConflictError, match="fewer than 101 records"):
            await bench.service.commit(begun.id, 101)
        with pytest.raises(TransactionConflictError, match="lacks 100 of 100 records"):
            await bench.service.commit(begun.id, 100)

    run(work)


def test_the_next_poll_of_this_agent_sees_what_was_answered() -> None:
    async def work(bench: Bench) -> None:
        topic = await bench.topics.create(NAME, None)
        begun = await bench.service.begin(GROUP)
        assert bench.acknowledged == dict([await bench.head(GROUP_LOG)])
        bench.acknowledged.clear()
        await bench.write(begun.id, (NAME, 0, "a"))
        assert bench.acknowledged == {}, "nobody keeps these entries in memory"
        bench.followed |= {topic.log, begun.log}
        await bench.write(begun.id, (NAME, 1, "b"))
        assert bench.acknowledged == dict([await bench.head(NAME)])
        commit = await bench.service.commit(begun.id, 2)
        assert commit.transaction.state is State.COMMITTED
        both = dict([await bench.head(NAME), await bench.head(GROUP_LOG)])
        assert bench.acknowledged == both
        aborted = await bench.service.begin(GROUP)
        await bench.service.abort(aborted.id)
        assert dict([await bench.head(GROUP_LOG)]).items() <= bench.acknowledged.items()

    run(work)


def test_a_begin_of_a_committed_number_acknowledges_nothing_in_the_log_of_its_request() -> None:
    async def work(bench: Bench) -> None:
        await bench.topics.create(NAME, None)
        once = OnceNumber("key", 1)
        begun = await bench.service.begin(GROUP._replace(once=once))
        await bench.service.commit(begun.id, 0)
        bench.acknowledged.clear()
        again = await bench.service.begin(Begin(None, NAME, 60_000, once))
        assert again.id == begun.id
        assert bench.acknowledged == {}

    run(work)


def test_a_failure_to_look_at_the_head_fails_no_write() -> None:
    async def work(bench: Bench) -> None:
        topic = await bench.topics.create(NAME, None)
        bench.followed.add(topic.log)
        begun = await bench.service.begin(GROUP)

        async def fails(logs: object) -> dict[int, Topic]:
            raise StoreUnavailableError("away")

        bench.topics.current = fails  # type: ignore[method-assign]
        assert (await bench.write(begun.id, (NAME, 0, "a"))).records == 1

    run(work)


def test_transactions_of_deleted_topics_are_shown_without_their_names() -> None:
    async def work(bench: Bench) -> None:
        await bench.topics.create(NAME, None)
        begun = await bench.service.begin(Begin(None, NAME, 5))
        written = await bench.write(begun.id, (NAME, 0, "a"))
        other = await bench.service.begin(GROUP)
        await bench.topics.delete(NAME)
        first, second = await bench.service.shown([written, other])
        assert (first["topics"], "topic" in first) == ([], False)
        assert (second["txn"], second["group"]) == (str(other.id), "g")

    run(work)

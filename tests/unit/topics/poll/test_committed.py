"""Polls of committed readers: places inside a commit, gaps, and long rows that give nothing."""

import json
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, cast

from oplogd.model.event_id import Mark
from oplogd.model.message_id import MessageId, end_id
from oplogd.model.names import TopicName
from oplogd.model.operation import decode
from oplogd.model.pointer import Decision
from oplogd.model.transaction import MAX_TIMEOUT_MS, Isolation, Record
from oplogd.store import Entry, LogBounds, Store
from oplogd.store.topic_bounds import TopicBounds
from oplogd.store.topics import MessageBatch, Topic, TopicEntry, TopicLog, TopicRecord
from oplogd.store.transactions import Commit, NewTransaction, RecordLimits
from oplogd.topics.codec.codec import PollRequest
from oplogd.topics.counters import TopicCounters
from oplogd.topics.known import KnownTopics
from oplogd.topics.oplog import OplogPoller
from oplogd.topics.poll import PASSING_ENTRIES, PollAnswer
from oplogd.topics.poller import Poller
from tests.kits.topics.memory import MemoryTopics
from tests.kits.topics.memory_transactions import MemoryTransactions
from tests.kits.topics.messages import of_json

NAME = TopicName("ns", "t")
START_MS = 1_700_000_000_000
TTL_MS = 100_000
LIMIT = 1000
COMMITTED, UNCOMMITTED = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED


class World:
    """A topic in memory with a poller. ``after_locate`` runs between the reads of a poll."""

    def __init__(self) -> None:
        self.now = START_MS
        self.topics = _Topics(lambda: self.now)
        self.transactions = MemoryTransactions(self.topics)
        self.poller = Poller(self.topics, KnownTopics(self.topics), TopicCounters(), LIMIT)
        self.topic: Topic

    @classmethod
    async def new(cls) -> "World":
        world = cls()
        world.topic = await world.topics.create(NAME, TTL_MS // 1000)
        return world

    async def publish(self, *payloads: str) -> list[str]:
        batch = MessageBatch(self.topic.log, [of_json(each) for each in payloads])
        await self.topics.append([batch])
        entries = self.topics.generation(self.topic.log).entries[-len(payloads) :]
        return [str(MessageId(each.ms, each.sequence)) for each in entries]

    async def write(self, *messages: Any) -> int:
        """Begin a transaction and write its records."""
        log = self.topic.log
        new = NewTransaction(log, None, log, MAX_TIMEOUT_MS)
        id_ = (await self.transactions.begin(new)).id
        records = [
            Record(lsn, log, of_json(message), str(lsn)) for lsn, message in enumerate(messages)
        ]
        await self.transactions.write(id_, records, RecordLimits())
        return id_

    async def commit(self, *messages: Any) -> Commit:
        return await self.transactions.commit(await self.write(*messages), len(messages))

    async def answer(
        self,
        start: str | int | None = None,
        *,
        inclusive: bool = False,
        limit: int | None = None,
        isolation: Isolation = COMMITTED,
    ) -> PollAnswer:
        position = bytes.fromhex(start) if isinstance(start, str) else start
        return await self.poller.poll(NAME, PollRequest(position, inclusive, limit, isolation))

    async def poll(self, start: str | int | None = None, **members: Any) -> list[str]:
        """Return the payloads of an answer without a gap."""
        answer = await self.answer(start, **members)
        assert not answer.gap
        return payloads(answer)

    async def reads(self, poll: Awaitable[Any]) -> int:
        before = self.topics.reads
        await poll
        return self.topics.reads - before


class _Topics(MemoryTopics):
    """Counts expansions as reads. ``after_locate`` runs behind each ``locate``."""

    after_locate: Callable[[], None] = staticmethod(lambda: None)

    def log(self, topic: Topic) -> TopicLog:
        return _Log(self, super().log(topic))


class _Log:
    def __init__(self, topics: _Topics, log: TopicLog) -> None:
        self._topics = topics
        self._log = log

    async def locate(self, ms: int = 0, sequence: int = 0) -> TopicBounds:
        bounds = await self._log.locate(ms, sequence)
        self._topics.after_locate()
        return bounds

    async def read(self, after: int, limit: int, at_ms: int | None = None) -> list[TopicEntry]:
        return await self._log.read(after, limit, at_ms)

    async def expand(self, commit: TopicEntry, after: int, limit: int) -> list[TopicRecord]:
        self._topics.reads += 1
        return await self._log.expand(commit, after, limit)

    async def decisions(self, pointers: Collection[int]) -> dict[int, Decision]:
        return await self._log.decisions(pointers)


def payloads(answer: PollAnswer) -> list[str]:
    return [json.loads(each.data)["payload"] for each in answer.messages]


async def test_a_reader_cut_after_the_second_of_three_records_resumes_at_the_third() -> None:
    world = await World.new()
    await world.publish("before")
    commit = await world.commit("a", "b", "c")
    await world.publish("after")
    answer = await world.answer(limit=3)
    assert payloads(answer) == ["before", "a", "b"]
    ids = [*commit.record_ids()]
    assert [each.id for each in answer.messages[1:]] == ids[:2]
    assert await world.poll(ids[1]) == ["c", "after"]
    assert await world.poll(ids[1], inclusive=True) == ["b", "c", "after"]
    assert await world.poll(ids[2]) == ["after"]
    assert await world.poll(ids[2], inclusive=True) == ["c", "after"]


async def test_the_place_of_a_commit_stands_before_its_records_and_its_end_behind_them() -> None:
    world = await World.new()
    commit = await world.commit("a", "b")
    mark = commit.logs[0].mark
    assert mark is not None
    place = str(MessageId(mark.ms, mark.sequence))
    assert await world.poll(place) == await world.poll(place, inclusive=True) == ["a", "b"]
    end = str(end_id(mark.ms, mark.sequence))
    assert await world.poll(end) == await world.poll(end, inclusive=True) == []
    assert await world.poll(place, isolation=UNCOMMITTED) == []
    largest = "f" * 40
    assert await world.poll(largest) == await world.poll(largest, inclusive=True) == []


async def test_the_order_of_commits_counts_for_committed_readers_alone() -> None:
    world = await World.new()
    first = await world.write("a")
    await world.commit("b")
    await world.transactions.commit(first, 1)
    await world.transactions.abort(await world.write("c"))
    assert await world.poll() == ["b", "a"]
    assert await world.poll(isolation=UNCOMMITTED) == ["a", "b", "c"]


async def test_a_position_inside_a_commit_at_the_front_is_a_gap_and_its_end_is_none() -> None:
    world = await World.new()
    first, last = (each or "" for each in (await world.commit("a", "b")).record_ids())
    world.now += 1
    await world.publish("later")
    assert await world.poll(first) == ["b", "later"]
    world.now += TTL_MS
    for start in (first, str(MessageId(START_MS, 0, 1))):
        assert await world.answer(start) == await world.answer(start, inclusive=True)
        assert (await world.answer(start)).gap
    assert await world.poll(last) == ["later"]
    assert await world.poll(first, isolation=UNCOMMITTED) == ["later"]


async def test_what_leaves_the_front_during_a_poll_is_a_gap_unless_the_reader_has_it() -> None:
    world = await World.new()
    (plain,) = await world.publish("plain")
    world.now += 1
    inside, _ = (await world.commit("a", "b")).record_ids()
    world.now += 1
    await world.publish("later")
    times = [world.now + TTL_MS - 1, world.now + TTL_MS]

    def move() -> None:
        world.now = times.pop(0)

    world.topics.after_locate = move
    assert await world.poll(plain) == ["a", "b", "later"], "the message itself has left"
    answer = await world.answer(inside)
    assert (payloads(answer), answer.gap) == (["later"], True), "its commit has left"


async def test_records_that_a_commit_promises_and_lost_are_a_gap() -> None:
    """A reader that pauses for 20 minutes between the commit and its records may find this."""
    for lost, left in (([0], "bc"), ([1], "ac"), ([2], "ab"), ([0, 1, 2], "")):
        world = await World.new()
        await world.publish("before")
        commit = await world.commit("a", "b", "c")
        await world.publish("after")
        written = world.topics.records[world.topic.log, str(commit.transaction.id)]
        for lsn in lost:
            del written[lsn]
        for limit in (None, len(left) + 1):
            for _ in range(2):  # the second one may pass over what the first one found void
                answer = await world.answer(limit=limit)
                got = ["before", *left, "after"]
                assert payloads(answer) == got[:limit]
                assert answer.gap == (limit is None or bool(left and 2 not in lost))
    world = await World.new()
    commit = await world.commit("a", "b", "c")
    written = world.topics.records[world.topic.log, str(commit.transaction.id)]
    del written[2]
    first, second, _ = commit.record_ids()
    assert payloads(await world.answer(second)) == []
    assert (await world.answer(second)).gap
    assert (payloads(await world.answer(first)), (await world.answer(first)).gap) == (["b"], True)


async def test_records_past_their_own_time_are_no_gap() -> None:
    world = await World.new()
    given = [{"payload": each, "ttl": 1} for each in "ab"]
    open_ = await world.write(given[0], "c", given[1])
    world.now += 1000
    commit = await world.transactions.commit(open_, 3)
    first, second, _ = commit.record_ids()
    world.now += 1000
    assert await world.poll() == ["a", "c", "b"], "their time counts from the commit"
    assert await world.poll(isolation=UNCOMMITTED) == ["c"]
    world.now += 1
    assert await world.poll() == ["c"]
    assert await world.poll(first) == ["c"]
    assert await world.poll(second) == []


async def test_a_long_row_that_gives_nothing_is_read_once_by_each_kind_of_reader() -> None:
    world = await World.new()
    row = 5 * PASSING_ENTRIES
    (plain,) = await world.publish("first")
    await world.transactions.abort(await world.write(*["x"] * row))
    counts = [await world.reads(world.poll(plain)) for _ in range(3)]
    assert counts == [7, 2, 2], "the message at the position is read as well"
    await world.publish("last")
    assert await world.poll(plain) == ["last"]
    assert await world.reads(world.poll(plain)) == 3
    assert len(await world.poll(plain, isolation=UNCOMMITTED)) == LIMIT
    assert await world.poll() == ["first", "last"]


async def test_several_long_rows_are_read_once() -> None:
    world = await World.new()
    (first,) = await world.publish("first")
    for number in range(3):
        await world.transactions.abort(await world.write(*["x"] * 2 * PASSING_ENTRIES))
        await world.publish(f"after {number}")
    counts = [await world.reads(world.poll(first)) for _ in range(2)]
    assert await world.poll(first) == ["after 0", "after 1", "after 2"]
    assert counts[1] <= 5 < counts[0], "a read for each message, and those at both ends"


async def test_a_long_row_of_markers_is_read_once_by_uncommitted_readers() -> None:
    world = await World.new()
    (plain,) = await world.publish("first")
    for _ in range(PASSING_ENTRIES):
        await world.commit()
    for isolation, known in ((COMMITTED, 2), (UNCOMMITTED, 1)):
        counts = [await world.reads(world.poll(plain, isolation=isolation)) for _ in range(2)]
        assert counts == [3, known]


async def test_a_commit_of_which_a_reader_has_a_part_stays_for_others() -> None:
    world = await World.new()
    await world.transactions.abort(await world.write(*["x"] * PASSING_ENTRIES))
    short = {"payload": "short", "ttl": 1}
    first, _ = (await world.commit("a", short)).record_ids()
    await world.transactions.abort(await world.write(*["x"] * PASSING_ENTRIES))
    world.now += 1001
    for _ in range(2):
        assert await world.poll(first) == []
        assert await world.poll() == ["a"]


async def test_a_large_commit_is_read_by_pages_and_expired_records_by_large_ones() -> None:
    world = await World.new()
    expired = [{"payload": "", "ttl": 1}] * (2 * PASSING_ENTRIES)
    await world.commit(*expired, "a", "b", "c")
    world.now += 1001
    await world.poll()
    assert await world.poll(limit=2) == ["a", "b"]
    # Most of the row before the commit is known. Entries: 2, the rest. Records: 2, 1000, 1000.
    assert await world.reads(world.poll(limit=2)) == 5


async def test_an_answer_has_a_megabyte_of_records_or_at_least_one() -> None:
    world = await World.new()
    big = "x" * 600_000
    await world.publish("plain")
    ids = [each or "" for each in (await world.commit(big, big, "small")).record_ids()]
    assert [len(each) for each in await world.poll()] == [5, 600_000]
    assert [len(each) for each in await world.poll(ids[0])] == [600_000, 5]


class _Oplog:
    """Stands for a store whose oplog has these entries."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    async def read(self, after: int, limit: int) -> list[Entry]:
        return [*self._entries[after : after + limit]]

    async def locate(self, offset: int = 0) -> LogBounds:
        oldest, head = (
            Mark(each.offset, each.ms) for each in self._entries[:: len(self._entries) - 1]
        )
        return LogBounds(head, oldest, self._entries[offset - 1].ms, 0, 1, 0, 0)


async def test_operations_of_a_transaction_pass_and_can_be_published_again() -> None:
    world = await World.new()
    given = [
        decode(b'{"event":"%b","type":"video","id":"x"}' % event, "2025-01-01T00:00:00.000Z")
        for event in (b"insert", b"update", b"delete")
    ]
    new = NewTransaction(world.topic.log, None, None, MAX_TIMEOUT_MS)
    id_ = (await world.transactions.begin(new)).id
    records = [Record(lsn, 0, operation, str(lsn)) for lsn, operation in enumerate(given)]
    await world.transactions.write(id_, records, RecordLimits())
    commit = await world.transactions.commit(id_, 3)
    store = cast(Store, _Oplog(world.transactions.operations))
    poller = OplogPoller(store, TopicCounters(), LIMIT)
    answers = [await poller.poll(PollRequest(isolation=isolation)) for isolation in Isolation]
    assert answers[0] == answers[1], "the oplog is always read committed"
    texts = payloads(answers[0])
    assert [each.id for each in answers[0].messages] == [*commit.record_ids()]
    members = [json.loads(each) for each in texts]
    assert [(each["txn"], each["lsn"], each["of"]) for each in members] == [
        (str(id_), lsn, 3) for lsn in range(3)
    ]
    assert [decode(each.encode(), "") for each in texts] == given
    # Resuming inside a commit is ordinary resuming.
    middle = bytes.fromhex(answers[0].messages[1].id)
    rest = await poller.poll(PollRequest(middle, inclusive=False, isolation=COMMITTED))
    assert payloads(rest) == texts[2:]

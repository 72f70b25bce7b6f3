"""Whole transactions: the body, and what the service does with deleted topics and polls."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from oplogd.decode.compressed import TooLargeError
from oplogd.decode.pieces import at_once
from oplogd.decode.walk import MANY_BYTES
from oplogd.errors import (
    MessageError,
    OplogError,
    TopicNotFoundError,
    TransactionConflictError,
    TransactionTooLargeError,
)
from oplogd.model.names import OPLOG, TopicName
from oplogd.model.once import OnceNumber
from oplogd.store.transactions import Commit, RecordLimits
from oplogd.topics.codec.codec import InvalidMessagesError
from oplogd.topics.known import KnownTopics
from oplogd.topics.transactions import answers
from oplogd.topics.transactions.begin import MAX_BYTES, Begin, parsing_begin
from oplogd.topics.transactions.service import TransactionService
from tests.kits.topics.memory import MemoryTopics
from tests.kits.topics.memory_transactions import MemoryTransactions

NOW = "2024-12-01T10:00:00.000Z"
NAME, OTHER = TopicName("ns", "t"), TopicName("ns", "other")
GROUP_LOG = TopicName("system", "_txn.g")
INSERT = {"event": "insert", "type": "video", "id": "a"}
ONCE = {"key": "k", "number": 1}


def record(payload: Any = "a", topic: TopicName = NAME, **members: Any) -> dict[str, Any]:
    return {"topic": str(topic), "payload": payload, **members}


def parsed(most: int = 100, **members: Any) -> Begin:
    return at_once(parsing_begin(json.dumps(members).encode(), NOW, most))


def lsns(begin: Begin) -> list[int]:
    assert begin.writing is not None
    return [each.lsn for each in begin.writing.records]


# --- The body ---


def test_records_without_an_lsn_get_their_places() -> None:
    begin = parsed(records=[record("a"), record("b", OTHER), record(INSERT, OPLOG)])
    assert lsns(begin) == [0, 1, 2]
    assert begin.writing is not None
    assert set(begin.writing.topics) == {NAME, OTHER, OPLOG}
    assert lsns(parsed(records=[record(lsn=None), record("b", lsn=1)])) == [0, 1]


def test_given_numbers_have_any_order_and_no_gap() -> None:
    assert lsns(parsed(records=[record("c", lsn=2), record("b"), record("a", lsn=0)])) == [2, 1, 0]
    assert lsns(parsed(records=[record(lsn=0), record(lsn=0)])) == [0]
    for given, missing in (([1, 2], 0), ([0, 2], 1), ([0, 1, 99], 2)):
        with pytest.raises(MessageError, match=f"^records: lack lsn {missing};"):
            parsed(records=[record(lsn=lsn) for lsn in given])


def test_the_members_of_a_begin_are_those_without_records() -> None:
    given: dict[str, Any] = {"group": "g", "timeout_ms": 5, "once": ONCE}
    begin = parsed(records=[record()], **given)
    assert begin._replace(writing=None) == parsed(**given)
    assert parsed(records=None, group=None) == Begin("default", None, 60_000)
    assert parsed(topic="ns/t", records=[record()]).topic == NAME


@pytest.mark.parametrize(
    ("members", "start"),
    [
        ({"records": []}, "records: there is none"),
        ({"records": {}}, "records: must be a list"),
        ({"records": "a"}, "records: must be a list"),
        ({"records": [record(lsn=-1)]}, "records[0].lsn: "),
        ({"records": [record(), 5]}, "records[1]: "),
        ({"records": [record(topic=GROUP_LOG)]}, "records[0].topic: "),
        ({"records": [record()], "more": 1}, "more: "),
        ({"records": [record()], "group": "a b"}, "group: "),
        ({"records": [record()], "group": ["a"]}, "group: "),
        ({"records": [record()], "group": "g" * MAX_BYTES}, "group: "),
        ({"topic": "ns/t", "records": [record(), record(topic=OTHER)]}, "records[1].topic: "),
        ({"topic": "system/oplog", "records": [record()]}, "records[0].topic: "),
    ],
)
@pytest.mark.parametrize("is_long", [False, True])
def test_a_bad_member_is_named(members: dict[str, Any], start: str, is_long: bool) -> None:
    raw = json.dumps(members).encode() + b" " * (MANY_BYTES if is_long else 0)
    with pytest.raises(OplogError) as caught:
        at_once(parsing_begin(raw, NOW, 100))
    text = str(caught.value)
    if isinstance(caught.value, InvalidMessagesError):
        text = f"{caught.value.bad[0].field}: "
    assert text.startswith(start)


def test_the_records_have_the_limits_of_a_transaction() -> None:
    parsed(most=2, records=[record(), record()])
    with pytest.raises(TransactionTooLargeError, match="may have 2 records"):
        parsed(most=2, records=[record()] * 3)
    with pytest.raises(TransactionConflictError, match="lsn 0 is given twice"):
        parsed(records=[record("a", lsn=0), record("b", lsn=0)])


@pytest.mark.parametrize("raw", [b" " * (MAX_BYTES + 1), b"{}" + b" " * MAX_BYTES, b"[" * 20_000])
def test_a_long_body_needs_records(raw: bytes) -> None:
    with pytest.raises(TooLargeError):
        at_once(parsing_begin(raw, NOW, 100))


# --- The service ---


class Bench:
    def __init__(self) -> None:
        self.topics = MemoryTopics(lambda: 1_700_000_000_000)
        self.transactions = MemoryTransactions(self.topics)
        self.acknowledged: dict[int, int] = {}
        self.service = TransactionService(
            self.transactions,
            self.topics,
            KnownTopics(self.topics),
            RecordLimits(100, 1_000),
            self.acknowledged.__setitem__,
        )

    async def commit(self, *records: dict[str, Any], **members: Any) -> Commit:
        return await self.service.commit_whole(parsed(records=records, **{"group": "g", **members}))

    async def head(self, name: TopicName) -> tuple[int, int]:
        topic = await self.topics.find(name)
        assert topic is not None
        return topic.log, (await self.topics.log(topic).locate()).head.offset


def run(work: Callable[[Bench], Any]) -> None:
    asyncio.run(work(Bench()))


def test_the_next_poll_of_this_agent_sees_the_commit() -> None:
    async def work(bench: Bench) -> None:
        await bench.topics.create(NAME, None)
        await bench.commit(record(), record("b"))
        assert bench.acknowledged == dict([await bench.head(NAME), await bench.head(GROUP_LOG)])

    run(work)


def test_deleted_topics_and_commit_logs_are_looked_up_again() -> None:
    async def work(bench: Bench) -> None:
        for gone in ([NAME], [GROUP_LOG], [NAME, GROUP_LOG], [OTHER, NAME]):
            for name in (NAME, OTHER):
                if await bench.topics.find(name) is None:
                    await bench.topics.create(name, None)
            await bench.commit(record(), record(topic=OTHER))
            for name in gone:
                await bench.topics.delete(name)
                if name != GROUP_LOG:
                    with pytest.raises(TopicNotFoundError, match=str(name)):
                        await bench.commit(record(), record(topic=OTHER))
                    await bench.topics.create(name, None)
            assert len([*(await bench.commit(record(), record(topic=OTHER))).record_ids()]) == 2
        assert (await bench.transactions.stats()).open == 0

    run(work)


def test_a_transaction_of_a_topic_created_again_commits_there() -> None:
    async def work(bench: Bench) -> None:
        for _ in range(2):
            topic = await bench.topics.create(NAME, None)
            commit = await bench.commit(record(), group=None, topic=str(NAME))
            assert (commit.transaction.log, commit.transaction.group) == (topic.log, None)
            await bench.topics.delete(NAME)

    run(work)


def test_a_repeated_number_gets_its_commit_although_the_topic_was_deleted() -> None:
    async def work(bench: Bench) -> None:
        await bench.topics.create(NAME, None)
        first = await bench.commit(record(), once=ONCE)
        assert first.transaction.once == OnceNumber("k", 1)
        await bench.topics.delete(NAME)
        assert await bench.commit(record(), once=ONCE) == first
        with pytest.raises(TransactionConflictError, match="number 0 of the key k is over"):
            await bench.commit(record(), once={**ONCE, "number": 0})
        for other in (None, {**ONCE, "number": 2}, {**ONCE, "key": "other"}):
            with pytest.raises(TopicNotFoundError):
                await bench.commit(record(), once=other)

    run(work)


def test_more_bytes_than_a_transaction_may_have_are_refused() -> None:
    async def work(bench: Bench) -> None:
        await bench.topics.create(NAME, None)
        with pytest.raises(TransactionTooLargeError, match=r"1,000 bytes \(--txn-max-bytes\)"):
            await bench.commit(record("x" * 600), record("y" * 600))
        assert await bench.transactions.select(None, None, 10) == []

    run(work)


def test_the_answer_names_the_transaction() -> None:
    async def work(bench: Bench) -> None:
        await bench.topics.create(NAME, None)
        commit = await bench.commit(record())
        answer = json.loads(at_once(answers.encoding_commit(commit, is_named=True)))
        assert answer.pop("txn") == str(commit.transaction.id)
        assert answer == json.loads(at_once(answers.encoding_commit(commit)))

    run(work)

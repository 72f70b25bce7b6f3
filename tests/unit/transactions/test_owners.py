"""The owner of a transaction at the service: given with a begin, required of later requests."""

import asyncio
from typing import Any

import pytest

from oplogd.errors import (
    OnceKeyNotFoundError,
    TransactionConflictError,
    TransactionNotFoundError,
)
from oplogd.model.lease import Fence
from oplogd.model.message import of_payload
from oplogd.model.names import TopicName
from oplogd.model.once import OnceNumber
from oplogd.model.operation import decode
from oplogd.model.transaction import State
from oplogd.store.transactions import RecordLimits, Transaction
from oplogd.topics.known import KnownTopics
from oplogd.topics.transactions.begin import Begin
from oplogd.topics.transactions.rules import GivenRecord, Writing
from oplogd.topics.transactions.service import TransactionService
from tests.kits.topics.memory import MemoryTopics
from tests.kits.topics.memory_transactions import MemoryTransactions

ADA, BOB = "sub:ada", "user:bob"
NOW = "2024-12-01T10:00:00.000Z"
OPLOG = TopicName("system", "oplog")
BEGIN = Begin("g", None, 60_000, owner=ADA)


class Counting(MemoryTransactions):
    """``found``: number of look-ups."""

    found = 0

    async def find(self, id_: int) -> Transaction:
        self.found += 1
        return await super().find(id_)


@pytest.fixture
def store() -> Counting:
    return Counting(MemoryTopics(lambda: 1_700_000_000_000))


@pytest.fixture
def service(store: Counting) -> TransactionService:
    topics = store.topics
    return TransactionService(store, topics, KnownTopics(topics), RecordLimits(100, 10**6))


def whole(once: OnceNumber | None = None, owner: str | None = ADA) -> Begin:
    given = b'{"event": "insert", "type": "order", "id": "7"}'
    operation = decode(given, NOW)
    record = GivenRecord(0, OPLOG, operation, "digest")
    return BEGIN._replace(once=once, owner=owner, writing=Writing([record], {OPLOG}, 1))


def run(work: Any) -> None:
    asyncio.run(work())


def test_a_transaction_belongs_to_the_sender_of_its_begin(service: TransactionService) -> None:
    async def work() -> None:
        begun = await service.begin(BEGIN)
        commit = await service.commit_whole(whole())
        nobodys = await service.begin(BEGIN._replace(owner=None))
        assert (begun.owner, commit.transaction.owner, nobodys.owner) == (ADA, ADA, None)
        shown = await service.shown([begun, nobodys])
        assert [each["owner"] for each in shown] == [ADA, None]
        assert {each.id for each in await service.select(None, None, 9, owner=ADA)} == {
            begun.id,
            commit.transaction.id,
        }
        assert await service.select(State.OPEN, "g", 9, begun.id, ADA) == []

    run(work)


def test_a_transaction_of_another_one_is_not_there(service: TransactionService) -> None:
    async def work() -> None:
        begun = await service.begin(BEGIN)
        nobodys = await service.begin(BEGIN._replace(owner=None))
        await service.require_owner(begun.id, ADA)
        assert await service.find(begun.id, ADA) == begun
        for id_, owner in ((begun.id, BOB), (nobodys.id, BOB), (nobodys.id, ADA), (5, ADA)):
            for refusing in (service.require_owner(id_, owner), service.find(id_, owner)):
                with pytest.raises(TransactionNotFoundError) as refused:
                    await refusing
                assert str(refused.value) == f"there is no transaction {id_}"

    run(work)


def test_owner_and_fence_share_a_look_up(service: TransactionService, store: Counting) -> None:
    async def work() -> None:
        id_ = (await service.begin(BEGIN)).id
        fence = Fence("orders", 1)
        await service.require_owner(id_, None)
        await service.require_owner(5, None)
        await service.require_owner(5, None)
        assert store.found == 0, "nothing is asked for"
        await service.require_owner(id_, ADA)
        assert store.found == 1
        for refusing in (service.require_owner(id_, each, fence) for each in (ADA, None)):
            with pytest.raises(TransactionConflictError, match="was begun"):
                await refusing
        with pytest.raises(TransactionNotFoundError):
            await service.require_owner(id_, BOB, fence)
        assert store.found == 4

    run(work)


def test_a_key_of_another_one_is_not_there(service: TransactionService) -> None:
    async def work() -> None:
        await service.commit_whole(whole(OnceNumber("mine", 1)))
        await service.commit_whole(whole(OnceNumber("theirs", 1), BOB))
        assert (await service.newest("mine", ADA)).owner == ADA
        assert (await service.newest("theirs")).owner == BOB
        assert [each.owner for each in await service.keys("", 9, ADA)] == [ADA]
        assert len(await service.keys("", 9)) == 2
        for refusing in (service.newest("theirs", ADA), service.forget_key("theirs", ADA)):
            with pytest.raises(OnceKeyNotFoundError) as refused:
                await refusing
            assert str(refused.value) == "no transaction has committed with the key theirs"
        await service.forget_key("mine", ADA)
        await service.forget_key("theirs")
        assert await service.keys("", 9) == []

    run(work)


def test_a_commit_of_another_one_is_no_answer_although_a_topic_is_missing(
    service: TransactionService,
) -> None:
    async def work() -> None:
        theirs = await service.commit_whole(whole(OnceNumber("k", 2), BOB))
        gone = TopicName("ns", "gone")
        for number in (1, 2, 3):
            record = GivenRecord(0, gone, of_payload(b"a"), "digest")
            asked = whole(OnceNumber("k", number))
            asked = asked._replace(writing=Writing([record], {gone}, 1))
            with pytest.raises(TransactionConflictError) as refused:
                await service.commit_whole(asked)
            assert str(refused.value) == "the key k belongs to another client"
            if number == 2:
                assert await service.commit_whole(asked._replace(owner=BOB)) == theirs

    run(work)

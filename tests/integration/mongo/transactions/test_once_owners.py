"""Commits of two owners with one key, one between the steps of the other."""

import asyncio

import pytest
from pymongo.database import Database

from oplogd.errors import TransactionConflictError
from oplogd.model.once import OnceNumber
from oplogd.model.transaction import Reason, State
from oplogd.store.mongo import MongoStore
from oplogd.store.mongo.link.layout import Document
from oplogd.store.transactions import NewTransaction, Transaction
from tests.integration.mongo.committing import (
    LIMITS,
    TIMEOUT_MS,
    KilledError,
    Steps,
    commit_log,
    opened,
    operation,
    stepping,
    topics_of,
)
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.fixtures import MakeStore

ADA, BOB = "sub:ada", "user:bob"
REFUSED = "^the key import belongs to another client$"


async def new(store: MongoStore, owner: str | None, number: int = 1) -> NewTransaction:
    once = OnceNumber("import", number)
    log = (await commit_log(store)).log
    return NewTransaction(log, "default", None, TIMEOUT_MS, once=once, owner=owner)


async def begin_as(store: MongoStore, owner: str | None, number: int = 1) -> Transaction:
    return await store.transactions.begin(await new(store, owner, number))


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("step", ["claimed", "decided", "commit-record", "settled", "finished"])
async def test_an_owner_does_not_end_a_transaction_of_another_one_that_has_the_claim(
    plain_url: str,
    make_store: MakeStore,
    database: Database[Document],
    step: str,
    number: int,
) -> None:
    steps = Steps()
    old, other = await stepping(make_store, plain_url, steps), await opened(make_store, plain_url)
    await topics_of(other)
    first, rival = await begin_as(old, ADA), await begin_as(other, BOB, number)
    steps.hold_at = step
    committing = asyncio.create_task(old.transactions.commit(first.id, 0))
    await steps.held.wait()
    with pytest.raises(TransactionConflictError, match=REFUSED):
        await other.transactions.commit(rival.id, 0)
    with pytest.raises(TransactionConflictError, match=REFUSED):
        await other.transactions.commit_whole(
            await new(other, BOB, number), [operation(0, "x")], LIMITS
        )
    steps.go_on.set()
    done = await committing
    assert done.transaction.id == first.id
    assert (await other.transactions.newest("import")).id == first.id
    assert (await other.transactions.find(rival.id)).state is State.OPEN
    (row,) = database["oplog_once"].find({})
    assert (row["number"], row["txn"], row.get("claim")) == (1, first.id, None)
    assert await other.read(0, 100) == []


async def test_the_claim_of_a_dead_agent_is_free_for_others_when_its_transaction_is_overdue(
    plain_url: str, make_store: MakeStore, clock: VirtualClock
) -> None:
    steps = Steps()
    old, other = await stepping(make_store, plain_url, steps), await opened(make_store, plain_url)
    await topics_of(other)
    first = await begin_as(old, ADA)
    steps.kill_at = "claimed", 1
    with pytest.raises(KilledError):
        await old.transactions.commit(first.id, 0)
    rival = await begin_as(other, BOB)
    with pytest.raises(TransactionConflictError, match=REFUSED):
        await other.transactions.commit(rival.id, 0)
    clock.ms += TIMEOUT_MS + 1
    rival = await begin_as(other, BOB)
    assert (await other.transactions.commit(rival.id, 0)).transaction.owner == BOB
    assert (await other.transactions.find(first.id)).reason is Reason.TIMEOUT


async def test_an_owner_ends_its_own_transaction_that_has_the_claim(
    plain_url: str, make_store: MakeStore
) -> None:
    steps = Steps()
    old, other = await stepping(make_store, plain_url, steps), await opened(make_store, plain_url)
    await topics_of(other)
    first, again = await begin_as(old, ADA), await begin_as(other, ADA)
    steps.kill_at = "claimed", 1
    with pytest.raises(KilledError):
        await old.transactions.commit(first.id, 0)
    done = await other.transactions.commit(again.id, 0)
    assert done.transaction.id == again.id
    assert await other.transactions.commit(first.id, 0) == done


async def test_a_transaction_without_an_owner_takes_a_claim_over(
    plain_url: str, make_store: MakeStore
) -> None:
    steps = Steps()
    old, other = await stepping(make_store, plain_url, steps), await opened(make_store, plain_url)
    await topics_of(other)
    first, taking = await begin_as(old, ADA), await begin_as(other, None)
    steps.hold_at = "claimed"
    committing = asyncio.create_task(old.transactions.commit(first.id, 0))
    await steps.held.wait()
    done = await other.transactions.commit(taking.id, 0)
    steps.go_on.set()
    with pytest.raises(TransactionConflictError, match=REFUSED):
        await committing
    assert done.transaction.id == taking.id
    assert (await other.transactions.find(first.id)).reason is Reason.ONCE


async def test_a_claim_without_an_owner_is_not_taken_over_by_an_owner(
    plain_url: str, make_store: MakeStore
) -> None:
    steps = Steps()
    old, other = await stepping(make_store, plain_url, steps), await opened(make_store, plain_url)
    await topics_of(other)
    await other.transactions.commit((await begin_as(other, ADA)).id, 0)
    first, rival = await begin_as(old, None, 2), await begin_as(other, ADA, 3)
    steps.hold_at = "claimed"
    committing = asyncio.create_task(old.transactions.commit(first.id, 0))
    await steps.held.wait()
    with pytest.raises(TransactionConflictError, match=REFUSED):
        await other.transactions.commit(rival.id, 0)
    steps.go_on.set()
    assert (await committing).transaction.id == first.id


async def test_a_repeated_commit_is_answered_although_the_key_was_taken_over_meanwhile(
    plain_url: str, make_store: MakeStore
) -> None:
    steps = Steps()
    old, other = await stepping(make_store, plain_url, steps), await opened(make_store, plain_url)
    await topics_of(other)
    first = await begin_as(old, ADA)
    steps.hold_at = "fence"
    committing = asyncio.create_task(old.transactions.commit(first.id, 0))
    await steps.held.wait()
    done = await other.transactions.commit(first.id, 0)
    await other.transactions.commit((await begin_as(other, None, 2)).id, 0)
    steps.go_on.set()
    assert await committing == done

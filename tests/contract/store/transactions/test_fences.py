"""The fence of a transaction in every store: judged with the decision to commit."""

import asyncio

import pytest

from oplogd.errors import StaleFenceError, TransactionConflictError
from oplogd.model.lease import Fence
from oplogd.model.transaction import Reason, State
from oplogd.store import Store
from oplogd.store.topics import Topic
from oplogd.store.transactions import NewTransaction, Transaction
from tests.kits.clock.virtual import VirtualClock
from tests.kits.models.operations import operation
from tests.kits.store.kits import Kit, log_of
from tests.kits.store.leasing import ORDERS, TTL_MS, fenced_messages, lead
from tests.kits.store.messages import NAME
from tests.kits.store.transacting import (
    EVERY,
    TIMEOUT_MS,
    group_log,
    oplog_record,
    payloads_committed,
    record,
    records,
    write,
)


async def begin_fenced(store: Store, fence: Fence, topic: Topic | None = None) -> Transaction:
    """Begin a transaction of a group, or with a topic."""
    if topic is not None:
        new = NewTransaction(topic.log, None, topic.log, TIMEOUT_MS, fence)
    else:
        new = NewTransaction((await group_log(store)).log, "default", None, TIMEOUT_MS, fence)
    return await store.transactions.begin(new)


@pytest.mark.parametrize("txn_kits", EVERY, indirect=True)
async def test_a_transaction_of_an_earlier_term_does_not_commit(
    txn_kit: Kit, lease_store: Store
) -> None:
    other = await txn_kit.open()
    topic = await lease_store.topics.create(NAME, None)
    old = await lead(lease_store, "a")
    first = await begin_fenced(lease_store, old)
    await write(lease_store, first, record(0, topic, "old"), oplog_record(1, operation()))
    new = await lead(other, "a", refresh=True)
    second = await begin_fenced(other, new)
    await write(other, second, record(0, topic, "new"))
    await other.transactions.commit(second.id, 1)
    for store in (lease_store, other):
        for _ in range(2):
            with pytest.raises(StaleFenceError) as refused:
                await store.transactions.commit(first.id, 2)
            assert str(refused.value) == (
                f"term {old.term} of the lease {ORDERS} is over; transaction {first.id} was aborted"
            )
            with pytest.raises(StaleFenceError):
                await write(store, first, record(2, topic, "late"))
        found = await store.transactions.find(first.id)
        assert (found.state, found.reason, found.fence) == (State.ABORTED, Reason.FENCE, old)
        assert await store.transactions.abort(first.id) == found
        assert await payloads_committed(store, topic) == ["new"]
    assert await log_of(lease_store) == []
    assert lease_store.transactions.decisions.committed == 0


@pytest.mark.parametrize("with_topic", [False, True])
async def test_the_present_term_commits_also_past_the_expiry_and_ever_after(
    txn_kit: Kit, lease_store: Store, with_topic: bool
) -> None:
    topic = await lease_store.topics.create(NAME, None)
    fence = await lead(lease_store, "a")
    transaction = await begin_fenced(lease_store, fence, topic if with_topic else None)
    assert transaction.fence == fence
    txn_kit.clock.ms += 2 * TTL_MS
    await write(lease_store, transaction, *records(topic, "a", "b"))
    commit = await lease_store.transactions.commit(transaction.id, 2)
    assert commit.transaction.fence == fence
    other = await txn_kit.open()
    await lead(other, "b")
    assert await other.transactions.commit(transaction.id, 2) == commit, "a repeated request"
    with pytest.raises(TransactionConflictError, match="committed"):
        await other.transactions.abort(transaction.id)
    assert await payloads_committed(other, topic) == ["a", "b"]


async def test_nothing_begins_under_a_term_that_is_over_or_never_was(lease_store: Store) -> None:
    fence = await lead(lease_store, "a")
    await lead(lease_store, "a", refresh=True)
    for stale in (fence, Fence(ORDERS, 9), Fence("unknown", 1)):
        with pytest.raises(StaleFenceError, match=f"term {stale.term} of the lease {stale.lease}"):
            await begin_fenced(lease_store, stale)
    assert await lease_store.transactions.select(None, None, 10) == []


async def test_a_release_ends_the_open_transactions_of_its_term(
    txn_kit: Kit, lease_store: Store
) -> None:
    topic = await lease_store.topics.create(NAME, None)
    fence = await lead(lease_store, "a")
    transaction = await begin_fenced(lease_store, fence)
    await write(lease_store, transaction, record(0, topic, "a"))
    unfenced = NewTransaction((await group_log(lease_store)).log, "default", None, TIMEOUT_MS)
    free = await lease_store.transactions.begin(unfenced)
    await write(lease_store, free, record(0, topic, "free"))
    other_fence = await lead(lease_store, "a", name="others")
    other = await begin_fenced(lease_store, other_fence)
    await write(lease_store, other, record(0, topic, "other"))
    await (await txn_kit.open()).leases.release(ORDERS, "a", fence.term)
    with pytest.raises(StaleFenceError):
        await lease_store.transactions.commit(transaction.id, 1)
    await lease_store.transactions.commit(free.id, 1)
    await lease_store.transactions.commit(other.id, 1)
    assert await payloads_committed(lease_store, topic) == ["free", "other"]


async def test_commits_and_new_terms_at_the_same_time_keep_their_order(
    txn_kit: Kit, lease_store: Store
) -> None:
    """No commit of a term stands in the topic behind a message of a later term."""
    topic = await lease_store.topics.create(NAME, None)
    others = [lease_store, await txn_kit.open(), await txn_kit.open()]
    fence = await lead(lease_store, "a")
    for _ in range(6):
        open_ = []
        for store in others:
            transaction = await begin_fenced(store, fence)
            await write(store, transaction, record(0, topic, fence.term))
            open_.append(transaction)

        async def lead_on() -> Fence:
            new = await lead(others[1], "a", refresh=True)
            (outcome,) = await others[1].topics.append([fenced_messages(topic, new, new.term)])
            assert outcome
            return new

        results = await asyncio.gather(
            lead_on(),
            *(s.transactions.commit(t.id, 1) for s, t in zip(others, open_, strict=True)),
            return_exceptions=True,
        )
        assert isinstance(results[0], Fence), results
        fence = results[0]
        for each in results[1:]:
            assert not isinstance(each, BaseException) or isinstance(each, StaleFenceError), each
    terms = list(map(int, await payloads_committed(lease_store, topic)))
    assert terms == sorted(terms)


async def test_a_transaction_of_a_fence_is_forgotten_with_it(
    txn_kit: Kit, lease_store: Store
) -> None:
    clock: VirtualClock = txn_kit.clock
    fence = await lead(lease_store, "a")
    transaction = await begin_fenced(lease_store, fence)
    await lease_store.transactions.abort(transaction.id)
    clock.ms += 2 * 86_400_000
    await lease_store.transactions.keep()
    assert await lease_store.transactions.select(None, None, 10) == []

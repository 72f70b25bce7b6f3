"""Numbers of a key in every store: each is committed by one transaction at most."""

import asyncio

import pytest

from oplogd.errors import OnceKeyNotFoundError, TooManyKeysError, TransactionConflictError
from oplogd.model.once import OnceNumber
from oplogd.model.transaction import Reason, State
from oplogd.store import Store
from oplogd.store.topics import Topic
from oplogd.store.transactions import Commit, NewTransaction, Transaction
from tests.kits.models.operations import operation
from tests.kits.store.kits import Kit, log_of
from tests.kits.store.messages import NAME
from tests.kits.store.transacting import (
    EVERY,
    TIMEOUT_MS,
    decisions_in,
    group_log,
    oplog_record,
    payloads_committed,
    record,
    write,
)

KEY = "import-7"
DAY_MS = 86_400_000


async def begin_once(
    store: Store, number: int, *, key: str = KEY, topic: Topic | None = None
) -> Transaction:
    """Begin a transaction of a group, or with a topic."""
    once = OnceNumber(key, number)
    if topic is not None:
        new = NewTransaction(topic.log, None, topic.log, TIMEOUT_MS, once=once)
    else:
        new = NewTransaction((await group_log(store)).log, "default", None, TIMEOUT_MS, once=once)
    return await store.transactions.begin(new)


async def commit_once(
    store: Store, number: int, topic: Topic, *payloads: object, key: str = KEY
) -> Commit:
    begun = await begin_once(store, number, key=key)
    await write(store, begun, *(record(lsn, topic, each) for lsn, each in enumerate(payloads)))
    return await store.transactions.commit(begun.id, len(payloads))


@pytest.mark.parametrize("txn_kits", EVERY, indirect=True)
@pytest.mark.parametrize("with_topic", [False, True])
async def test_the_second_commit_of_a_number_gets_the_answer_of_the_first(
    txn_kit: Kit, lease_store: Store, with_topic: bool
) -> None:
    other = await txn_kit.open()
    topic = await lease_store.topics.create(NAME, None)
    only = topic if with_topic else None
    first = await begin_once(lease_store, 3, topic=only)
    second = await begin_once(other, 3, topic=only)
    assert first.once == OnceNumber(KEY, 3)
    await write(lease_store, first, record(0, topic, "first"))
    await write(other, second, record(0, topic, "second"), record(1, topic, "more"))
    if not with_topic:
        await write(other, second, oplog_record(2, operation()))
    won = await other.transactions.commit(second.id, 2)
    for store in (lease_store, other, lease_store):
        lost = await store.transactions.commit(first.id, 1)
        assert lost == won
        assert [*lost.record_ids()] == [*won.record_ids()]
        assert lost.transaction.id == second.id
    found = await other.transactions.find(first.id)
    assert (found.state, found.reason) == (State.ABORTED, Reason.ONCE)
    assert await payloads_committed(other, topic) == ["second", "more"]
    kinds = sorted(str(kind) for kind, _ in await decisions_in(lease_store, topic))
    assert kinds == ["abort", "commit"]
    assert await log_of(lease_store) == []
    assert lease_store.transactions.decisions.committed == 0
    begun = await begin_once(lease_store, 3, topic=only)
    assert begun == won.transaction


async def test_a_number_that_is_over_neither_begins_nor_commits(
    txn_kit: Kit, lease_store: Store
) -> None:
    topic = await lease_store.topics.create(NAME, None)
    late = await begin_once(lease_store, 4)
    await write(lease_store, late, record(0, topic, "late"))
    other = await txn_kit.open()
    await commit_once(other, 9, topic, "newest")
    for _ in range(2):
        with pytest.raises(TransactionConflictError) as refused:
            await lease_store.transactions.commit(late.id, 1)
        assert str(refused.value) == (
            f"transaction {late.id} was aborted because another transaction has its number"
        )
    with pytest.raises(TransactionConflictError) as refused:
        await begin_once(lease_store, 8)
    assert str(refused.value) == "number 8 of the key import-7 is over; the newest is 9"
    await commit_once(lease_store, 10, topic, "next")
    await commit_once(lease_store, 0, topic, "another key", key="import-8")
    assert await payloads_committed(lease_store, topic) == ["newest", "next", "another key"]


@pytest.mark.parametrize("end", ["abort", "time-out"])
async def test_a_transaction_without_a_commit_frees_its_number(
    txn_kit: Kit, lease_store: Store, end: str
) -> None:
    topic = await lease_store.topics.create(NAME, None)
    first = await begin_once(lease_store, 0)
    await write(lease_store, first, record(0, topic, "given up"))
    if end == "abort":
        await lease_store.transactions.abort(first.id)
    else:
        txn_kit.clock.ms += 2 * TIMEOUT_MS
    done = await commit_once(await txn_kit.open(), 0, topic, "again")
    assert await payloads_committed(lease_store, topic) == ["again"]
    with pytest.raises(TransactionConflictError, match=r"aborted by|timed out"):
        await lease_store.transactions.commit(first.id, 1)
    assert (await lease_store.transactions.newest(KEY)).id == done.transaction.id


async def test_a_commit_that_lacks_records_keeps_its_number_free(lease_store: Store) -> None:
    topic = await lease_store.topics.create(NAME, None)
    first = await begin_once(lease_store, 1)
    with pytest.raises(TransactionConflictError, match="lacks 1 of 1 records"):
        await lease_store.transactions.commit(first.id, 1)
    await commit_once(lease_store, 1, topic, "other")
    # The answer does not depend on what the other one has.
    assert (await lease_store.transactions.commit(first.id, 1)).transaction.records == 1
    assert await payloads_committed(lease_store, topic) == ["other"]


async def test_the_newest_transaction_of_a_key_is_never_forgotten_and_the_one_before_is(
    txn_kit: Kit, lease_store: Store
) -> None:
    topic = await lease_store.topics.create(NAME, None)
    first = await commit_once(lease_store, 1, topic, "a")
    txn_kit.clock.ms += 3 * DAY_MS
    await lease_store.transactions.keep()
    assert await begin_once(lease_store, 1) == first.transaction
    assert await lease_store.transactions.commit(first.transaction.id, 1) == first
    second = await commit_once(lease_store, 2, topic, "b")
    await lease_store.transactions.keep()
    shown = await lease_store.transactions.select(None, None, 10)
    assert [each.once and each.once.number for each in shown] == [2, 1], "for another day"
    txn_kit.clock.ms += 3 * DAY_MS
    await lease_store.transactions.keep()
    assert await lease_store.transactions.select(None, None, 10) == [second.transaction]
    txn_kit.clock.ms += 3 * DAY_MS
    await lease_store.transactions.keep()
    assert await lease_store.transactions.newest(KEY) == second.transaction


async def test_keys_are_listed_and_a_deleted_one_begins_anew(
    txn_kit: Kit, lease_store: Store
) -> None:
    topic = await lease_store.topics.create(NAME, None)
    for key in ("c", "a", "b"):
        for number in (1, 2):
            await commit_once(lease_store, number, topic, f"{key}{number}", key=key)
    other = await txn_kit.open()

    async def listed(after: str, limit: int) -> list[tuple[str, int]]:
        found = await other.transactions.keys(after, limit)
        return [(once.key, once.number) for each in found if (once := each.once)]

    assert await listed("", 10) == [("a", 2), ("b", 2), ("c", 2)]
    assert await listed("a", 1) == [("b", 2)]
    await other.transactions.forget_key("b")
    assert await listed("", 10) == [("a", 2), ("c", 2)]
    for act in (lease_store.transactions.forget_key, lease_store.transactions.newest):
        with pytest.raises(OnceKeyNotFoundError, match="with the key b"):
            await act("b")
    await commit_once(lease_store, 1, topic, "anew", key="b")
    txn_kit.clock.ms += 3 * DAY_MS
    await lease_store.transactions.keep()
    assert len(await lease_store.transactions.select(None, None, 10)) == 3


async def test_commits_of_one_number_at_the_same_time_have_one_winner(
    txn_kit: Kit, lease_store: Store
) -> None:
    topic = await lease_store.topics.create(NAME, None)
    stores = [lease_store, await txn_kit.open(), await txn_kit.open()]
    payloads = []
    for number in range(8):
        begun = [await begin_once(store, number) for store in stores]
        for store, each in zip(stores, begun, strict=True):
            await write(store, each, record(0, topic, each.id))
        results = await asyncio.gather(
            *(
                store.transactions.commit(each.id, 1)
                for store, each in zip(stores, begun, strict=True)
            ),
            return_exceptions=True,
        )
        won = {each.transaction.id for each in results if isinstance(each, Commit)}
        # One that was to commit gives way to another one.
        lost = [each for each in results if isinstance(each, BaseException)]
        assert all(isinstance(each, TransactionConflictError) for each in lost), lost
        assert len(won) == 1
        payloads.append(str(*won))
    assert await payloads_committed(lease_store, topic) == payloads
    assert (await lease_store.transactions.newest(KEY)).id == int(payloads[-1])


@pytest.mark.parametrize("txn_kits", ["sqlite", "mongo-plain"], indirect=True)
async def test_a_store_takes_no_more_keys_than_it_may(
    txn_kit: Kit, lease_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("sqlite.transactions.once", "mongo.transactions.claims"):
        monkeypatch.setattr(f"oplogd.store.{module}.MAX_KEYS", 2)
    topic = await lease_store.topics.create(NAME, None)
    for key in ("a", "b"):
        await commit_once(lease_store, 1, topic, key, key=key)
    with pytest.raises(TooManyKeysError, match="DELETE /v1/once/KEY"):
        await begin_once(lease_store, 1, key="c")
    await commit_once(lease_store, 2, topic, "known", key="a")
    await lease_store.transactions.forget_key("b")
    await commit_once(lease_store, 1, topic, "c", key="c")

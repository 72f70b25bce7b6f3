"""Whole transactions in every store: the same as a begin, a write and a commit."""

import asyncio
import re
from typing import Any

import pytest

from oplogd.errors import (
    OplogError,
    StaleFenceError,
    TopicError,
    TopicNotFoundError,
    TransactionConflictError,
    TransactionTooLargeError,
)
from oplogd.model.lease import Fence
from oplogd.model.once import OnceNumber
from oplogd.model.transaction import Reason, Record, State
from oplogd.store import Store
from oplogd.store.topics import DECIDED_MS, EntryKind, Topic
from oplogd.store.transactions import Commit, NewTransaction, RecordLimits
from tests.kits.models.operations import operation
from tests.kits.store.bounded import BOUND, FIT, SIZE, settle
from tests.kits.store.kits import Kit, Kits, log_of
from tests.kits.store.leasing import lead
from tests.kits.store.messages import NAME, entries_of, named, publish
from tests.kits.store.transacting import (
    EVERY,
    LIMITS,
    StoreHandle,
    group_log,
    new_transaction,
    oplog_record,
    payloads_committed,
    payloads_uncommitted,
    record,
    records,
    seen_committed,
    told_in,
)

ONCE = OnceNumber("import-7", 3)


async def new_of(
    store: StoreHandle,
    group: str = "default",
    *,
    topic: Topic | None = None,
    fence: Fence | None = None,
    once: OnceNumber | None = None,
) -> NewTransaction:
    new = await new_transaction(store, group, topic=topic)
    return new._replace(fence=fence, once=once)


async def in_one(store: StoreHandle, new: NewTransaction, *given: Record) -> Commit:
    return await store.transactions.commit_whole(new, given, LIMITS)


async def in_three(store: StoreHandle, new: NewTransaction, *given: Record) -> Commit:
    begun = await store.transactions.begin(new)
    await store.transactions.write(begun.id, given, LIMITS)
    return await store.transactions.commit(begun.id, len(given))


async def traces(store: Store, topics: list[Topic], commits: list[Commit]) -> list[str]:
    """Return all that is left of transactions, with numbers in place of random ones."""
    found: list[object] = []
    logs = [*topics, await group_log(store), await group_log(store, "g")]
    for topic in logs:
        found.append(await entries_of(store.topics.log(topic)))
    for topic in topics:
        found += [await seen_committed(store, topic), await payloads_uncommitted(store, topic)]
    found.append(await log_of(store))
    for commit in commits:
        id_ = commit.transaction.id
        assert await store.transactions.find(id_) == commit.transaction
        assert await store.transactions.commit(id_, commit.transaction.records) == commit
        found += [commit, [*commit.record_ids()]]
    found.append(await store.transactions.stats())
    found.append(store.transactions.decisions)
    text = repr(found)
    for number, commit in enumerate(commits):
        text = text.replace(str(commit.transaction.id), f"txn-{number}")
    if (first := min(topic.log for topic in logs)) > 1_000:  # a store on MongoDB begins anywhere
        for number in range(first, first + len(logs)):
            text = text.replace(str(number), f"log-{number - first}")
    return text.replace("), ", "),\n").split("\n")


@pytest.mark.parametrize("txn_kits", EVERY, indirect=True)
async def test_one_call_leaves_the_same_as_three(txn_kits: Kits) -> None:
    left = []
    for run in (in_one, in_three):
        async with txn_kits() as kit:
            store = await kit.open()
            topics = [await store.topics.create(named(name), None) for name in "ab"]
            a, b = topics
            await publish(store.topics, a, "before")
            commits = [await run(store, await new_of(store), *records(a, "one", "two"))]
            kit.clock.move(3)
            commits.append(await run(store, await new_of(store), *records(a, "later")))
            commits += [
                await run(
                    store,
                    await new_of(store, "g"),
                    record(2, b, "b2"),
                    oplog_record(1, operation(id_="1")),
                    record(0, a, "a0", ttl=50),
                    oplog_record(3, operation(id_="2")),
                ),
                await run(store, await new_of(store, topic=a), *records(a, "only")),
                await run(store, await new_of(store, once=ONCE), record(0, b, "once")),
                await run(store, await new_of(store), oplog_record(0, operation(id_="3"))),
            ]
            await publish(store.topics, b, "after")
            left.append(await traces(store, topics, commits))
    assert left[0] == left[1]


@pytest.mark.parametrize("txn_kits", ["sqlite"], indirect=True)
@pytest.mark.parametrize("most_together", [12, 320])
async def test_those_that_share_statements_leave_the_same_as_each_alone(
    txn_kits: Kits, most_together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oplogd.store.sqlite.file.shared_write.MAX_TOGETHER", most_together)
    left = []
    for how in ("together", in_one, in_three):
        async with txn_kits() as kit:
            store = await kit.open()
            topics = [await store.topics.create(named(name), None) for name in "ab"]
            news = [await new_of(store), await new_of(store), await new_of(store, "g")]
            run = in_one if isinstance(how, str) else how
            calls = [
                run(
                    store,
                    news[number % 3],
                    record(0, topics[number % 2], number),
                    record(1, topics[1 - number % 2], number),
                    *([oplog_record(2, operation(id_=str(number)))] if number % 2 else []),
                )
                for number in range(11)
            ]
            await store.append([operation()])
            kit.clock.jump(-200_000)  # all stamps and ids lead the clock
            store.clock.trust()
            if how == "together":
                commits = [*await asyncio.gather(*calls)]
            else:
                commits = [await call for call in calls]
            left.append(await traces(store, topics, commits))
    assert left[0] == left[1] == left[2]


async def test_it_is_one_place_for_committed_readers_of_each_topic(txn_store: StoreHandle) -> None:
    topic = await txn_store.topics.create(NAME, None)
    new = await new_of(txn_store)
    commit = await in_one(txn_store, new, *records(topic, "a", "b"))
    assert commit.transaction.state is State.COMMITTED
    assert [id_ for id_, _ in await seen_committed(txn_store, topic)] == [*commit.record_ids()]
    kinds = [each.event for each in await entries_of(txn_store.topics.log(topic))]
    assert kinds == [EntryKind.DEFERRED, EntryKind.DEFERRED, EntryKind.COMMIT]
    id_ = str(commit.transaction.id)
    assert [key for key, _ in await told_in(txn_store)] == [id_, id_]
    assert (await txn_store.transactions.stats()).open == 0


async def test_many_at_the_same_time_have_one_order_and_miss_no_offset(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    stores = [txn_store, await txn_kit.open()]
    topics = [await txn_store.topics.create(named(name), None) for name in "xy"]
    new = await new_of(txn_store)
    commits = await asyncio.gather(
        *(
            in_one(stores[number % 2], new, *(record(k, topics[k], number) for k in range(2)))
            for number in range(30)
        )
    )
    order = await payloads_committed(txn_store, topics[0])
    assert await payloads_committed(txn_store, topics[1]) == order
    assert sorted(map(int, order)) == [*range(30)]
    ids = [str(commits[int(number)].transaction.id) for number in order]
    told = await told_in(txn_store)
    assert [key for key, payload in told if '"commit"' in payload] == ids
    assert len(told) == 60
    for topic in topics:
        offsets = [each.offset for each in await entries_of(txn_store.topics.log(topic))]
        assert offsets == [*range(1, 61)]


async def test_a_refused_one_leaves_the_others_and_nothing_of_itself(
    txn_kit: Kit, lease_store: Store
) -> None:
    kept, gone = [await lease_store.topics.create(named(name), None) for name in ("kept", "gone")]
    await lease_store.topics.delete(gone.name)
    old = await lead(lease_store, "a")
    await lead(lease_store, "a", refresh=True)
    done = OnceNumber("over", 5)
    await in_one(lease_store, await new_of(lease_store, once=done), record(0, kept, "first"))
    plain = await new_of(lease_store)
    limits = RecordLimits(3, 40)
    call = lease_store.transactions.commit_whole
    over = await new_of(lease_store, once=OnceNumber("over", 4))
    refused: list[tuple[NewTransaction, list[Record], type[OplogError]]] = [
        (plain, [record(0, kept, "no"), record(1, gone, "no")], TopicNotFoundError),
        (await new_of(lease_store, fence=old), [record(0, kept, "no")], StaleFenceError),
        (over, [record(0, kept, "no")], TransactionConflictError),
        (plain, records(kept, *"abcd"), TransactionTooLargeError),
        (plain, [record(0, kept, "x" * 40)], TransactionTooLargeError),
        (await new_of(lease_store, topic=kept), [oplog_record(0, operation())], TopicError),
    ]
    calls = []
    for number, (new, given, _) in enumerate(refused):
        calls += [call(new, given, limits), call(plain, [record(0, kept, number)], limits)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    for (_, _, error), result in zip(refused, results[::2], strict=True):
        assert isinstance(result, error), result
    assert all(isinstance(each, Commit) for each in results[1::2]), results
    seen = await payloads_committed(lease_store, kept)
    assert sorted(seen) == sorted(["first", *map(str, range(len(refused)))])
    assert await log_of(lease_store) == []
    assert (await lease_store.transactions.stats()).open == 0
    assert lease_store.transactions.decisions.committed == 1 + len(refused)
    for state in (State.OPEN, State.COMMITTING):
        assert await lease_store.transactions.select(state, None, 100) == []


@pytest.mark.parametrize("with_topic", [False, True])
async def test_a_repeated_number_gets_the_first_commit(
    txn_kit: Kit, txn_store: StoreHandle, with_topic: bool
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    new = await new_of(txn_store, topic=topic if with_topic else None, once=ONCE)
    first = await in_one(txn_store, new, *records(topic, "a", "b"))
    for store in (txn_store, await txn_kit.open()):
        again = await in_one(store, new, record(0, topic, "again"))
        assert again == first
        assert [*again.record_ids()] == [*first.record_ids()]
    later = new._replace(once=OnceNumber(ONCE.key, 4))
    await in_one(txn_store, later, record(0, topic, "next"))
    with pytest.raises(TransactionConflictError, match=r"^number 3 of the key import-7 is over"):
        await in_one(txn_store, new, record(0, topic, "late"))
    assert await payloads_committed(txn_store, topic) == ["a", "b", "next"]
    assert (await txn_store.transactions.newest(ONCE.key)).once == later.once


async def test_of_repeats_at_the_same_time_one_commits(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    stores = [txn_store, await txn_kit.open()]
    topic = await txn_store.topics.create(NAME, None)
    new = await new_of(txn_store, once=ONCE)
    results = await asyncio.gather(
        *(in_one(stores[k % 2], new, record(0, topic, k)) for k in range(6)),
        return_exceptions=True,
    )
    commits = [each for each in results if isinstance(each, Commit)]
    assert all(each == commits[0] for each in commits)
    assert commits == results
    assert len(await payloads_committed(txn_store, topic)) == 1
    assert await in_one(txn_store, new, record(0, topic, "again")) == commits[0]
    assert (await txn_store.transactions.stats()).open == 0


@pytest.mark.parametrize("txn_kits", ["mongo-plain"], indirect=True)
async def test_one_that_loses_its_number_while_it_writes_gets_the_commit_of_the_other(
    txn_kit: Kit, txn_store: StoreHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await txn_kit.open()
    topic = await txn_store.topics.create(NAME, None)
    new = await new_of(txn_store, once=ONCE)
    transactions: Any = txn_store.transactions
    write = transactions.write
    commits: list[Commit] = []

    async def later(id_: int, *given: Any) -> Any:
        """Let the other one commit, and abort this one as an agent does for the number."""
        commits.append(await in_one(other, new, record(0, topic, "first")))
        row = await transactions.decider.current(id_)
        await transactions.decider.abort(row, Reason.ONCE)
        return await write(id_, *given)

    monkeypatch.setattr(transactions, "write", later)
    assert [await in_one(txn_store, new, record(0, topic, "second"))] == commits
    assert await payloads_committed(txn_store, topic) == ["first"]
    assert (await txn_store.transactions.stats()).open == 0


async def test_without_a_number_a_repeat_is_another_transaction(txn_store: StoreHandle) -> None:
    topic = await txn_store.topics.create(NAME, None)
    new = await new_of(txn_store)
    for _ in range(2):
        await in_one(txn_store, new, record(0, topic, "a"))
    assert await payloads_committed(txn_store, topic) == ["a", "a"]


async def test_a_fence_holds_for_its_commit(lease_store: Store) -> None:
    topic = await lease_store.topics.create(NAME, None)
    fence = await lead(lease_store, "a")
    commit = await in_one(
        lease_store, await new_of(lease_store, fence=fence), record(0, topic, "a")
    )
    assert commit.transaction.fence == fence
    assert (await lease_store.transactions.find(commit.transaction.id)) == commit.transaction
    await lead(lease_store, "a", refresh=True)
    with pytest.raises(StaleFenceError, match=re.escape(f"term {fence.term} of the lease")):
        await in_one(lease_store, await new_of(lease_store, fence=fence), record(0, topic, "b"))
    assert await payloads_committed(lease_store, topic) == ["a"]


async def test_large_ones_commit(txn_kit: Kit, txn_store: StoreHandle) -> None:
    topic = await txn_store.topics.create(NAME, None)
    new = await new_of(txn_store)
    large = [record(0, topic, "x" * 600_000), record(1, topic, "y" * 600_000)]
    wide = records(topic, *range(600))
    small = records(topic, "a", "b")
    one, two, three = await asyncio.gather(
        *(in_one(txn_store, new, *given) for given in (large, small, wide))
    )
    seen = dict(await seen_committed(txn_store, topic, page=100))
    assert len(seen) == 604
    for commit, count in ((one, 2), (two, 2), (three, 600)):
        assert len([id_ for id_ in commit.record_ids() if id_ in seen]) == count


@pytest.mark.parametrize("txn_kits", ["sqlite", "mongo-plain"], indirect=True)
async def test_the_oldest_records_leave_a_topic_with_a_bound(
    txn_kit: Kit, lease_store: Store
) -> None:
    bounded = await lease_store.topics.create(NAME, None, max_bytes=BOUND)
    other = await lease_store.topics.create(named("other"), None)
    new = await new_of(lease_store)
    for number in range(3 * FIT // 4):
        payload = f"{number:04}" + "x" * (SIZE - 100)
        wanted = [record(lsn, bounded, payload) for lsn in range(4)]
        await in_one(lease_store, new, *wanted, record(4, other, number))
        txn_kit.clock.ms += DECIDED_MS
    await settle(lease_store.topics)
    assert len(await payloads_committed(lease_store, other)) == 3 * FIT // 4
    seen = [int(each[:4]) for each in await payloads_committed(lease_store, bounded)]
    assert seen
    assert seen[0] > 0, "the oldest have left"
    assert seen[-1] == 3 * FIT // 4 - 1

"""Commits in every store: one place in every log, one order, one answer for every agent."""

import asyncio

import pytest

from oplogd.errors import (
    TopicNotFoundError,
    TransactionConflictError,
)
from oplogd.model.message_id import MessageId, record_id
from oplogd.model.transaction import Marker, State
from oplogd.store.topics import EntryKind
from oplogd.store.transactions import (
    RETENTION_MS,
    CommittedLog,
)
from tests.kits.models.operations import numbered
from tests.kits.store.kits import Kit
from tests.kits.store.messages import NAME, entries_of, mark, named, publish
from tests.kits.store.transacting import (
    EVERY,
    StoreHandle,
    begin,
    commits_in,
    committed_with,
    decisions_in,
    oplog_record,
    payloads_committed,
    payloads_uncommitted,
    record,
    records,
    seen_committed,
    told_in,
    write,
)


@pytest.mark.parametrize("txn_kits", EVERY, indirect=True)
async def test_a_commit_makes_the_records_visible_by_lsn_at_one_place_of_each_log(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    a, b = [await txn_store.topics.create(named(name), None) for name in "ab"]
    begun = await begin(txn_store)
    await write(txn_store, begun, record(2, a, "a2"), record(1, b, "b1"))
    await publish(txn_store.topics, a, "plain")
    await write(txn_store, begun, record(0, a, "a0"), record(3, a, "a3"))
    txn_kit.clock.ms += 7
    commit = await txn_store.transactions.commit(begun.id, 4)
    after = await publish(txn_store.topics, a, "after")
    for topic, marker in ((a, Marker(str(begun.id), 3, 3)), (b, Marker(str(begun.id), 1, 1))):
        assert await decisions_in(txn_store, topic) == [(EntryKind.COMMIT, marker)]
    (of_a,), (of_b,) = await commits_in(txn_store, a), await commits_in(txn_store, b)
    assert set(commit.logs) == {
        CommittedLog(a.log, mark(of_a), 3),
        CommittedLog(b.log, mark(of_b), 1),
    }
    assert commit.runs == ()
    ids = [
        str(record_id(of.ms, of.sequence, lsn, is_last=lsn in (1, 3)))
        for lsn, of in enumerate((of_a, of_b, of_a, of_a))
    ]
    assert list(commit.record_ids()) == ids
    plain = await entries_of(txn_store.topics.log(a))
    assert await seen_committed(txn_store, a) == [
        (str(MessageId(plain[1].ms, plain[1].sequence)), "plain"),
        (ids[0], "a0"),
        (ids[2], "a2"),
        (ids[3], "a3"),
        (str(MessageId(after.first.ms, after.first.sequence)), "after"),
    ]
    assert await seen_committed(txn_store, b) == [(ids[1], "b1")]
    assert await payloads_uncommitted(txn_store, a) == ["a2", "plain", "a0", "a3", "after"]
    told = await told_in(txn_store)
    event = f'{{"event":"commit","txn":"{begun.id}","records":4}}'
    assert told[1:] == [(str(begun.id), event)]
    found = await txn_store.transactions.find(begun.id)
    assert found == commit.transaction
    assert (found.state, found.reason, found.records) == (State.COMMITTED, None, 4)
    assert found.begin == begun.begin
    assert found.commit is not None
    assert found.commit.offset == 2


async def test_a_transaction_of_a_topic_has_its_decision_in_that_log_only(
    txn_store: StoreHandle,
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    begun = [await begin(txn_store, topic=topic) for _ in range(4)]
    for transaction in begun[:2]:
        await write(txn_store, transaction, *records(topic, "x", "y"))
    commit = await txn_store.transactions.commit(begun[0].id, 2)
    await txn_store.transactions.abort(begun[1].id)
    empty = await txn_store.transactions.commit(begun[2].id, 0)
    await txn_store.transactions.abort(begun[3].id)
    ids = [str(each.id) for each in begun]
    assert await decisions_in(txn_store, topic) == [
        (EntryKind.COMMIT, Marker(ids[0], 2, 1)),
        (EntryKind.ABORT, Marker(ids[1])),
        (EntryKind.COMMIT, Marker(ids[2], 0, -1)),
        (EntryKind.ABORT, Marker(ids[3])),
    ]
    entries = await commits_in(txn_store, topic)
    assert [commit.transaction.commit, empty.transaction.commit] == [
        mark(entry) for entry in entries
    ]
    assert list(empty.record_ids()) == []
    assert [id_ for id_, _ in await seen_committed(txn_store, topic)] == list(commit.record_ids())
    assert await txn_store.topics.in_namespace("system") == []


async def test_a_repeated_commit_returns_the_same_from_any_agent_for_a_day(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    topic = await txn_store.topics.create(NAME, 5)
    other_topic = await txn_store.topics.create(named("other"), 5)
    begun = await begin(txn_store)
    await write(txn_store, begun, *records(topic, "a", "b"), record(2, other_topic, "c"))
    commit = await txn_store.transactions.commit(begun.id, 3)
    ids = list(commit.record_ids())
    assert len(set(ids)) == 3
    again = await txn_store.transactions.commit(begun.id, 3)
    assert (again, list(again.record_ids())) == (commit, ids)
    txn_kit.clock.ms += 40 * 60_000
    await txn_store.topics.sweep()
    await txn_store.topics.delete(other_topic.name)
    await txn_store.topics.sweep()
    txn_kit.clock.ms += RETENTION_MS - 40 * 60_000
    for store in (txn_store, await txn_kit.open(), await txn_kit.open()):
        await store.transactions.keep()
        repeated = await store.transactions.commit(begun.id, 3)
        assert (repeated, list(repeated.record_ids())) == (commit, ids)
        for wrong in (0, 2, 4):
            with pytest.raises(TransactionConflictError, match=f"{begun.id}.* has committed"):
                await store.transactions.commit(begun.id, wrong)
        with pytest.raises(TransactionConflictError, match=f"{begun.id}.* has committed"):
            await store.transactions.abort(begun.id)
        with pytest.raises(TransactionConflictError, match=f"{begun.id}.* has committed"):
            await write(store, begun, record(3, topic, "late"))
    assert (await told_in(txn_store))[1:] == [
        (str(begun.id), f'{{"event":"commit","txn":"{begun.id}","records":3}}')
    ]


async def test_a_commit_that_misses_records_says_which_and_succeeds_once_they_are_there(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    other = await txn_kit.open()
    topic = await txn_store.topics.create(NAME, None)
    begun = await begin(txn_store)
    with pytest.raises(TransactionConflictError) as none:
        await txn_store.transactions.commit(begun.id, 3)
    assert {"3", "0"} <= numbers(none)
    await write(txn_store, begun, record(0, topic, "a"), record(3, topic, "d"))
    for store in (txn_store, other):
        with pytest.raises(TransactionConflictError) as missing:
            await store.transactions.commit(begun.id, 6)
        assert {"4", "1"} <= numbers(missing), "four are missing, the first has lsn 1"
    assert (await other.transactions.find(begun.id)).state == State.OPEN
    assert await decisions_in(txn_store, topic) == []
    await write(other, begun, record(1, topic, "b"), record(2, topic, "c"))
    await txn_store.transactions.commit(begun.id, 4)
    assert await payloads_committed(txn_store, topic) == [*"abcd"]


@pytest.mark.parametrize("txn_kits", EVERY, indirect=True)
async def test_a_client_gets_the_same_sentences_and_positions_from_every_store(
    txn_store: StoreHandle,
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    begun = await begin(txn_store)
    (operation,) = numbered(1)
    await write(txn_store, begun, record(0, topic, "a"), oplog_record(1, operation))
    lacks = f"transaction {begun.id} lacks 1,998 of 2,000 records;"
    with pytest.raises(
        TransactionConflictError, match=f"^{lacks} the first one that is missing has the lsn 2$"
    ):
        await txn_store.transactions.commit(begun.id, 2_000)
    for lsn in (0, 1):
        with pytest.raises(
            TransactionConflictError, match=f"^lsn {lsn} was written before with other content$"
        ):
            await write(txn_store, begun, record(lsn, topic, "other"))
    aborted = await txn_store.transactions.abort(begun.id)
    assert aborted.begin is not None
    assert aborted.commit is None, "it has no commit"


def numbers(error: "pytest.ExceptionInfo[TransactionConflictError]") -> set[str]:
    """Return the numbers in the message of an error."""
    return set("".join(c if c.isdigit() else " " for c in str(error.value)).split())


async def test_records_past_the_number_of_the_commit_are_never_seen_committed(
    txn_store: StoreHandle,
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    unseen = await txn_store.topics.create(named("unseen"), None)
    begun = await begin(txn_store)
    await write(txn_store, begun, *records(topic, *"abcd"), record(4, unseen, "e"))
    commit = await txn_store.transactions.commit(begun.id, 2)
    assert len(list(commit.record_ids())) == 2
    assert commit.transaction.records == 2
    assert await payloads_committed(txn_store, topic) == ["a", "b"]
    assert await payloads_committed(txn_store, unseen) == []
    id_ = str(begun.id)
    assert await decisions_in(txn_store, topic) == [(EntryKind.COMMIT, Marker(id_, 2, 1))]
    assert await decisions_in(txn_store, unseen) == [(EntryKind.COMMIT, Marker(id_, 0, -1))]


@pytest.mark.parametrize("second_first", [False, True])
async def test_committed_readers_of_all_topics_see_transactions_in_the_order_of_their_commits(
    txn_kit: Kit, txn_store: StoreHandle, second_first: bool
) -> None:
    other = await txn_kit.open()
    x, y = [await txn_store.topics.create(named(name), None) for name in "xy"]
    one, two = await begin(txn_store), await begin(other)
    await write(txn_store, one, record(0, x, "a"), record(1, y, "a"))
    await write(other, two, record(0, y, "b"), record(1, x, "b"))
    for each in (two, one) if second_first else (one, two):
        await txn_store.transactions.commit(each.id, 2)
    expected = ["b", "a"] if second_first else ["a", "b"]
    for topic in (x, y):
        assert await payloads_uncommitted(txn_store, topic) == ["a", "b"]
        assert await payloads_committed(txn_store, topic) == expected


async def test_commits_at_the_same_time_have_one_order_in_all_topics(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    stores = [txn_store, await txn_kit.open(), await txn_kit.open()]
    x, y = [await txn_store.topics.create(named(name), None) for name in "xy"]
    begun = []
    for number in range(30):
        transaction = await begin(stores[number % 3])
        await write(
            stores[number % 3],
            transaction,
            record(0, x, transaction.id),
            record(1, y, transaction.id),
        )
        begun.append(transaction.id)
    await asyncio.gather(
        *[stores[k % 3].transactions.commit(id_, 2) for k, id_ in enumerate(begun)]
    )
    order = await payloads_committed(txn_store, x)
    assert await payloads_committed(txn_store, y) == order
    assert sorted(map(int, order)) == sorted(begun)
    told = [key for key, payload in await told_in(txn_store) if '"commit"' in payload]
    assert told == order


async def test_a_commit_goes_on_although_topics_were_deleted(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    kept, gone = [await txn_store.topics.create(named(name), None) for name in ("kept", "gone")]
    begun, aborted = await begin(txn_store), await begin(txn_store)
    await write(txn_store, begun, record(0, gone, "g"), record(1, kept, "k"))
    await write(txn_store, aborted, record(0, gone, "g"), record(1, kept, "K"))
    await txn_store.topics.delete(gone.name)
    again = await txn_store.topics.create(gone.name, None)
    assert (await txn_store.transactions.abort(aborted.id)).state == State.ABORTED
    commit = await txn_store.transactions.commit(begun.id, 2)
    ids = list(commit.record_ids())
    assert ids[0] is None
    assert await seen_committed(txn_store, kept) == [(ids[1], "k")]
    assert await decisions_in(txn_store, again) == []
    by_log = {each.log: each for each in commit.logs}
    assert (by_log[gone.log].mark, by_log[gone.log].last) == (None, 0)
    repeated = await (await txn_kit.open()).transactions.commit(begun.id, 2)
    assert list(repeated.record_ids()) == ids
    with pytest.raises(TopicNotFoundError):
        await txn_store.topics.log(gone).read(0, 1)


async def test_an_empty_transaction_commits(txn_store: StoreHandle) -> None:
    topic = await txn_store.topics.create(NAME, None)
    commit = await committed_with(txn_store)
    assert (list(commit.record_ids()), commit.logs) == ([], ())
    begun = await begin(txn_store)
    await write(txn_store, begun, record(0, topic, "never seen"))
    commit = await txn_store.transactions.commit(begun.id, 0)
    assert list(commit.record_ids()) == []
    assert await payloads_committed(txn_store, topic) == []
    assert [kind for kind, _ in await decisions_in(txn_store, topic)] == [EntryKind.COMMIT]

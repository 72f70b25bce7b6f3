"""Abort and time-out in every store: one decision, in every log, for every agent."""

import asyncio

import pytest

from oplogd.errors import (
    TransactionConflictError,
    TransactionNotFoundError,
)
from oplogd.model.transaction import Marker, Reason, State
from oplogd.store.topics import EntryKind
from oplogd.store.transactions import (
    RETENTION_MS,
    Commit,
    Transaction,
)
from tests.kits.store.kits import Kit
from tests.kits.store.messages import NAME, named
from tests.kits.store.transacting import (
    StoreHandle,
    begin,
    committed_with,
    decisions_in,
    payloads_committed,
    record,
    records,
    told_in,
    write,
)

CLIENT = "aborted by the client"
TIMED_OUT = "timed out"


async def refuses_everything(
    store: StoreHandle, transaction: Transaction, why: str, *, n: int = 1
) -> None:
    """Assert that no record and no commit of ``n`` records is taken, and that errors say why."""
    topic = await store.topics.find(NAME)
    assert topic is not None
    calls = (
        lambda: write(store, transaction, record(7, topic, "late")),
        lambda: store.transactions.commit(transaction.id, n),
    )
    for call in calls:
        with pytest.raises(TransactionConflictError, match=f"{transaction.id}.* {why}"):
            await call()


async def test_an_aborted_transaction_is_never_seen_committed(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    other = await txn_kit.open()
    a, b = [await txn_store.topics.create(name, None) for name in (NAME, named("b"))]
    begun = await begin(txn_store)
    await write(txn_store, begun, record(0, a, "x"), record(1, b, "y"))
    aborted = await other.transactions.abort(begun.id)
    assert (aborted.state, aborted.reason) == (State.ABORTED, Reason.CLIENT)
    for store in (txn_store, other):
        assert await store.transactions.abort(begun.id) == aborted
        assert await store.transactions.find(begun.id) == aborted
        await refuses_everything(store, begun, CLIENT, n=2)
    for topic in (a, b):
        marker = Marker(str(begun.id))
        assert await decisions_in(txn_store, topic) == [(EntryKind.ABORT, marker)]
        assert await payloads_committed(txn_store, topic) == []
    event = f'{{"event":"abort","txn":"{begun.id}","reason":"{CLIENT}"}}'
    assert (await told_in(txn_store))[1:] == [(str(begun.id), event)]
    assert other.transactions.decisions.aborted == 1
    assert txn_store.transactions.decisions.aborted == 0


async def test_nothing_commits_after_the_time_out(txn_kit: Kit, txn_store: StoreHandle) -> None:
    other = await txn_kit.open()
    topic = await txn_store.topics.create(NAME, None)
    begun = [await begin(txn_store, timeout_ms=1000) for _ in range(5)]
    for each in begun:
        await write(txn_store, each, record(0, topic, str(each.id)))
    txn_kit.clock.ms = begun[0].expires_ms
    just, *late = begun
    await txn_store.transactions.commit(just.id, 1)
    txn_kit.clock.ms = max(each.expires_ms for each in late) + 1
    with pytest.raises(TransactionConflictError, match=f"{late[0].id}.* {TIMED_OUT}"):
        await other.transactions.commit(late[0].id, 1)
    with pytest.raises(TransactionConflictError, match=f"{late[1].id}.* {TIMED_OUT}"):
        await write(other, late[1], record(1, topic, "late"))
    assert (await other.transactions.find(late[2].id)).reason == Reason.TIMEOUT
    assert (await other.transactions.abort(late[3].id)).reason == Reason.TIMEOUT
    for each in late:
        found = await txn_store.transactions.abort(each.id)
        assert (found.state, found.reason) == (State.ABORTED, Reason.TIMEOUT)
        await refuses_everything(txn_store, each, TIMED_OUT)
    assert await payloads_committed(txn_store, topic) == [str(just.id)]
    assert await decisions_in(txn_store, topic) == [
        (EntryKind.COMMIT, Marker(str(just.id), 1, 0)),
        *[(EntryKind.ABORT, Marker(str(each.id))) for each in late],
    ]
    told = [payload for _, payload in (await told_in(txn_store))[6:]]
    assert told == [
        f'{{"event":"abort","txn":"{each.id}","reason":"{TIMED_OUT}"}}' for each in late
    ]
    decisions = other.transactions.decisions
    assert (decisions.committed, decisions.aborted, decisions.timed_out) == (0, 0, 4)


async def test_of_a_commit_and_an_abort_at_the_same_time_one_wins(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    other = await txn_kit.open()
    topic = await txn_store.topics.create(NAME, None)
    won = []
    for number in range(20):
        begun = await begin(txn_store)
        await write(txn_store, begun, record(0, topic, number))
        calls = [
            txn_store.transactions.commit(begun.id, 1),
            other.transactions.abort(begun.id),
            other.transactions.commit(begun.id, 1),
        ]
        # Which one comes first changes from round to round.
        calls = calls[number % 3 :] + calls[: number % 3]
        results = await asyncio.gather(*calls, return_exceptions=True)
        commits = [each for each in results if isinstance(each, Commit)]
        aborts = [each for each in results if isinstance(each, Transaction)]
        refused = [each for each in results if isinstance(each, TransactionConflictError)]
        assert len(commits) + len(aborts) + len(refused) == 3, results
        assert (len(commits), len(aborts)) in ((2, 0), (0, 1))
        assert len({tuple(each.record_ids()) for each in commits}) <= 1
        won += [str(number)] * bool(commits)
    assert await payloads_committed(txn_store, topic) == won
    assert len(await decisions_in(txn_store, topic)) == 20


async def test_a_transaction_whose_own_topic_was_deleted_ends(txn_store: StoreHandle) -> None:
    topic = await txn_store.topics.create(NAME, None)
    begun, aborted = [await begin(txn_store, topic=topic) for _ in range(2)]
    await write(txn_store, begun, record(0, topic, "a"))
    await txn_store.topics.delete(NAME)
    commit = await txn_store.transactions.commit(begun.id, 1)
    assert list(commit.record_ids()) == [None]
    assert commit.transaction.commit is None
    assert (await txn_store.transactions.abort(aborted.id)).state == State.ABORTED
    assert (await txn_store.transactions.stats()).open == 0


async def test_a_finished_transaction_is_forgotten_after_a_day(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    topic = await txn_store.topics.create(NAME, 7 * 86_400)
    aborted = await begin(txn_store)
    await txn_store.transactions.abort(aborted.id)
    commit = await committed_with(txn_store, *records(topic, "a", "b"))
    txn_kit.clock.ms += RETENTION_MS + 1000
    assert await txn_store.transactions.keep() == 0
    for id_ in (aborted.id, commit.transaction.id):
        with pytest.raises(TransactionNotFoundError):
            await txn_store.transactions.find(id_)
        with pytest.raises(TransactionNotFoundError):
            await txn_store.transactions.abort(id_)
    assert await payloads_committed(txn_store, topic) == ["a", "b"]

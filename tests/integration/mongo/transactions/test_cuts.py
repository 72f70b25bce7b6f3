"""A transaction whose agent is killed after any step is finished by any other agent."""

import pytest
from pymongo.database import Database

from oplogd.errors import StoreUnavailableError, TransactionConflictError
from oplogd.model.names import TopicName
from oplogd.model.transaction import Reason, Record, State
from oplogd.store.mongo import MongoStore
from oplogd.store.mongo.link.layout import Document
from oplogd.store.topics import Topic
from oplogd.store.transactions import Transaction
from tests.integration.mongo.committing import (
    KilledError,
    Steps,
    begin,
    commit_log,
    committed,
    ends_of,
    events_of,
    kinds_of,
    opened,
    operation,
    record,
    same,
    stepping,
    topics_of,
    write,
    written,
)
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.fixtures import MakeStore

# The steps of a commit that touches two topics and the oplog.
COMMIT_STEPS = [
    ("decided", 1),
    ("commit-record", 1),
    ("marker", 1),
    ("marker", 2),
    ("operations", 1),
    ("finished", 1),
]
ABORT_STEPS = [("decided", 1), ("abort-record", 1), ("marker", 1), ("marker", 2), ("finished", 1)]
# The ways in which others meet a transaction that was not finished.
FINISHERS = ["repeated", "asked", "kept", "later commit"]
_KEPT_AFTER_MS = 5_000


async def finish(store: MongoStore, clock: VirtualClock, txn: Transaction, way: str) -> None:
    transactions = store.transactions
    if way == "repeated":
        found = await transactions.find(txn.id)
        ending = transactions.abort if found.state is State.ABORTED else None
        await (ending(txn.id) if ending else transactions.commit(txn.id, 4))
    elif way == "asked":
        await transactions.find(txn.id)
    elif way == "kept":
        clock.ms += _KEPT_AFTER_MS
        await transactions.keep()
    else:
        await transactions.commit((await begin(store)).id, 0)


def records_of(first: Topic, second: Topic, name: str) -> list[Record]:
    return [
        record(0, second, f"{name}0"),
        record(1, first, f"{name}1"),
        operation(2, name),
        record(3, first, f"{name}3"),
    ]


async def test_a_commit_killed_after_any_step_is_finished_by_any_other_agent(
    plain_url: str, make_store: MakeStore, clock: VirtualClock
) -> None:
    keeper = await opened(make_store, plain_url)
    steps = Steps()
    store = await stepping(make_store, plain_url, steps)
    first, second = await topics_of(keeper, "a", "b")
    names = []
    for way in FINISHERS:
        for step in COMMIT_STEPS:
            # A later commit overtakes one that is not in the commit log yet.
            if way == "later commit" and step[0] == "decided":
                continue
            names.append(f"{way} {step}")
            txn = await written(store, records_of(first, second, names[-1]))
            steps.kill_at = step
            with pytest.raises(KilledError):
                await store.transactions.commit(txn.id, 4)
            await finish(keeper, clock, txn, way)
            assert await keeper.transactions.select(State.COMMITTING, None, 10) == []
            commits = [await each.transactions.commit(txn.id, 4) for each in (store, keeper)]
            assert same(*commits)
            assert all(commits[0].record_ids())
            for topic in (first, second):
                assert (await ends_of(keeper, topic)).count(("commit", str(txn.id))) == 1
            assert (await events_of(keeper)).count(("commit", str(txn.id))) == 1
    assert await committed(store, first) == [f"{name}{n}" for name in names for n in "13"]
    assert await committed(store, second) == [f"{name}0" for name in names]
    operations = await keeper.read(0, 1_000)
    assert [each.data.count(name) for each, name in zip(operations, names, strict=True)] == [1] * 23


async def test_an_abort_killed_after_any_step_is_finished_by_any_other_agent(
    plain_url: str, make_store: MakeStore, clock: VirtualClock
) -> None:
    keeper = await opened(make_store, plain_url)
    steps = Steps()
    store = await stepping(make_store, plain_url, steps)
    first, second = await topics_of(keeper, "a", "b")
    for way in FINISHERS[:3]:
        for step in ABORT_STEPS:
            txn = await written(store, records_of(first, second, way))
            steps.kill_at = step
            with pytest.raises(KilledError):
                await store.transactions.abort(txn.id)
            await finish(keeper, clock, txn, way)
            found = await store.transactions.find(txn.id)
            assert (found.state, found.reason) == (State.ABORTED, Reason.CLIENT)
            for topic in (first, second):
                assert (await ends_of(keeper, topic)).count(("abort", str(txn.id))) == 1
            assert (await events_of(keeper)).count(("abort", str(txn.id))) == 1
            with pytest.raises(TransactionConflictError, match="was aborted by the client"):
                await keeper.transactions.commit(txn.id, 4)
    assert await committed(store, first) == []
    assert await keeper.read(0, 10) == []


async def test_a_transaction_whose_agent_is_killed_before_the_decision_is_aborted_when_overdue(
    plain_url: str, make_store: MakeStore, clock: VirtualClock
) -> None:
    keeper = await opened(make_store, plain_url)
    steps = Steps()
    store = await stepping(make_store, plain_url, steps)
    (topic,) = await topics_of(keeper, "a")
    for step, entries in (
        ("begun-row", ["abort"]),
        ("begin-record", ["begin", "abort"]),
        ("registered", ["begin", "abort", "abort"]),
        ("written", ["begin", "deferred", "abort", "abort"]),
    ):
        before = len(await kinds_of(keeper, topic)), len(await events_of(keeper))
        steps.kill_at = step, 1
        with pytest.raises(KilledError):
            await written(store, [record(0, topic, step)])
        assert await keeper.transactions.keep() == 0
        (txn,) = await keeper.transactions.select(State.OPEN, None, 10)
        clock.ms = txn.expires_ms + 1
        assert await keeper.transactions.keep() == 1
        found = await store.transactions.find(txn.id)
        assert (found.state, found.reason) == (State.ABORTED, Reason.TIMEOUT)
        new = [event for event, _ in (await events_of(keeper))[before[1] :]]
        new += (await kinds_of(keeper, topic))[before[0] :]
        assert sorted(new) == sorted(entries)
    assert keeper.transactions.decisions.timed_out == 4
    assert await committed(store, topic) == []


async def test_a_write_killed_after_any_step_is_retried_at_another_agent(
    plain_url: str, make_store: MakeStore
) -> None:
    other = await opened(make_store, plain_url)
    steps = Steps()
    store = await stepping(make_store, plain_url, steps)
    first, second = await topics_of(other, "a", "b")
    for step in ("registered", "written"):
        records = records_of(first, second, step)
        txn = await begin(store)
        steps.kill_at = step, 1
        with pytest.raises(KilledError):
            await write(store, txn, *records)
        await write(other, txn, *records)
        await other.transactions.commit(txn.id, 4)
    assert await committed(other, first) == ["registered1", "registered3", "written1", "written3"]
    assert await committed(other, second) == ["registered0", "written0"]
    assert len(await other.read(0, 10)) == 2


async def test_a_transaction_of_a_topic_has_one_entry_of_each_kind_there(
    plain_url: str, make_store: MakeStore
) -> None:
    other = await opened(make_store, plain_url)
    steps = Steps()
    store = await stepping(make_store, plain_url, steps)
    (topic,) = await topics_of(other, "a")
    for step in ("decided", "commit-record", "finished"):
        txn = await begin(store, topic=topic)
        await write(store, txn, record(0, topic, step))
        steps.kill_at = step, 1
        with pytest.raises(KilledError):
            await store.transactions.commit(txn.id, 1)
        commit = await other.transactions.commit(txn.id, 1)
        assert commit.transaction.commit == commit.logs[0].mark
    empty = await begin(store, topic=topic)
    assert (await store.transactions.commit(empty.id, 0)).logs == ()
    aborted = await begin(store, topic=topic)
    await store.transactions.abort(aborted.id)
    kinds = await kinds_of(other, topic)
    assert kinds == [*["begin", "deferred", "commit"] * 3, "begin", "commit", "begin", "abort"]
    assert await committed(other, topic) == ["decided", "commit-record", "finished"]


async def test_a_commit_goes_on_without_the_entries_of_topics_that_were_deleted(
    plain_url: str, make_store: MakeStore
) -> None:
    other = await opened(make_store, plain_url)
    steps = Steps()
    store = await stepping(make_store, plain_url, steps)
    first, kept = await topics_of(other, "a", "b")
    for deleted, step in (
        (first, "decided"),
        (await other.topics.create(TopicName("ns", "c"), None), "marker"),
    ):
        txn = await written(store, [record(0, deleted, "x"), record(1, kept, step)])
        steps.kill_at = step, 1
        with pytest.raises(KilledError):
            await store.transactions.commit(txn.id, 2)
        await other.topics.delete(deleted.name)
        commit = await other.transactions.commit(txn.id, 2)
        marks = {each.log: each.mark for each in commit.logs}
        # The entries of a commit are written in order of the logs.
        assert marks == {deleted.log: None, kept.log: marks[kept.log]}
        assert [each is None for each in commit.record_ids()] == [True, False]
        assert same(commit, await store.transactions.commit(txn.id, 2))
    assert await committed(other, kept) == ["decided", "marker"]


async def test_a_commit_whose_commit_log_was_deleted_has_no_position(
    plain_url: str, make_store: MakeStore
) -> None:
    store = await opened(make_store, plain_url)
    (topic,) = await topics_of(store, "a")
    txn = await written(store, [record(0, topic, "x")])
    await store.topics.delete((await commit_log(store)).name)
    commit = await store.transactions.commit(txn.id, 1)
    assert commit.transaction.commit is None
    assert await committed(store, topic) == ["x"]


async def test_a_transaction_that_cannot_be_completed_does_not_hold_up_the_others(
    plain_url: str,
    make_store: MakeStore,
    database: Database[Document],
    clock: VirtualClock,
) -> None:
    steps = Steps()
    store = await stepping(make_store, plain_url, steps)
    (topic,) = await topics_of(store, "a")
    bad = await written(store, [record(0, topic, "bad")])
    clock.ms += 1
    good = await written(store, [record(0, topic, "good")])
    rows = database["oplog_txns"]
    rows.update_one({"_id": bad.id}, {"$set": {"log": "?"}})
    clock.ms = good.expires_ms + 1
    with pytest.raises(StoreUnavailableError, match=f"transaction {bad.id} is damaged"):
        await store.transactions.keep()
    assert [each["phase"] for each in rows.find().sort("_id", 1)] == ["open", "aborted"]

"""Several agents that commit at once: one decision, one order, and each entry once."""

import asyncio
from collections import Counter

import pytest
from pymongo.database import Database

from oplogd.errors import TransactionConflictError
from oplogd.model.names import TopicName
from oplogd.model.transaction import Reason, State
from oplogd.store.mongo import MongoStore
from oplogd.store.mongo.link.layout import Document
from oplogd.store.mongo.setup.setup import CollectionKind
from oplogd.store.transactions import Commit
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
from tests.integration.mongo.topics.topics import inserts_entries
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.wire import Wire

STEPS = ["decided", "commit-record", "marker", "operations", "finished"]


def counts(command: Document) -> bool:
    """Return whether a command counts the records of a transaction."""
    return "x" in command.get("filter", {})


async def test_two_agents_that_complete_one_transaction_write_each_entry_once(
    plain_url: str, make_store: MakeStore
) -> None:
    """One of them pauses after each step in turn, while the other one does all of it."""
    steps = Steps()
    slow = await stepping(make_store, plain_url, steps)
    quick = await opened(make_store, plain_url)
    first, second = await topics_of(quick, "a", "b")
    for step in STEPS:
        records = [record(0, first, step), record(1, second, step), operation(2, step)]
        txn = await written(slow, records)
        steps.hold_at = step
        committing = asyncio.create_task(slow.transactions.commit(txn.id, 3))
        await steps.held.wait()
        others = await asyncio.gather(*(quick.transactions.commit(txn.id, 3) for _ in range(2)))
        steps.go_on.set()
        assert same(await committing, others[0])
        assert same(*others)
        assert all(others[0].record_ids())
        steps.held.clear()
        steps.go_on.clear()
    assert await committed(quick, first) == STEPS
    assert await committed(quick, second) == STEPS
    assert [
        each.data.count(step) for each, step in zip(await quick.read(0, 10), STEPS, strict=True)
    ] == [1] * len(STEPS)
    assert (slow.transactions.decisions.committed, quick.transactions.decisions.committed) == (5, 0)


async def test_a_later_commit_of_another_agent_first_completes_the_earlier_one(
    plain_url: str, make_store: MakeStore
) -> None:
    """Topics have both in the order of the commit log, whatever the earlier agent has done."""
    steps = Steps()
    slow = await stepping(make_store, plain_url, steps)
    quick = await opened(make_store, plain_url)
    first, second = await topics_of(quick, "a", "b")
    wanted = []
    for step in STEPS:
        earlier = await written(slow, [record(0, first, f"{step}1"), record(1, second, f"{step}1")])
        await write(slow, earlier, operation(2, f"{step}1"))
        later = await written(quick, [record(0, second, f"{step}2"), record(1, first, f"{step}2")])
        await write(quick, later, operation(2, f"{step}2"))
        steps.hold_at = step
        committing = asyncio.create_task(slow.transactions.commit(earlier.id, 3))
        await steps.held.wait()
        await quick.transactions.commit(later.id, 3)
        # An agent that has decided, and no more, has no place in the order yet.
        order = [f"{step}2", f"{step}1"] if step == "decided" else [f"{step}1", f"{step}2"]
        wanted += order
        if step != "decided":
            assert (await committed(quick, second))[-2:] == order
        steps.go_on.set()
        await committing
        steps.held.clear()
        steps.go_on.clear()
    assert await committed(quick, first) == wanted
    assert await committed(quick, second) == wanted
    texts = [each.data for each in await quick.read(0, 100)]
    assert [name in text for name, text in zip(wanted, texts, strict=True)] == [True] * len(wanted)
    ids = [txn for event, txn in await events_of(quick) if event == "commit"]
    for topic in (first, second):
        assert await ends_of(quick, topic) == [("commit", id_) for id_ in ids]


async def test_a_commit_leaves_later_ones_alone_that_came_while_it_looked_for_earlier_ones(
    wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    """It knows only those that were decided before: there may be others between it and them."""
    second_steps, third_steps = Steps(), Steps()
    first = await opened(make_store, wire.url())
    second = await stepping(make_store, plain_url, second_steps)
    third = await stepping(make_store, plain_url, third_steps)
    (topic,) = await topics_of(second, "a")
    txns = [
        await written(store, [record(0, topic, name)])
        for store, name in ((first, "1"), (second, "2"), (third, "3"))
    ]
    third_steps.hold_at = "decided"
    third_steps.kill_at = "commit-record", 1
    killed = asyncio.create_task(third.transactions.commit(txns[2].id, 1))
    await third_steps.held.wait()
    held = wire.hold(looks_for_commits, "after")
    committing = [asyncio.create_task(first.transactions.commit(txns[0].id, 1))]
    await asyncio.to_thread(held.wait)
    second_steps.hold_at = "commit-record"
    committing.append(asyncio.create_task(second.transactions.commit(txns[1].id, 1)))
    await second_steps.held.wait()
    third_steps.go_on.set()
    with pytest.raises(KilledError):
        await killed
    await asyncio.to_thread(held.release)
    await committing[0]
    assert await committed(second, topic) == ["1"]
    second_steps.go_on.set()
    await committing[1]
    await second.transactions.find(txns[2].id)
    assert await committed(second, topic) == ["1", "2", "3"]
    await first.close()


@pytest.mark.parametrize("ended", ["commit", "abort"])
async def test_a_commit_whose_operations_are_gone_because_another_agent_ended_it_says_so(
    ended: str, wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    store = await opened(make_store, wire.url())
    other = await opened(make_store, plain_url)
    await topics_of(other)
    txn = await written(other, [operation(0, "x")])
    held = wire.hold(lists_operations)
    committing = asyncio.create_task(store.transactions.commit(txn.id, 1))
    await asyncio.to_thread(held.wait)
    if ended == "commit":
        commit = await other.transactions.commit(txn.id, 1)
        await asyncio.to_thread(held.release)
        assert same(await committing, commit)
    else:
        await other.transactions.abort(txn.id)
        await asyncio.to_thread(held.release)
        with pytest.raises(TransactionConflictError, match="was aborted by the client"):
            await committing
    await store.close()


def lists_operations(command: Document) -> bool:
    return command.get("find") == "oplog_payloads" and command.get("projection") == {"_id": 1}


def looks_for_commits(command: Document) -> bool:
    """Return whether a command looks for commits that are not finished."""
    return command.get("find") == "oplog_txns" and "log" in command["filter"]


@pytest.mark.parametrize(
    ("sort", "kind", "count"), [("capped_url", "capped", 3), ("plain_url", "plain", 12)]
)
async def test_topics_of_transactions_of_many_agents_have_the_order_of_the_commit_log(
    sort: str,
    kind: CollectionKind,
    count: int,
    request: pytest.FixtureRequest,
    make_store: MakeStore,
) -> None:
    url: str = request.getfixturevalue(sort)
    stores = [make_store(url, kind, lease=60) for _ in range(3)]
    for store in stores:
        await store.open()
    topics = await topics_of(stores[0], "a", "b", "c")

    async def transact(store: MongoStore, number: int) -> None:
        touched = [topics[number % 3], topics[(number + 1) % 3]]
        name = f"{stores.index(store)}-{number}"
        txn = await written(store, [record(lsn, topic, name) for lsn, topic in enumerate(touched)])
        others = [each for each in stores if each is not store]
        ending = [each.transactions.commit(txn.id, 2) for each in (store, others[number % 2])]
        assert same(*await asyncio.gather(*ending))

    await asyncio.gather(*(transact(store, n) for store in stores for n in range(count)))
    order = [txn for event, txn in await events_of(stores[0]) if event == "commit"]
    assert len(order) == len(set(order)) == 3 * count
    for topic in topics:
        ends = [txn for _, txn in await ends_of(stores[1], topic)]
        assert ends == [txn for txn in order if txn in set(ends)]
        assert len(ends) == len(await committed(stores[2], topic)) == 2 * count
    assert sum(each.transactions.decisions.committed for each in stores) == 3 * count


@pytest.mark.parametrize(
    ("sort", "kind", "count"), [("capped_url", "capped", 6), ("plain_url", "plain", 60)]
)
async def test_a_commit_and_an_abort_at_the_same_time_have_one_winner(
    sort: str,
    kind: CollectionKind,
    count: int,
    request: pytest.FixtureRequest,
    make_store: MakeStore,
) -> None:
    url: str = request.getfixturevalue(sort)
    stores = [make_store(url, kind, lease=60) for _ in range(2)]
    for store in stores:
        await store.open()
    (topic,) = await topics_of(stores[0], "a")
    wanted: Counter[tuple[str, str]] = Counter()
    for number in range(count):
        txn = await written(stores[0], [record(0, topic, str(number))])
        results = await asyncio.gather(
            stores[0].transactions.commit(txn.id, 1),
            stores[1].transactions.abort(txn.id),
            return_exceptions=True,
        )
        lost = [each for each in results if isinstance(each, TransactionConflictError)]
        assert len(lost) == 1, results
        won = "commit" if isinstance(results[0], Commit) else "abort"
        wanted[won, str(txn.id)] += 1
    assert Counter(await ends_of(stores[0], topic)) == wanted
    decisions = [store.transactions.decisions for store in stores]
    assert decisions[0].committed + decisions[1].aborted == count


async def test_a_commit_that_is_slower_than_the_time_out_is_refused(
    wire: Wire, plain_url: str, make_store: MakeStore, clock: VirtualClock
) -> None:
    store = await opened(make_store, wire.url())
    other = await opened(make_store, plain_url)
    (topic,) = await topics_of(store, "a")
    for is_kept in (False, True):
        txn = await written(store, [record(0, topic, "x")])
        held = wire.hold(counts)
        committing = asyncio.create_task(store.transactions.commit(txn.id, 1))
        await asyncio.to_thread(held.wait)
        clock.ms = txn.expires_ms + 1
        if is_kept:
            assert (await other.transactions.find(txn.id)).reason is Reason.TIMEOUT
        await asyncio.to_thread(held.release)
        with pytest.raises(TransactionConflictError, match="timed out"):
            await committing
    assert await kinds_of(other, topic) == ["deferred", "abort"] * 2
    timed_out = [each.transactions.decisions.timed_out for each in (store, other)]
    assert timed_out == [1, 1]
    await store.close()


async def test_a_decision_before_the_time_out_is_completed_after_it(
    plain_url: str, make_store: MakeStore, clock: VirtualClock
) -> None:
    steps = Steps()
    keeper = await opened(make_store, plain_url)
    store = await stepping(make_store, plain_url, steps)
    (topic,) = await topics_of(keeper, "a")
    txn = await written(store, [record(0, topic, "x")])
    clock.ms = txn.expires_ms
    steps.hold_at = "decided"
    committing = asyncio.create_task(store.transactions.commit(txn.id, 1))
    await steps.held.wait()
    assert await keeper.transactions.keep() == 0, "its own agent is given some time"
    clock.ms += 3_001
    assert await store.transactions.keep() == 0, "it does not hold the lease"
    assert await keeper.transactions.keep() == 1
    steps.go_on.set()
    await committing
    assert await committed(keeper, topic) == ["x"]
    assert await ends_of(keeper, topic) == [("commit", str(txn.id))]
    with pytest.raises(TransactionConflictError, match="has committed"):
        await write(store, txn, record(1, topic, "y"))


async def test_a_table_that_was_dropped_disturbs_nothing_else_and_is_created_again(
    plain_url: str,
    make_store: MakeStore,
    database: Database[Document],
    clock: VirtualClock,
) -> None:
    store = await opened(make_store, plain_url)
    (topic,) = await topics_of(store, "a")
    await store.transactions.keep()
    await written(store, [record(0, topic, "lost")])
    database["oplog_txns"].drop()
    database["oplog_entries"].drop_index("x")
    clock.ms += 60_001
    await store.transactions.keep()
    assert "active" in database["oplog_txns"].index_information()
    txn = await written(store, [record(0, topic, "x")])
    await store.transactions.commit(txn.id, 1)
    assert await committed(store, topic) == ["x"]
    assert "x" in database["oplog_entries"].index_information()


async def test_an_append_that_fails_fails_all_transactions_that_share_it(
    wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    steps = Steps()
    store = await stepping(make_store, wire.url(retryWrites="false"), steps)
    other = await opened(make_store, plain_url)
    (topic,) = await topics_of(other, "a")
    begun = [await begin(other) for _ in range(6)]
    records = [record(0, topic, str(number)) for number in range(6)]
    held = wire.hold(inserts_entries)
    sent = [asyncio.create_task(write(store, begun[0], records[0]))]
    await asyncio.to_thread(held.wait)
    sent += [
        asyncio.create_task(write(store, txn, each))
        for txn, each in zip(begun[1:], records[1:], strict=True)
    ]
    async with asyncio.timeout(120):
        while steps.names.count("registered") < 6:
            await asyncio.sleep(0.001)
    wire.cut(inserts_entries, "before")
    await asyncio.to_thread(held.cut)
    results = await asyncio.gather(*sent, return_exceptions=True)
    assert [type(each).__name__ for each in results] == ["StoreUnavailableError"] * 6
    # Each of two appends is tried three times. The first try was held.
    assert wire.cuts == 5
    wire.cut(None)
    await asyncio.to_thread(held.release)
    for txn, each in zip(begun, records, strict=True):
        await write(store, txn, each)
        await store.transactions.commit(txn.id, 1)
    assert sorted(await committed(other, topic)) == [*"012345"]
    assert (await other.transactions.stats()).open == 0
    assert {each.state for each in await other.transactions.select(None, None, 10)} == {
        State.COMMITTED
    }
    await store.close()


async def test_the_commit_log_of_a_topic_and_that_of_a_group_do_not_wait_for_each_other(
    plain_url: str, make_store: MakeStore
) -> None:
    steps = Steps()
    slow = await stepping(make_store, plain_url, steps)
    quick = await opened(make_store, plain_url)
    (topic,) = await topics_of(quick, "a")
    grouped = await written(slow, [record(0, topic, "group")])
    steps.hold_at = "commit-record"
    committing = asyncio.create_task(slow.transactions.commit(grouped.id, 1))
    await steps.held.wait()
    own = await begin(quick, topic=topic)
    await write(quick, own, record(0, topic, "topic"))
    await quick.transactions.commit(own.id, 1)
    assert await committed(quick, topic) == ["topic"]
    steps.go_on.set()
    await committing
    assert await committed(quick, topic) == ["topic", "group"]
    assert (await commit_log(quick)).name == TopicName("system", "_txn.default")

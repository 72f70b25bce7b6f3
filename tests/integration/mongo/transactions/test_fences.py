"""A new term of a lease and the decision of an older term's transaction, one between the other."""

import asyncio

import pytest
from pymongo.database import Database

from oplogd.errors import StaleFenceError
from oplogd.model.lease import Fence
from oplogd.store.mongo import MongoStore
from oplogd.store.mongo.link.layout import Document
from oplogd.store.topics import Placed, Topic
from oplogd.store.transactions import NewTransaction, Transaction
from tests.integration.mongo.committing import (
    TIMEOUT_MS,
    KilledError,
    Steps,
    commit_log,
    committed,
    kinds_of,
    opened,
    operation,
    record,
    stepping,
    topics_of,
    write,
)
from tests.integration.mongo.leases.fenced import LEASE, new_term, poll
from tests.integration.mongo.topics.topics import batch
from tests.kits.mongo.fixtures import MakeStore

# The steps of a commit of one topic and the oplog after its decision.
DECIDED = ["decided", "commit-record", "marker", "operations", "finished"]


async def begin_fenced(store: MongoStore, term: int) -> Transaction:
    log = (await commit_log(store)).log
    return await store.transactions.begin(
        NewTransaction(log, "default", None, TIMEOUT_MS, Fence(LEASE, term))
    )


async def publish_fenced(store: MongoStore, topic: Topic, term: int, payload: str) -> None:
    fenced = batch(topic, payload)._replace(fence=Fence(LEASE, term))
    (outcome,) = await store.topics.append([fenced])
    assert isinstance(outcome, Placed)


async def test_a_term_that_begins_between_the_judgement_and_the_decision_prevents_the_commit(
    plain_url: str, make_store: MakeStore, database: Database[Document]
) -> None:
    steps = Steps()
    old, new = await stepping(make_store, plain_url, steps), await opened(make_store, plain_url)
    (topic,) = await topics_of(new, "a")
    txn = await begin_fenced(old, await new_term(old))
    await write(old, txn, record(0, topic, "old"))
    steps.hold_at = "fence"
    committing = asyncio.create_task(old.transactions.commit(txn.id, 1))
    await steps.held.wait()
    term = await new_term(new)
    await publish_fenced(new, topic, term, "new")
    steps.go_on.set()
    with pytest.raises(StaleFenceError, match=f"transaction {txn.id} was aborted"):
        await committing
    assert await committed(new, topic) == ["new"]
    (row,) = database["oplog_txns"].find({})
    # An agent of the version before knows these values.
    assert (row["phase"], row["reason"], row["fenced"]) == (
        "aborted",
        "aborted by the client",
        True,
    )


async def test_a_transaction_whose_row_comes_after_a_new_term_has_looked_does_not_commit(
    plain_url: str, make_store: MakeStore
) -> None:
    steps = Steps()
    old, new = await stepping(make_store, plain_url, steps), await opened(make_store, plain_url)
    (topic,) = await topics_of(new, "a")
    first = await new_term(old)
    steps.hold_at = "fence"
    beginning = asyncio.create_task(begin_fenced(old, first))
    await steps.held.wait()
    await publish_fenced(new, topic, await new_term(new), "new")
    steps.go_on.set()
    txn = await beginning
    with pytest.raises(StaleFenceError):
        await old.transactions.commit(txn.id, 0)


@pytest.mark.parametrize("step", DECIDED)
async def test_a_new_term_is_told_after_decided_transactions_of_older_ones_are_complete(
    plain_url: str, make_store: MakeStore, step: str
) -> None:
    steps = Steps()
    old, new = await stepping(make_store, plain_url, steps), await opened(make_store, plain_url)
    (topic,) = await topics_of(new, "a")
    txn = await begin_fenced(old, await new_term(old))
    await write(old, txn, record(0, topic, "old"), operation(1, "x"))
    steps.kill_at = step, 1
    with pytest.raises(KilledError):
        await old.transactions.commit(txn.id, 2)
    await publish_fenced(new, topic, await new_term(new), "new")
    assert await committed(new, topic) == ["old", "new"]
    assert await kinds_of(new, topic) == ["deferred", "commit", "message"]


async def test_a_poll_that_was_cut_before_it_ended_older_transactions_leaves_that_to_the_next(
    plain_url: str, make_store: MakeStore, database: Database[Document]
) -> None:
    steps = Steps()
    old, new = await stepping(make_store, plain_url, steps), await opened(make_store, plain_url)
    (topic,) = await topics_of(new, "a")
    first = await new_term(old)
    late, waiting = await begin_fenced(old, first), await begin_fenced(old, first)
    await write(old, late, record(0, topic, "old"))
    steps.hold_at = "fence"
    committing = asyncio.create_task(old.transactions.commit(late.id, 1))
    await steps.held.wait()
    cut = _cut_once(new)
    with pytest.raises(KilledError):
        await new_term(new)
    assert cut == [(LEASE, first + 1)]
    steps.go_on.set()
    await committing  # nobody knows of the new term yet
    lease = await poll(new, "leader")
    await publish_fenced(new, topic, lease.term, "new")
    assert lease.term == first + 1
    with pytest.raises(StaleFenceError):
        await old.transactions.commit(waiting.id, 0)
    assert await committed(new, topic) == ["old", "new"]
    (document,) = database["oplog_leases"].find({})
    assert document["ended"] == lease.term


async def test_a_lease_that_no_transaction_names_is_polled_as_before(
    plain_url: str, make_store: MakeStore, database: Database[Document]
) -> None:
    """A document of the version before has no member ``ended``."""
    store = await opened(make_store, plain_url)
    term = await new_term(store)
    database["oplog_leases"].update_many({}, {"$unset": {"ended": ""}})
    assert (await poll(store, "leader")).term == term
    (document,) = database["oplog_leases"].find({})
    assert document["ended"] == term
    assert (await poll(store, "other")).holder == "leader"
    await store.leases.release(LEASE, "leader", term)
    (document,) = database["oplog_leases"].find({})
    assert document["ended"] == term + 1
    assert (await poll(store, "other")).term == term + 1


def _cut_once(store: MongoStore) -> list[tuple[str, int]]:
    """Let the next poll that begins a term die after it. Return the calls that were cut."""
    cut: list[tuple[str, int]] = []
    end_terms = store.leases._end_terms

    async def killed(lease: str, before: int) -> None:
        store.leases._end_terms = end_terms
        cut.append((lease, before))
        raise KilledError

    store.leases._end_terms = killed
    return cut

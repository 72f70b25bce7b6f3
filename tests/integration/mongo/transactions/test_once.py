"""Two commits of one number of a key, one between the steps of the other."""

import asyncio

import pytest
from pymongo.database import Database

from oplogd.errors import TransactionConflictError
from oplogd.model.once import OnceNumber
from oplogd.store.mongo import MongoStore
from oplogd.store.mongo.link.layout import Document
from oplogd.store.transactions import NewTransaction, Transaction
from tests.integration.mongo.committing import (
    TIMEOUT_MS,
    KilledError,
    Steps,
    commit_log,
    committed,
    opened,
    operation,
    record,
    stepping,
    topics_of,
    write,
)
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.once_model import WAYS, Way, run, schedules, wrong

KEY = "import"
# The steps of a commit with a number, of one topic and the oplog.
BEFORE = ["claiming", "claimed"]
DECIDED = ["decided", "commit-record", "marker", "operations", "settled", "finished"]


async def begin_once(store: MongoStore, number: int) -> Transaction:
    log = (await commit_log(store)).log
    return await store.transactions.begin(
        NewTransaction(log, "default", None, TIMEOUT_MS, once=OnceNumber(KEY, number))
    )


async def test_every_schedule_of_two_coordinators_is_right() -> None:
    assert wrong(Way(), 6) == (0, 13_724)


@pytest.mark.parametrize("name", [name for name, way in WAYS.items() if way != Way()])
async def test_every_other_way_goes_wrong(name: str) -> None:
    assert any(run(WAYS[name], (5, 5, 5), each) for each in schedules(8))


@pytest.mark.parametrize("step", [*BEFORE, *DECIDED])
@pytest.mark.parametrize("is_killed", [True, False])
async def test_a_number_is_committed_once_wherever_another_commit_comes_between(
    plain_url: str,
    make_store: MakeStore,
    database: Database[Document],
    step: str,
    is_killed: bool,
) -> None:
    steps = Steps()
    old, new = await stepping(make_store, plain_url, steps), await opened(make_store, plain_url)
    (topic,) = await topics_of(new, "a")
    first, second = await begin_once(old, 7), await begin_once(new, 7)
    await write(old, first, record(0, topic, "old"), operation(1, "x"))
    await write(new, second, record(0, topic, "new"))
    if is_killed:
        steps.kill_at = step, 1
        with pytest.raises(KilledError):
            await old.transactions.commit(first.id, 2)
        done = await new.transactions.commit(second.id, 1)
    else:
        steps.hold_at = step
        committing = asyncio.create_task(old.transactions.commit(first.id, 2))
        await steps.held.wait()
        done = await new.transactions.commit(second.id, 1)
        steps.go_on.set()
        assert await committing == done
    winner = second if step in BEFORE else first
    assert done.transaction.id == winner.id
    assert await committed(new, topic) == ["new" if step in BEFORE else "old"]
    for each in (first, second):
        assert await new.transactions.commit(each.id, 2 if each == first else 1) == done
    assert (await begin_once(new, 7)).id == winner.id
    (row,) = database["oplog_once"].find({})
    assert (row["number"], row["txn"], row.get("claim")) == (7, winner.id, None)
    loser = database["oplog_txns"].find_one({"_id": first.id if winner == second else second.id})
    assert loser is not None
    # An agent of the version before knows these values.
    assert (loser["phase"], loser["reason"], loser["outrun"]) == (
        "aborted",
        "aborted by the client",
        True,
    )


@pytest.mark.parametrize("step", ["settled", "finished"])
async def test_a_transaction_that_is_replaced_can_be_forgotten_wherever_its_coordinator_dies(
    plain_url: str, make_store: MakeStore, database: Database[Document], step: str
) -> None:
    steps = Steps()
    old, new = await stepping(make_store, plain_url, steps), await opened(make_store, plain_url)
    await topics_of(new)
    steps.kill_at = step, 1
    first = await begin_once(old, 1)
    with pytest.raises(KilledError):
        await old.transactions.commit(first.id, 0)
    second = await begin_once(new, 2)
    await new.transactions.commit(second.id, 0)
    kept = {each["_id"]: each.get("kept") for each in database["oplog_txns"].find({})}
    assert kept == {first.id: None, second.id: True}


async def test_a_key_with_a_claim_is_deleted_after_the_transaction_has_ended(
    plain_url: str, make_store: MakeStore, database: Database[Document]
) -> None:
    steps = Steps()
    old, new = await stepping(make_store, plain_url, steps), await opened(make_store, plain_url)
    await topics_of(new)
    steps.hold_at = "claimed"
    txn = await begin_once(old, 1)
    committing = asyncio.create_task(old.transactions.commit(txn.id, 0))
    await steps.held.wait()
    with pytest.raises(TransactionConflictError, match=f"{txn.id} is about to commit with the key"):
        await new.transactions.forget_key(KEY)
    steps.go_on.set()
    await committing
    await new.transactions.forget_key(KEY)
    assert list(database["oplog_once"].find({})) == []
    (row,) = database["oplog_txns"].find({})
    assert "kept" not in row


async def test_a_commit_that_an_older_agent_has_completed_counts(
    plain_url: str, make_store: MakeStore, database: Database[Document]
) -> None:
    """An agent of the version before finishes a commit without a look at its key."""
    steps = Steps()
    old, new = await stepping(make_store, plain_url, steps), await opened(make_store, plain_url)
    await topics_of(new)
    steps.kill_at = "decided", 1
    first = await begin_once(old, 1)
    with pytest.raises(KilledError):
        await old.transactions.commit(first.id, 0)
    rows = database["oplog_txns"]
    once = rows.find_one({"_id": first.id})["once"]  # type: ignore[index]
    rows.update_one({"_id": first.id}, {"$unset": {"once": ""}})
    await new.transactions.commit(first.id, 0)
    rows.update_one({"_id": first.id}, {"$set": {"once": once}})
    assert (await begin_once(new, 1)).id == first.id
    row = rows.find_one({"_id": first.id})
    assert row is not None
    assert row["kept"] is True

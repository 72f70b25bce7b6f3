"""Two commits of one number of a key, one between the steps of the other."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from pymongo.database import Database

from oplogd.errors import OnceKeyNotFoundError, TransactionConflictError
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
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.once_model import WAYS, Way, run, schedules, wrong

KEY = "import"
DAY_MS = 86_400_000
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


async def tidy(*stores: MongoStore) -> None:
    """Let the holder of the fold lease forget what is old."""
    for store in stores:
        store.transactions.decider._tidied_at = float("-inf")
        await store.transactions.keep()


@pytest.mark.parametrize("with_number", [False, True])
async def test_a_begin_whose_time_is_over_before_its_answer_is_refused(
    plain_url: str, make_store: MakeStore, clock: VirtualClock, with_number: bool
) -> None:
    steps = Steps()
    store, other = await stepping(make_store, plain_url, steps), await opened(make_store, plain_url)
    await topics_of(other)
    steps.hold_at = "begin-record"
    once = OnceNumber(KEY, 1) if with_number else None
    log = (await commit_log(store)).log
    beginning = asyncio.create_task(
        store.transactions.begin(NewTransaction(log, "default", None, 1_000, once=once))
    )
    await steps.held.wait()
    clock.ms += 60_000
    (found,) = await other.transactions.select(None, None, 10)
    await other.transactions.find(found.id)
    steps.go_on.set()
    with pytest.raises(TransactionConflictError, match="timed out"):
        await beginning


async def test_a_deletion_that_is_cut_keeps_nothing_for_ever(
    plain_url: str, make_store: MakeStore, database: Database[Document], clock: VirtualClock
) -> None:
    steps = Steps()
    store, other = await stepping(make_store, plain_url, steps), await opened(make_store, plain_url)
    await topics_of(other)
    first = await begin_once(store, 1)
    await store.transactions.commit(first.id, 0)
    steps.kill_at = "cleared", 1
    with pytest.raises(KilledError):
        await store.transactions.forget_key(KEY)
    with pytest.raises(OnceKeyNotFoundError):
        await other.transactions.newest(KEY)
    second = await begin_once(other, 1)
    await other.transactions.commit(second.id, 0)
    clock.ms += 3 * DAY_MS
    await tidy(store, other)
    assert [each["_id"] for each in database["oplog_txns"].find({})] == [second.id]
    assert (await other.transactions.newest(KEY)).id == second.id


async def test_a_key_is_deleted_whole_at_the_second_attempt(
    plain_url: str, make_store: MakeStore, database: Database[Document]
) -> None:
    steps = Steps()
    store = await stepping(make_store, plain_url, steps)
    await topics_of(store)
    txn = await begin_once(store, 1)
    await store.transactions.commit(txn.id, 0)
    steps.kill_at = "cleared", 1
    with pytest.raises(KilledError):
        await store.transactions.forget_key(KEY)
    await store.transactions.forget_key(KEY)
    assert list(database["oplog_once"].find({})) == []
    (row,) = database["oplog_txns"].find({})
    assert "kept" not in row


async def test_operations_of_a_commit_that_is_kept_are_removed_although_its_coordinator_died(
    plain_url: str, make_store: MakeStore, database: Database[Document], clock: VirtualClock
) -> None:
    steps = Steps()
    store, other = await stepping(make_store, plain_url, steps), await opened(make_store, plain_url)
    await topics_of(other)
    txn = await begin_once(store, 1)
    await write(store, txn, *(operation(lsn, str(lsn)) for lsn in range(3)))
    steps.kill_at = "finished", 1
    with pytest.raises(KilledError):
        await store.transactions.commit(txn.id, 3)
    clock.ms += 3 * DAY_MS
    await tidy(store, other)
    left = [each["_id"] for each in database["oplog_payloads"].find({})]
    assert [each for each in left if not each.startswith("~")] == []
    assert (await other.transactions.newest(KEY)).id == txn.id


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_a_late_look_at_a_finished_commit_keeps_no_row_that_was_replaced(
    plain_url: str,
    make_store: MakeStore,
    database: Database[Document],
    monkeypatch: pytest.MonkeyPatch,
    is_deleted: bool,
) -> None:
    steps = Steps()
    store, other = await stepping(make_store, plain_url, steps), await opened(make_store, plain_url)
    looking = await opened(make_store, plain_url)
    await topics_of(other)
    first = await begin_once(store, 1)
    steps.hold_at = "decided"
    committing = asyncio.create_task(store.transactions.commit(first.id, 0))
    await steps.held.wait()
    claims = looking.transactions._claims
    found, hold = claims._found, claims._rows.hold

    async def find_late(id_: int) -> Any:
        steps.go_on.set()
        await committing
        monkeypatch.setattr(claims, "_found", found)
        return await found(id_)

    async def hold_late(id_: int) -> None:
        if is_deleted:
            await other.transactions.forget_key(KEY)
        else:
            second = await begin_once(other, 2)
            await other.transactions.commit(second.id, 0)
        await hold(id_)

    monkeypatch.setattr(claims, "_found", find_late)
    monkeypatch.setattr(claims._rows, "hold", hold_late)
    with suppress(TransactionConflictError):
        await begin_once(looking, 1)
    kept = [each["_id"] for each in database["oplog_txns"].find({"kept": True})]
    assert first.id not in kept


async def test_a_replaced_transaction_is_forgotten_a_day_later(
    plain_url: str, make_store: MakeStore, database: Database[Document], clock: VirtualClock
) -> None:
    store = await opened(make_store, plain_url)
    await topics_of(store)
    txns = []
    for number in (1, 2):
        txns.append(await begin_once(store, number))
        await store.transactions.commit(txns[-1].id, 0)
        clock.ms += 3 * DAY_MS if number == 1 else 0
    for left in (txns, txns[1:]):
        await tidy(store)
        found = sorted(each["_id"] for each in database["oplog_txns"].find({}))
        assert found == [each.id for each in left]
        clock.ms += 3 * DAY_MS

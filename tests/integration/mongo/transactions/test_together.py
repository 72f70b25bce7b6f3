"""Entries of transactions that one insert could carry: requests of one agent share it."""

import asyncio
from typing import Any

import pytest
from pymongo.database import Database

from oplogd.model.transaction import State
from oplogd.store.mongo.link.layout import Document
from oplogd.store.mongo.topics.groups import Group, Once, new_entry
from oplogd.store.topics import EntryKind, Topic
from tests.integration.mongo.committing import (
    KilledError,
    Steps,
    begin,
    committed,
    kinds_of,
    opened,
    record,
    stepping,
    topics_of,
    write,
    written,
)
from tests.integration.mongo.topics.topics import inserts_entries
from tests.kits.agents.agent import DEADLINE
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.wire import Wire

END = "end of the transaction"


def group_of(topic: Topic, kind: EntryKind, *conditions: Once) -> Group:
    return Group(topic.log, [new_entry(kind, b"{}", None, once) for once in conditions])


async def test_entries_with_one_identity_that_are_appended_together_go_in_once(
    plain_url: str, make_store: MakeStore
) -> None:
    store = await opened(make_store, plain_url)
    (topic,) = await topics_of(store, "a")
    records = [Once(f"record {lsn}", END, "digest") for lsn in range(3)]
    first = group_of(topic, EntryKind.DEFERRED, *records)
    again = group_of(topic, EntryKind.DEFERRED, *records[1:])
    other = group_of(topic, EntryKind.DEFERRED, Once("record 1", END, "another digest"))
    await store.topics.appender.run([first, again, other])
    assert await kinds_of(store, topic) == ["deferred"] * 3
    assert (first.repeated, len(again.repeated)) == ([], 2)
    assert again.last == first.last
    assert other.clash is not None


async def test_a_record_that_is_appended_together_with_the_end_of_its_transaction_stays_out(
    plain_url: str, make_store: MakeStore
) -> None:
    store = await opened(make_store, plain_url)
    (topic,) = await topics_of(store, "a")
    ends = [group_of(topic, EntryKind.ABORT, Once(END)) for _ in range(2)]
    late = group_of(topic, EntryKind.DEFERRED, Once("record 0", END, "digest"))
    await store.topics.appender.run([*ends, late])
    assert await kinds_of(store, topic) == ["abort"]
    assert ends[0].last == ends[1].last
    assert late.is_closed


async def test_records_that_are_sent_twice_at_once_to_one_agent_are_stored_once(
    wire: Wire, make_store: MakeStore
) -> None:
    steps = Steps()
    store = await stepping(make_store, wire.url(), steps)
    (topic,) = await topics_of(store, "a")
    txn, other = await begin(store), await begin(store)
    records = [record(lsn, topic, str(lsn)) for lsn in range(3)]
    held = wire.hold(inserts_entries)
    writing = [asyncio.create_task(write(store, other, record(0, topic, "other")))]
    await asyncio.to_thread(held.wait)
    writing += [asyncio.create_task(write(store, txn, *records)) for _ in range(2)]
    async with asyncio.timeout(DEADLINE):
        while steps.names.count("registered") < len(writing):
            await asyncio.sleep(0)
    await asyncio.to_thread(held.release)
    await asyncio.gather(*writing)
    assert await kinds_of(store, topic) == ["deferred"] * 4
    commit = await store.transactions.commit(txn.id, 3)
    assert commit.transaction.bytes == sum(len(each.content.data) for each in records)
    assert await committed(store, topic) == ["0", "1", "2"]
    await store.close()


async def test_a_commit_succeeds_although_one_for_the_same_transaction_fails_before_it(
    wire: Wire, make_store: MakeStore
) -> None:
    steps = Steps()
    store = await stepping(make_store, wire.url(), steps)
    (topic,) = await topics_of(store, "a")
    txn = await written(store, [record(0, topic, "x")])
    steps.hold_at, steps.kill_at = "commit-record", ("marker", 1)
    failing = asyncio.create_task(store.transactions.commit(txn.id, 1))
    await steps.held.wait()
    held = wire.hold(lambda command: command.get("find") == "oplog_txns", "after")
    committing = asyncio.create_task(store.transactions.commit(txn.id, 1))
    await asyncio.to_thread(held.wait)
    await asyncio.to_thread(held.release)
    steps.go_on.set()
    with pytest.raises(KilledError):
        await failing
    assert (await committing).transaction.state is State.COMMITTED
    assert await committed(store, topic) == ["x"]
    await store.close()


async def test_a_commit_has_all_its_records_although_the_row_counts_fewer(
    plain_url: str, make_store: MakeStore, database: Database[Document]
) -> None:
    """A record that lands late is taken for another agent's, so it is counted off."""
    store = await opened(make_store, plain_url)
    (topic,) = await topics_of(store, "a")
    txn = await written(store, [record(lsn, topic, str(lsn)) for lsn in range(3)])
    row: dict[str, Any] = {"_id": txn.id}
    assert database["oplog_txns"].update_one(row, {"$inc": {"records": -2}}).modified_count == 1
    commit = await store.transactions.commit(txn.id, 3)
    assert all(commit.record_ids())
    assert await committed(store, topic) == ["0", "1", "2"]

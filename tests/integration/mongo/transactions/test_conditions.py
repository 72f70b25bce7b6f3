"""Entries of transactions go in once, and only before their transaction has ended in the log."""

import asyncio
from collections import Counter

import pytest
from pymongo.database import Database
from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
)

from oplogd.errors import TransactionConflictError
from oplogd.store.mongo.link.layout import Document
from tests.integration.mongo.committing import (
    Steps,
    begin,
    committed,
    ends_of,
    events_of,
    kinds_of,
    opened,
    record,
    stepping,
    topics_of,
    write,
    written,
)
from tests.integration.mongo.topics.topics import ENTRIES, inserts_entries, place
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.wire import Wire


async def test_a_record_whose_insert_is_beaten_by_its_own_copy_is_stored_once(
    wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    other = await opened(make_store, plain_url)
    store = await opened(make_store, wire.url())
    (topic,) = await topics_of(other, "a")
    txn = await begin(other)
    records = [record(lsn, topic, str(lsn)) for lsn in range(3)]
    held = wire.hold(inserts_entries)
    writing = asyncio.create_task(write(store, txn, *records))
    await asyncio.to_thread(held.wait)
    await write(other, txn, *records[1:])
    await asyncio.to_thread(held.release)
    assert (await writing).records == 3
    assert await kinds_of(other, topic) == ["deferred"] * 3
    commit = await other.transactions.commit(txn.id, 3)
    assert commit.transaction.bytes == sum(len(each.content.data) for each in records)
    assert await committed(store, topic) == ["0", "1", "2"]
    await store.close()


async def test_a_record_whose_transaction_is_aborted_meanwhile_is_not_stored(
    wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    other = await opened(make_store, plain_url)
    store = await opened(make_store, wire.url())
    (topic,) = await topics_of(other, "a")
    txn = await begin(other)
    held = wire.hold(inserts_entries)
    writing = asyncio.create_task(write(store, txn, record(0, topic, "late")))
    await asyncio.to_thread(held.wait)
    await other.transactions.abort(txn.id)
    await asyncio.to_thread(held.release)
    with pytest.raises(TransactionConflictError, match="was aborted by the client"):
        await writing
    assert await kinds_of(other, topic) == ["abort"]
    await store.close()


async def test_a_begin_record_does_not_follow_the_abort_of_its_transaction(
    wire: Wire, plain_url: str, make_store: MakeStore, database: Database[Document]
) -> None:
    other = await opened(make_store, plain_url)
    store = await opened(make_store, wire.url())
    (topic,) = await topics_of(other, "a")
    held = wire.hold(inserts_entries)
    beginning = asyncio.create_task(begin(store, topic=topic))
    await asyncio.to_thread(held.wait)
    (row,) = database["oplog_txns"].find({})
    await other.transactions.abort(row["_id"])
    await asyncio.to_thread(held.release)
    assert (await beginning).begin is None
    assert await kinds_of(other, topic) == ["abort"]
    await store.close()


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_write_whose_answer_is_lost_stores_its_records_once(
    moment: str, wire: Wire, make_store: MakeStore
) -> None:
    store = await opened(make_store, wire.url(retryWrites="false"))
    first, second = await topics_of(store, "a", "b")
    txn = await begin(store)
    await write(store, txn, record(0, first, "x"))
    records = [record(1, first, "y"), record(2, second, "z")]
    held = wire.hold(inserts_entries, "before" if moment == "before" else "after")
    writing = asyncio.create_task(write(store, txn, *records))
    await asyncio.to_thread(held.wait)
    await asyncio.to_thread(held.cut)
    assert (await writing).records == 3
    await asyncio.to_thread(held.release)
    assert (await write(store, txn, *records)).records == 3
    assert await kinds_of(store, first) == ["deferred"] * 2
    assert await kinds_of(store, second) == ["deferred"]
    await store.close()


@pytest.mark.parametrize("together", [False, True])
async def test_an_lsn_with_two_contents_that_are_sent_at_once_has_one_of_them(
    together: bool, wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    """In one topic the second writer notices it. In two topics the commit does."""
    other = await opened(make_store, plain_url)
    store = await opened(make_store, wire.url())
    first, second = await topics_of(other, "a", "b")
    txn = await begin(other)
    held = wire.hold(inserts_entries)
    topic = first if together else second
    writing = asyncio.create_task(write(store, txn, record(0, topic, "x"), record(1, topic, "y")))
    await asyncio.to_thread(held.wait)
    await write(other, txn, record(1, first, "z"))
    await asyncio.to_thread(held.release)
    if together:
        with pytest.raises(TransactionConflictError, match="lsn 1 "):
            await writing
        await write(store, txn, record(0, first, "x"))
        await other.transactions.commit(txn.id, 2)
        assert await committed(other, first) == ["x", "z"]
    else:
        await writing
        with pytest.raises(TransactionConflictError, match="lsn 1 "):
            await other.transactions.commit(txn.id, 2)
        assert await ends_of(other, first) == []
    await store.close()


async def test_copies_that_share_one_insert_are_stored_once(
    wire: Wire, make_store: MakeStore
) -> None:
    """They are sent to one agent while it is busy with another insert."""
    steps = Steps()
    store = await stepping(make_store, wire.url(), steps)
    (topic,) = await topics_of(store, "a")
    busy, aborted, txn = [await begin(store) for _ in range(3)]
    await write(store, aborted, record(0, topic, "x"))
    held = wire.hold(inserts_entries)
    sent: list[asyncio.Task[object]] = [
        asyncio.create_task(write(store, busy, record(0, topic, "y")))
    ]
    await asyncio.to_thread(held.wait)
    steps.names.clear()
    for _ in range(2):
        sent.append(asyncio.create_task(write(store, txn, record(0, topic, "z"))))
        sent.append(asyncio.create_task(store.transactions.abort(aborted.id)))
    async with asyncio.timeout(120):
        while Counter(steps.names) != {"registered": 2, "decided": 1}:
            await asyncio.sleep(0.001)
    await asyncio.to_thread(held.release)
    await asyncio.gather(*sent)
    assert (await store.transactions.find(txn.id)).records == 1
    assert await kinds_of(store, topic) == ["deferred", "deferred", "deferred", "abort"]
    assert [event for event, _ in await events_of(store)] == ["begin"] * 3 + ["abort"]
    await store.close()


class _Commands(CommandListener):
    """Counts the commands on topics, with the transactions' members in them."""

    def __init__(self) -> None:
        self.names: Counter[str] = Counter()

    def started(self, event: CommandStartedEvent) -> None:
        name = event.command_name
        if event.command.get(name) in (ENTRIES, "oplog_txns", "oplog_payloads"):
            part = event.command.get("filter", {})
            self.names[f"{name} by x" if "x" in str(part.keys()) or "$or" in part else name] += 1

    def succeeded(self, event: CommandSucceededEvent) -> None:
        pass

    def failed(self, event: CommandFailedEvent) -> None:
        pass


async def test_a_plain_append_sends_one_look_up_and_one_insert(
    plain_url: str, make_store: MakeStore
) -> None:
    await opened(make_store, plain_url)
    commands = _Commands()
    store = await opened(make_store, plain_url, event_listeners=[commands])
    (topic,) = await topics_of(store, "a")
    await place(store.topics, topic, "a")
    await written(store, [record(0, topic, "b")])
    await place(store.topics, topic, "c")
    commands.names.clear()
    await place(store.topics, topic, "d", "e")
    assert commands.names == {"find": 1, "insert": 1}

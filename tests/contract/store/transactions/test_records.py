"""Begin and write in every store: entries, repeats, limits, errors."""

import asyncio
from itertools import pairwise

import pytest

from oplogd.errors import (
    TopicError,
    TopicNotFoundError,
    TransactionConflictError,
    TransactionNotFoundError,
    TransactionTooLargeError,
)
from oplogd.model.event_id import Mark
from oplogd.model.transaction import FIRST_ID, MAX_ID, Marker, Record, State
from oplogd.store.topics import EntryKind
from oplogd.store.transactions import RecordLimits
from tests.kits.clock.virtual import START_MS
from tests.kits.models.operations import numbered
from tests.kits.store.kits import Kit
from tests.kits.store.messages import NAME, entries_of, ids, mark, named, publish
from tests.kits.store.transacting import (
    EVERY,
    StoreHandle,
    begin,
    decisions_in,
    entries_with,
    group_log,
    oplog_record,
    payloads_committed,
    payloads_uncommitted,
    record,
    records,
    told_in,
    write,
)


async def test_a_transaction_begins_with_a_record_in_the_commit_log_of_its_group(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    log = await group_log(txn_store)
    txn_kit.clock.ms += 5
    begun = await begin(txn_store, timeout_ms=1234)
    assert FIRST_ID < begun.id <= MAX_ID
    assert (begun.id - FIRST_ID) >> 20 == START_MS + 5
    assert begun.begin == Mark(1, START_MS + 5, 0)
    assert begun._replace(id=0, begin=None) == (
        *(0, log.log, "default", None, State.OPEN, None),
        *(START_MS + 5, START_MS + 5 + 1234, (), 0, 0, None, None, None, None, None),
    )
    expires = "2023-11-14T22:13:21.239Z"
    event = f'{{"event":"begin","txn":"{begun.id}","expires_at":"{expires}"}}'
    assert await told_in(txn_store) == [(str(begun.id), event)]


async def test_a_transaction_of_a_topic_begins_with_an_entry_in_its_log_that_nobody_sees(
    txn_store: StoreHandle,
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    begun = await begin(txn_store, topic=topic)
    (entry,) = await entries_of(txn_store.topics.log(topic))
    assert begun.begin == mark(entry)
    assert (begun.log, begun.group, begun.only_log) == (topic.log, None, topic.log)
    marker = (EntryKind.BEGIN, Marker(str(begun.id)))
    assert await entries_with(txn_store, topic, *EntryKind) == [marker]
    assert await payloads_uncommitted(txn_store, topic) == []
    assert await payloads_committed(txn_store, topic) == []


async def test_a_transaction_of_a_deleted_topic_does_not_begin(txn_store: StoreHandle) -> None:
    topic = await txn_store.topics.create(NAME, None)
    await txn_store.topics.delete(NAME)
    with pytest.raises(TopicNotFoundError):
        await begin(txn_store, topic=topic)
    assert (await txn_store.transactions.stats()).open == 0


async def test_ids_differ_and_grow_with_the_time(txn_kit: Kit, txn_store: StoreHandle) -> None:
    same_ms = {(await begin(txn_store)).id for _ in range(20)}
    assert len(same_ms) == 20
    found = []
    for _ in range(5):
        txn_kit.clock.ms += 1
        found.append((await begin(txn_store)).id)
    assert found == sorted(found)
    assert max(same_ms) < found[0]


@pytest.mark.parametrize("txn_kits", EVERY, indirect=True)
async def test_records_become_deferred_entries_at_the_places_where_they_were_written(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    other = await txn_store.topics.create(named("other"), None)
    begun = await begin(txn_store)
    await publish(txn_store.topics, topic, "before")
    txn_kit.clock.ms += 7
    written = await write(
        txn_store, begun, record(0, topic, "a", 5), record(1, other, "b"), record(2, topic, "c")
    )
    assert written == begun._replace(logs=(topic.log, other.log), records=3, bytes=3 * 15)
    await publish(txn_store.topics, topic, "after")
    entries = await entries_of(txn_store.topics.log(topic))
    assert [(entry.offset, entry.event, entry.data) for entry in entries] == [
        (1, "message", '{"payload":"before"}'),
        (2, "deferred", '{"payload":"a"}'),
        (3, "deferred", '{"payload":"c"}'),
        (4, "message", '{"payload":"after"}'),
    ]
    assert entries[1].ms == START_MS + 7
    assert [entry.expires_ms for entry in entries] == [0, entries[1].ms + 5000, 0, 0]
    assert all(one < two for one, two in pairwise(ids(entries)))
    assert await payloads_uncommitted(txn_store, topic) == ["before", "a", "c", "after"]
    assert await payloads_committed(txn_store, topic) == ["before", "after"]
    assert await payloads_uncommitted(txn_store, other) == ["b"]
    assert await payloads_committed(txn_store, other) == []


async def test_a_repeated_record_is_stored_once_whichever_agent_gets_it(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    other = await txn_kit.open()
    topic = await txn_store.topics.create(NAME, None)
    begun = await begin(txn_store)
    a, b, c = records(topic, "a", "b", "c")
    operation = oplog_record(3, numbered(1)[0])
    await write(txn_store, begun, a, a, operation)
    await write(other, begun, a, b)
    await write(txn_store, begun, b, a)
    written = await write(other, begun, c, b, a, operation)
    assert (written.records, written.logs) == (4, (0, topic.log))
    assert written.bytes == 3 * 15 + len(operation.content.data)
    assert await payloads_uncommitted(txn_store, topic) == ["a", "b", "c"]
    commit = await other.transactions.commit(begun.id, 4)
    assert len(commit.order) == 4
    assert await payloads_committed(txn_store, topic) == ["a", "b", "c"]
    assert len(await txn_store.read(0, 10)) == 1


async def test_a_record_sent_through_two_agents_at_the_same_time_is_stored_once(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    other = await txn_kit.open()
    topic = await txn_store.topics.create(NAME, None)
    begun = await begin(txn_store)
    written = records(topic, *range(40))
    for some in (written[:10], written[10:20], written[15:35], written[30:]):
        await asyncio.gather(*[write(each, begun, *some) for each in (txn_store, other)])
    for lsn in range(40, 60):
        await asyncio.gather(
            *[write(each, begun, record(lsn, topic, lsn)) for each in (txn_store, other)]
        )
    assert sorted(map(int, await payloads_uncommitted(txn_store, topic))) == [*range(60)]
    await txn_store.transactions.commit(begun.id, 60)
    assert await payloads_committed(other, topic) == [str(lsn) for lsn in range(60)]


async def test_a_record_with_a_used_lsn_and_other_content_is_refused_with_all_that_came_with_it(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    other = await txn_kit.open()
    topic = await txn_store.topics.create(NAME, None)
    second = await txn_store.topics.create(named("second"), None)
    begun = await begin(txn_store)
    operation, another = numbered(2)
    before = await write(
        txn_store, begun, record(0, topic, "a"), record(1, topic, "b"), oplog_record(2, operation)
    )
    for wrong in (
        record(1, topic, "B"),
        record(1, topic, "b", 60),
        record(1, second, "b"),
        oplog_record(1, operation),
        record(2, topic, "c"),
        oplog_record(2, another),
    ):
        for store in (txn_store, other):
            with pytest.raises(TransactionConflictError, match=f"lsn {wrong.lsn}"):
                await write(store, begun, record(3, topic, "d"), wrong)
    with pytest.raises(TransactionConflictError, match="lsn 4"):
        await write(txn_store, begun, record(4, topic, "e"), record(4, topic, "E"))
    assert await txn_store.transactions.find(begun.id) == before
    assert await payloads_uncommitted(txn_store, topic) == ["a", "b"]
    assert await payloads_uncommitted(txn_store, second) == []


async def test_a_transaction_of_one_log_takes_no_records_of_others(txn_store: StoreHandle) -> None:
    topic = await txn_store.topics.create(NAME, None)
    other = await txn_store.topics.create(named("other"), None)
    (operation,) = numbered(1)
    of_topic = await begin(txn_store, topic=topic)
    of_oplog = await begin(txn_store, only_log=0)
    wrong: list[tuple[object, Record]] = [
        (of_topic, record(1, other, "x")),
        (of_topic, oplog_record(1, operation)),
        (of_oplog, record(1, topic, "x")),
    ]
    await write(txn_store, of_topic, record(0, topic, "a"))
    await write(txn_store, of_oplog, oplog_record(0, operation))
    for begun, refused in wrong:
        with pytest.raises(TopicError):
            await write(txn_store, begun, refused)  # type: ignore[arg-type]
    assert await payloads_uncommitted(txn_store, topic) == ["a"]
    assert await payloads_uncommitted(txn_store, other) == []
    for begun in (of_topic, of_oplog):
        await txn_store.transactions.commit(begun.id, 1)
    assert await payloads_committed(txn_store, topic) == ["a"]
    assert len(await txn_store.read(0, 10)) == 1


async def test_a_record_of_a_deleted_topic_is_refused_with_all_that_came_with_it(
    txn_store: StoreHandle,
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    gone = await txn_store.topics.create(named("gone"), None)
    begun = await begin(txn_store)
    await txn_store.topics.delete(gone.name)
    again = await txn_store.topics.create(gone.name, None)
    with pytest.raises(TopicNotFoundError):
        await write(txn_store, begun, record(0, topic, "a"), record(1, gone, "b"))
    assert await payloads_uncommitted(txn_store, topic) == []
    assert await payloads_uncommitted(txn_store, again) == []
    assert (await txn_store.transactions.find(begun.id)).records == 0
    await write(txn_store, begun, *records(topic, "c", "d"))
    await txn_store.transactions.commit(begun.id, 2)
    assert await payloads_committed(txn_store, topic) == ["c", "d"]


async def test_a_transaction_has_no_more_records_and_bytes_than_it_may(
    txn_store: StoreHandle,
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    few, small = RecordLimits(records=3), RecordLimits(bytes=3 * 15)
    for limits in (few, small):
        begun = await begin(txn_store)
        await write(txn_store, begun, *records(topic, "a", "b"), limits=limits)
        with pytest.raises(TransactionTooLargeError):
            await write(txn_store, begun, *records(topic, "c", "d", first=2), limits=limits)
        full = await write(txn_store, begun, record(2, topic, "c"), limits=limits)
        assert (full.records, full.bytes) == (3, 45)
        repeated = await write(txn_store, begun, *records(topic, "a", "b", "c"), limits=limits)
        assert repeated == full
        with pytest.raises(TransactionTooLargeError):
            await write(txn_store, begun, record(3, topic, ""), limits=limits)
    assert await payloads_uncommitted(txn_store, topic) == [*"abc"] * 2


async def test_an_lsn_past_the_limit_is_refused_although_the_transaction_has_few_records(
    txn_store: StoreHandle,
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    begun = await begin(txn_store)
    limits = RecordLimits(records=3)
    await write(txn_store, begun, record(2, topic, "c"), limits=limits)
    with pytest.raises(TransactionTooLargeError):
        await write(txn_store, begun, record(3, topic, "d"), limits=limits)
    assert await payloads_uncommitted(txn_store, topic) == ["c"]


async def test_nobody_knows_a_transaction_that_never_began(txn_store: StoreHandle) -> None:
    topic = await txn_store.topics.create(NAME, None)
    begun = await begin(txn_store)
    missing = begun._replace(id=begun.id + (1 << 30))
    transactions = txn_store.transactions
    for call in (
        transactions.find(missing.id),
        transactions.commit(missing.id, 0),
        transactions.abort(missing.id),
        write(txn_store, missing, record(0, topic, "a")),
    ):
        with pytest.raises(TransactionNotFoundError, match=f"no transaction {missing.id}"):
            await call
    assert await payloads_uncommitted(txn_store, topic) == []
    assert await decisions_in(txn_store, topic) == []

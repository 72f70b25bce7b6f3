"""The records of a commit in every store: pages, times to live, sweeps."""

import pytest

from oplogd.errors import TopicNotFoundError
from oplogd.store.topics import EntryKind, TopicRecord
from tests.kits.store.kits import LARGE, Kit
from tests.kits.store.messages import NAME, entries_of, mark, messages, named, publish, publish_all
from tests.kits.store.transacting import (
    EVERY,
    TWENTY_MINUTES_MS,
    StoreHandle,
    begin,
    commits_in,
    committed_with,
    payload_of,
    payloads_committed,
    payloads_uncommitted,
    record,
    records,
    seen_committed,
    write,
)


@pytest.mark.parametrize("txn_kits", EVERY, indirect=True)
async def test_records_of_a_commit_are_read_page_by_page_from_any_lsn(
    txn_store: StoreHandle,
) -> None:
    topic, other = [await txn_store.topics.create(named(name), None) for name in "ab"]
    # Two transactions in two topics: a page holds records of one of them in one of these only.
    twins = [await begin(txn_store) for _ in range(2)]
    for lsn in (6, 0, 2, 8, 4):
        for each in twins:
            name = f"{twins.index(each)}.{lsn}"
            await write(txn_store, each, record(lsn, topic, name), record(lsn + 1, other, name))
    await txn_store.transactions.commit(twins[0].id, 9)
    (commit,) = await commits_in(txn_store, topic)
    log = txn_store.topics.log(topic)
    expected = [TopicRecord(lsn, f'{{"payload":"0.{lsn}"}}', 0) for lsn in (0, 2, 4, 6, 8)]
    for after in range(-1, 10):
        rest = [each for each in expected if each.number > after]
        for limit in (1, 2, 100):
            assert await log.expand(commit, after, limit) == rest[:limit]
    (of_other,) = await commits_in(txn_store, other)
    found = await txn_store.topics.log(other).expand(of_other, -1, 100)
    assert [(lsn, payload_of(data)) for lsn, data, _ in found] == [
        (1, "0.0"), (3, "0.2"), (5, "0.4"), (7, "0.6")
    ]  # fmt: skip


async def test_a_page_of_large_records_has_about_a_megabyte_and_never_none(
    txn_store: StoreHandle,
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    sizes = [400_000, 400_000, 900_000, 1_000_000, 10, 10]
    commit = await committed_with(
        txn_store, *[record(lsn, topic, str(lsn) * size) for lsn, size in enumerate(sizes)]
    )
    (entry,) = await commits_in(txn_store, topic)
    log = txn_store.topics.log(topic)
    pages = []
    after = -1
    while page := await log.expand(entry, after, 100):
        pages.append([each.number for each in page])
        assert len(page) == 1 or sum(len(each.data) for each in page) <= 1_100_000
        after = page[-1].number
    assert [lsn for page in pages for lsn in page] == [*range(6)]
    assert pages[0] == [0, 1]
    assert len(pages) < 6
    assert len(list(commit.record_ids())) == 6


@pytest.mark.parametrize("txn_kits", ["memory", *LARGE], indirect=True)
async def test_a_commit_of_many_records_is_read_whole(txn_store: StoreHandle) -> None:
    topic, other = [await txn_store.topics.create(named(name), None) for name in "ab"]
    begun = await begin(txn_store)
    for first in range(0, 3000, 1000):
        await write(
            txn_store,
            begun,
            *[record(lsn, (topic, other)[lsn % 2], lsn) for lsn in range(first, first + 1000)],
        )
    commit = await txn_store.transactions.commit(begun.id, 3000)
    seen = [await seen_committed(txn_store, each, page=400) for each in (topic, other)]
    assert [each.payload for each in seen[0]] == [str(lsn) for lsn in range(0, 3000, 2)]
    assert [each.payload for each in seen[1]] == [str(lsn) for lsn in range(1, 3000, 2)]
    ids = list(commit.record_ids())
    assert (ids[0::2], ids[1::2]) == tuple([each.id for each in one] for one in seen)


async def test_a_records_own_ttl_counts_from_the_write_and_for_committed_readers_from_the_commit(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    topic = await txn_store.topics.create(NAME, 1000)
    begun = await begin(txn_store)
    await write(txn_store, begun, record(0, topic, "a", 5), record(1, topic, "b"))
    written = (await entries_of(txn_store.topics.log(topic)))[0]
    txn_kit.clock.ms = written.ms + 5000
    assert await payloads_uncommitted(txn_store, topic) == ["a", "b"]
    txn_kit.clock.ms += 1
    await txn_store.topics.sweep()
    assert await payloads_uncommitted(txn_store, topic) == ["b"]
    await txn_store.transactions.commit(begun.id, 2)
    (commit,) = await commits_in(txn_store, topic)
    expires = commit.ms + 5000
    log = txn_store.topics.log(topic)
    for now, data in (
        (commit.ms, '{"payload":"a"}'),
        (expires, '{"payload":"a"}'),
        (expires + 1, ""),
    ):
        txn_kit.clock.ms = now
        for sweeps in (False, True):
            if sweeps:
                await txn_store.topics.sweep()
            assert await log.expand(commit, -1, 10) == [
                TopicRecord(0, data, expires),
                TopicRecord(1, '{"payload":"b"}', 0),
            ]
    assert await payloads_uncommitted(txn_store, topic) == ["b"]
    assert await payloads_committed(txn_store, topic) == ["b"]


@pytest.mark.parametrize("sweeps", [False, True])
async def test_a_commit_shows_records_that_the_front_passed_while_the_transaction_was_open(
    txn_kit: Kit, txn_store: StoreHandle, sweeps: bool
) -> None:
    topic = await txn_store.topics.create(NAME, 5)
    begun = await begin(txn_store, timeout_ms=15 * 60_000)
    await publish(txn_store.topics, topic, "plain")
    await write(txn_store, begun, *records(topic, "a", "b"))
    # Both readers lose the plain message, the uncommitted ones also the records.
    txn_kit.clock.ms = begun.expires_ms
    if sweeps:
        await txn_store.topics.sweep()
    assert await entries_of(txn_store.topics.log(topic)) == []
    await publish(txn_store.topics, topic, "new")
    if sweeps:
        await txn_store.topics.sweep()
    await write(txn_store, begun, *records(topic, "a", "b", "c"))
    commit = await txn_store.transactions.commit(begun.id, 3)
    seen = await seen_committed(txn_store, topic)
    assert [each.payload for each in seen] == ["new", "a", "b", "c"]
    assert [each.id for each in seen[1:]] == list(commit.record_ids())
    assert await payloads_uncommitted(txn_store, topic) == ["new", "c"]
    # The ttl of the topic counts from the commit for all records.
    (entry,) = await commits_in(txn_store, topic)
    txn_kit.clock.ms = entry.ms + 5000
    if sweeps:
        await txn_store.topics.sweep()
    assert await payloads_committed(txn_store, topic) == ["new", "a", "b", "c"]
    log = txn_store.topics.log(topic)
    head = (await log.locate()).head
    txn_kit.clock.ms = entry.ms + 5001
    assert await payloads_committed(txn_store, topic) == []
    assert (await log.locate()).front == head
    # A reader that holds the entry still gets its records for twenty minutes.
    txn_kit.clock.ms = entry.ms + 5000 + TWENTY_MINUTES_MS - 60_000
    if sweeps:
        await txn_store.topics.sweep()
    left = await log.expand(entry, -1, 10)
    assert [payload_of(each.data) for each in left][-1] == "c"


@pytest.mark.parametrize("txn_kits", ["memory", *LARGE], indirect=True)
async def test_offsets_go_on_after_everything_was_swept(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    topic = await txn_store.topics.create(NAME, 5)
    removed = 0
    for number in range(3):
        await committed_with(txn_store, *records(topic, f"{number}a", f"{number}b"))
        await publish(txn_store.topics, topic, f"{number}c")
        assert await payloads_committed(txn_store, topic) == [f"{number}{x}" for x in "abc"]
        txn_kit.clock.ms += 6000 + TWENTY_MINUTES_MS * (number % 2)
        removed += await txn_store.topics.sweep()
        log = txn_store.topics.log(topic)
        bounds = await log.locate()
        assert bounds.front == bounds.head
        assert bounds.head.offset == 4 * (number + 1)
    txn_kit.clock.ms += TWENTY_MINUTES_MS
    removed += await txn_store.topics.sweep()
    assert bounds.head.offset - removed in (0, 1), "only the newest entry may stay"
    assert await txn_store.topics.sweep() == 0
    placed = await publish(txn_store.topics, topic, "new")
    assert placed.first.offset == 13
    assert await payloads_committed(txn_store, topic) == ["new"]


async def test_positions_find_the_entries_of_transactions_as_they_find_messages(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    begun = await begin(txn_store, topic=topic)
    for lsn in range(3):
        txn_kit.clock.ms += 10
        await write(txn_store, begun, record(lsn, topic, lsn))
    await publish_all(txn_store.topics, topic, messages("xyz"))
    await txn_store.transactions.commit(begun.id, 3)
    log = txn_store.topics.log(topic)
    entries = await entries_of(log)
    assert [entry.event for entry in entries] == [
        EntryKind.BEGIN,
        *[EntryKind.DEFERRED] * 3,
        *[EntryKind.MESSAGE] * 3,
        EntryKind.COMMIT,
    ]
    assert [entry.offset for entry in entries] == [*range(1, 9)]
    for entry in entries:
        assert (await log.locate(entry.ms, entry.sequence)).at == mark(entry)
    assert (await log.locate()).head == mark(entries[-1])


async def test_records_of_a_deleted_topic_are_gone(txn_store: StoreHandle) -> None:
    topic = await txn_store.topics.create(NAME, None)
    await committed_with(txn_store, *records(topic, "a", "b"))
    (commit,) = await commits_in(txn_store, topic)
    await txn_store.topics.delete(NAME)
    for sweeps in (False, True):
        if sweeps:
            await txn_store.topics.sweep()
        with pytest.raises(TopicNotFoundError):
            await txn_store.topics.log(topic).expand(commit, -1, 10)
    again = await txn_store.topics.create(NAME, None)
    assert await entries_of(txn_store.topics.log(again)) == []

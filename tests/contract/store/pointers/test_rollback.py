"""Rollback of entries under a pointer in every store."""

import asyncio

import pytest

from oplogd.errors import MessageError
from oplogd.model.event_id import Mark
from oplogd.model.pointer import Decision, decode_voided
from oplogd.store.topics import EntryKind
from tests.kits.store.kits import Kit
from tests.kits.store.messages import NAME, entries_of, named, publish
from tests.kits.store.pointing import (
    POINTERS,
    committed,
    entry_at,
    kinds_in,
    publish_stored,
    publish_under,
    runs_in,
    stamp_of,
    store_under,
    uncommitted,
)
from tests.kits.store.transacting import EVERY, StoreHandle, committed_with, record


@pytest.mark.parametrize("txn_kits", EVERY, indirect=True)
async def test_entries_with_the_stamps_are_voided_in_place_and_an_entry_names_them(
    txn_store: StoreHandle,
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    for pointer in POINTERS:
        start = (await txn_store.topics.log(topic).locate()).head.offset
        marks = await publish_under(txn_store, topic, pointer, *"abcdef", ttl=3600)
        stamps = [stamp_of(marks[n]) for n in (4, 1, 2)]
        at = await txn_store.pointers.rollback(topic.log, pointer, stamps)
        assert at is not None
        assert at.offset == start + 7
        found = await txn_store.topics.log(topic).read(start, 100)
        kinds = ["direct", "void", "void", "direct", "void", "direct", "void"]
        assert [entry.event for entry in found] == kinds
        assert Mark(found[-1].offset, found[-1].ms, found[-1].sequence) == at
        voided = decode_voided(found[-1].data)
        assert voided is not None
        assert voided.txn == str(pointer)
        assert [*map(tuple, voided.runs)] == [(start + 2, 2), (start + 5, 1)]
        for entry, before in zip(found, marks, strict=False):
            assert (entry.offset, entry.ms, entry.sequence) == before
            if entry.event == EntryKind.VOID:
                assert (entry.data, entry.pointer) == ("", None)
    assert await uncommitted(txn_store, topic) == ["a", "d", "f"] * len(POINTERS)


async def test_without_stamps_everything_under_the_pointer_goes(txn_store: StoreHandle) -> None:
    topic, other = [await txn_store.topics.create(named(name), None) for name in "ab"]
    await publish(txn_store.topics, topic, "plain")
    for each in (topic, other):
        await publish_under(txn_store, each, 7, "direct")
        await store_under(txn_store, each, 7, "stored", "too")
        await publish_stored(txn_store, each, 7)
        await store_under(txn_store, each, 7, "not published")
    await publish_under(txn_store, topic, 8, "of another pointer")
    at = await txn_store.pointers.rollback(topic.log, 7, None)
    assert at is not None
    assert await uncommitted(txn_store, topic) == ["plain", "of another pointer"]
    assert await runs_in(txn_store, topic) == [("7", [2, 3])]
    assert at.offset == 5
    with pytest.raises(MessageError):
        await publish_stored(txn_store, topic, 7)
    assert await uncommitted(txn_store, other) == ["direct", "stored", "too"]
    await publish_stored(txn_store, other, 7)
    assert await uncommitted(txn_store, other) == ["direct", "stored", "too", "not published"]


async def test_a_rollback_of_a_publish_removes_its_messages_for_readers_that_have_the_entry(
    txn_store: StoreHandle,
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    log = txn_store.topics.log(topic)
    marks = []
    for letter in "abc":
        await store_under(txn_store, topic, 7, letter, f"{letter}{letter}")
        marks.append(await publish_stored(txn_store, topic, 7))
    entries = await entries_of(log)
    await txn_store.pointers.rollback(topic.log, 7, [stamp_of(marks[1])])
    assert [len(await log.expand(entry, -1, 100)) for entry in entries] == [2, 0, 2]
    assert await uncommitted(txn_store, topic) == ["a", "aa", "c", "cc"]
    assert await publish_stored(txn_store, topic, 7) == marks[2]
    await store_under(txn_store, topic, 7, "d")
    await txn_store.pointers.rollback(topic.log, 7, [stamp_of(marks[2])])
    assert await uncommitted(txn_store, topic) == ["a", "aa"]
    await publish_stored(txn_store, topic, 7)
    assert await uncommitted(txn_store, topic) == ["a", "aa", "d"]


async def test_after_a_rollback_of_the_last_publish_there_is_nothing_to_publish(
    txn_store: StoreHandle,
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    for letter in "ab":
        await store_under(txn_store, topic, 7, letter)
        at = await publish_stored(txn_store, topic, 7)
    await txn_store.pointers.rollback(topic.log, 7, [stamp_of(at)])
    with pytest.raises(MessageError, match="none is stored under pointer 7"):
        await publish_stored(txn_store, topic, 7)
    await publish_under(txn_store, topic, 7, "c")
    assert await uncommitted(txn_store, topic) == ["a", "c"]


async def test_a_rollback_of_what_is_only_stored_appends_nothing(txn_store: StoreHandle) -> None:
    topic = await txn_store.topics.create(NAME, None)
    await store_under(txn_store, topic, 7, "a", "b")
    assert await txn_store.pointers.rollback(topic.log, 7, [1]) is None
    assert await txn_store.pointers.rollback(topic.log, 7, None) is None
    assert await kinds_in(txn_store, topic) == []
    with pytest.raises(MessageError):
        await publish_stored(txn_store, topic, 7)
    await publish_under(txn_store, topic, 7, "c")
    await store_under(txn_store, topic, 7, "d")
    await publish_stored(txn_store, topic, 7)
    assert await uncommitted(txn_store, topic) == ["c", "d"]


async def test_a_rollback_touches_no_other_entry_whose_stamp_it_is_given(
    txn_store: StoreHandle,
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    await publish(txn_store.topics, topic, "plain")
    await committed_with(txn_store, record(0, topic, "deferred"))
    (own,) = await publish_under(txn_store, topic, 7, "own")
    await publish_under(txn_store, topic, 8, "other")
    await store_under(txn_store, topic, 9, "stored")
    await publish_stored(txn_store, topic, 9)
    await txn_store.pointers.decide([topic.log], 6, Decision.ABORTED)
    before = await entries_of(txn_store.topics.log(topic))
    stamps = [stamp_of(Mark(each.offset, each.ms, each.sequence)) for each in before]
    stamps.remove(stamp_of(own))
    stamps += [0, 1, stamps[0] - 1, stamps[-1] + 1, (1 << 63) - 1, 1 << 63, (1 << 80) - 1]
    assert await txn_store.pointers.rollback(topic.log, 7, stamps) is None
    assert await txn_store.pointers.rollback(topic.log, 7, []) is None
    assert await txn_store.pointers.rollback(topic.log, 5, stamps) is None
    assert await txn_store.pointers.rollback(topic.log, 5, None) is None
    assert await entries_of(txn_store.topics.log(topic)) == before
    given = [*stamps, stamp_of(own), stamp_of(own)]
    assert await txn_store.pointers.rollback(topic.log, 7, given) is not None
    assert await runs_in(txn_store, topic) == [("7", [own.offset])]
    assert await uncommitted(txn_store, topic) == ["plain", "deferred", "other", "stored"]
    assert [each.pointer for each in await txn_store.pointers.select(topic.log, 9)] == [7, 8, 9]


@pytest.mark.parametrize("everything", [False, True])
async def test_a_repeated_rollback_finds_nothing(txn_store: StoreHandle, everything: bool) -> None:
    topic = await txn_store.topics.create(NAME, None)
    marks = await publish_under(txn_store, topic, 7, "a", "b")
    await store_under(txn_store, topic, 7, "c")
    marks.append(await publish_stored(txn_store, topic, 7))
    stamps = None if everything else [*map(stamp_of, marks)]
    assert await txn_store.pointers.rollback(topic.log, 7, stamps) is not None
    before = await entries_of(txn_store.topics.log(topic))
    assert await txn_store.pointers.rollback(topic.log, 7, stamps) is None
    assert await txn_store.pointers.rollback(topic.log, 7, None) is None
    assert await entries_of(txn_store.topics.log(topic)) == before
    assert await runs_in(txn_store, topic) == [("7", [1, 2, 3])]


@pytest.mark.parametrize("decision", [Decision.ABORTED, Decision.TIMED_OUT])
async def test_a_rollback_works_after_an_abort_or_the_time_out(
    txn_store: StoreHandle, decision: Decision
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    log = txn_store.topics.log(topic)
    for pointer in (7, 8):
        marks = await publish_under(txn_store, topic, pointer, f"{pointer}a", f"{pointer}b")
        await txn_store.pointers.decide([topic.log], pointer, decision)
        stamps = [stamp_of(marks[0])] if pointer == 7 else None
        assert await txn_store.pointers.rollback(topic.log, pointer, stamps) is not None
    assert await log.decisions([7, 8]) == dict.fromkeys([7, 8], Decision.ABORTED)
    assert await uncommitted(txn_store, topic) == ["7b"]
    found = await committed(txn_store, topic)
    assert found.payloads == []
    assert found.held_by is None


async def test_a_rollback_decides_nothing(txn_store: StoreHandle) -> None:
    topic = await txn_store.topics.create(NAME, None)
    await publish_under(txn_store, topic, 7, "a")
    (before,) = await txn_store.pointers.select(topic.log, 10)
    await txn_store.pointers.rollback(topic.log, 7, None)
    assert await txn_store.pointers.select(topic.log, 10) == [before]
    assert await txn_store.topics.log(topic).decisions([7]) == {}
    await publish_under(txn_store, topic, 7, "b")
    found = await committed(txn_store, topic)
    assert (found.payloads, found.held_by) == ([], 7)
    await txn_store.pointers.decide([topic.log], 7, Decision.COMMITTED)
    assert (await committed(txn_store, topic)).payloads == ["b"]


async def test_a_held_reader_goes_on_after_a_rollback(txn_store: StoreHandle) -> None:
    topic = await txn_store.topics.create(NAME, None)
    await publish_under(txn_store, topic, 7, "a")
    await publish(txn_store.topics, topic, "plain")
    assert (await committed(txn_store, topic)).held_by == 7
    await txn_store.pointers.rollback(topic.log, 7, None)
    found = await committed(txn_store, topic)
    assert (found.payloads, found.held_by) == (["plain"], None)


async def test_a_large_rollback_names_all_of_its_entries(txn_store: StoreHandle) -> None:
    topic = await txn_store.topics.create(NAME, None)
    marks = []
    for n in range(3):
        marks += await publish_under(txn_store, topic, 7, *range(400))
        await publish(txn_store.topics, topic, f"plain {n}")
    single = [stamp_of(each) for each in marks[::2]]
    for stamps, expected in ((single, marks[::2]), (None, marks[1::2])):
        before = len(await runs_in(txn_store, topic))
        assert await txn_store.pointers.rollback(topic.log, 7, stamps) is not None
        told = (await runs_in(txn_store, topic))[before:]
        assert {txn for txn, _ in told} == {"7"}
        offsets = [offset for _, each in told for offset in each]
        assert offsets == [each.offset for each in expected]
    assert await uncommitted(txn_store, topic) == ["plain 0", "plain 1", "plain 2"]


async def test_rollbacks_of_several_agents_leave_nothing(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    stores = [txn_store, await txn_kit.open()]
    topic = await txn_store.topics.create(NAME, None)
    marks = await publish_under(txn_store, topic, 7, *range(20))
    await store_under(txn_store, topic, 7, "stored")
    marks.append(await publish_stored(txn_store, topic, 7))
    stamps = [*map(stamp_of, marks)]
    await asyncio.gather(
        *(stores[n % 2].pointers.rollback(topic.log, 7, stamps[n:]) for n in range(0, 21, 4)),
        *(store.pointers.rollback(topic.log, 7, None) for store in stores),
    )
    assert await uncommitted(txn_store, topic) == []
    named_offsets = {offset for _, each in await runs_in(txn_store, topic) for offset in each}
    assert named_offsets == {each.offset for each in marks}
    for at in marks:
        assert (await entry_at(txn_store, topic, at)).event == EntryKind.VOID

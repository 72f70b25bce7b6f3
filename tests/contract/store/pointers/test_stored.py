"""Messages that are stored under a pointer and published later, in every store."""

import asyncio

import pytest

from oplogd.errors import MessageError, TransactionConflictError, TransactionTooLargeError
from oplogd.model.message_id import parse_message_id
from oplogd.model.pointer import Decision
from oplogd.model.transaction import decode_marker
from oplogd.store.topics import EntryKind
from oplogd.store.transactions import RecordLimits
from tests.kits.clock.virtual import START_MS
from tests.kits.store.kits import Kit
from tests.kits.store.messages import NAME, entries_of, mark, messages, publish
from tests.kits.store.pointing import (
    POINTERS,
    TIMEOUT_MS,
    Found,
    committed,
    entry_at,
    kinds_in,
    numbers_of,
    publish_stored,
    publish_under,
    store_under,
    uncommitted,
)
from tests.kits.store.transacting import EVERY, StoreHandle, payload_of


async def test_stored_messages_are_read_in_order_at_the_entry_that_publishes_them(
    txn_store: StoreHandle,
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    for pointer in POINTERS:
        await store_under(txn_store, topic, pointer, "a", "b")
        await publish(txn_store.topics, topic, "plain")
        await store_under(txn_store, topic, pointer, "c")
    assert await uncommitted(txn_store, topic) == ["plain"] * 4
    assert await kinds_in(txn_store, topic) == [("message", None)] * 4
    for number, pointer in enumerate(POINTERS, 5):
        at = await publish_stored(txn_store, topic, pointer)
        entry = await entry_at(txn_store, topic, at)
        assert (entry.offset, entry.event, entry.pointer) == (number, "publish", pointer)
        marker = decode_marker(entry.data)
        numbers = await numbers_of(txn_store.topics.log(topic), entry)
        assert (marker.txn, marker.records, marker.after) == (str(pointer), 3, 0)
        assert (marker.last, sorted(set(numbers))) == (numbers[-1], numbers)
    assert await uncommitted(txn_store, topic) == ["plain"] * 4 + ["a", "b", "c"] * 4


async def test_ids_of_stored_messages_ascend_and_tell_the_last_one(txn_store: StoreHandle) -> None:
    topic = await txn_store.topics.create(NAME, None)
    await store_under(txn_store, topic, 7, *"abc")
    at = await publish_stored(txn_store, topic, 7)
    await txn_store.pointers.decide([topic.log], 7, Decision.COMMITTED)
    ids = [parse_message_id(each.id) for each in (await committed(txn_store, topic)).seen]
    assert ids == sorted(set(ids))
    assert {(each.ms, each.sequence) for each in ids} == {(at.ms, at.sequence)}
    assert [each.is_inside for each in ids] == [True, True, False]
    entry = await entry_at(txn_store, topic, at)
    numbers = await numbers_of(txn_store.topics.log(topic), entry)
    assert [each.records_after for each in ids] == [*numbers[:2], None]


async def test_a_message_that_is_stored_after_the_publish_waits_for_the_next_one(
    txn_store: StoreHandle,
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    await store_under(txn_store, topic, 7, "a", "b")
    first = await publish_stored(txn_store, topic, 7)
    await store_under(txn_store, topic, 7, "late")
    assert await uncommitted(txn_store, topic) == ["a", "b"]
    second = await publish_stored(txn_store, topic, 7)
    assert second.offset == first.offset + 1
    assert await uncommitted(txn_store, topic) == ["a", "b", "late"]
    one, other = await entries_of(txn_store.topics.log(topic))
    assert decode_marker(other.data).after == decode_marker(one.data).last
    assert decode_marker(other.data).records == 1
    log = txn_store.topics.log(topic)
    assert [payload_of(each.data) for each in await log.expand(one, -1, 100)] == ["a", "b"]
    assert [payload_of(each.data) for each in await log.expand(other, -1, 100)] == ["late"]


async def test_a_publish_with_nothing_new_returns_the_mark_of_the_last_one(
    txn_store: StoreHandle,
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    for letter in "ab":
        await store_under(txn_store, topic, 7, letter)
        at = await publish_stored(txn_store, topic, 7)
        await publish(txn_store.topics, topic, "plain")
        assert await publish_stored(txn_store, topic, 7) == at
    await publish_under(txn_store, topic, 7, "direct")
    assert await publish_stored(txn_store, topic, 7) == at
    await txn_store.pointers.decide([topic.log], 7, Decision.ABORTED)
    assert await publish_stored(txn_store, topic, 7) == at
    assert len(await kinds_in(txn_store, topic)) == 6


async def test_a_publish_without_anything_stored_does_nothing(txn_store: StoreHandle) -> None:
    topic = await txn_store.topics.create(NAME, None)
    pointers = txn_store.pointers
    for published in ([], ["direct"]):
        for payload in published:
            await publish_under(txn_store, topic, 7, payload)
        assert await pointers.publish_stored(topic.log, 7, TIMEOUT_MS) is None
    await store_under(txn_store, topic, 8, "of another pointer")
    assert await pointers.publish_stored(topic.log, 7, TIMEOUT_MS) is None
    assert await pointers.publish_stored(topic.log, 9, TIMEOUT_MS) is None
    assert await kinds_in(txn_store, topic) == [("direct", 7)]
    assert [each.pointer for each in await pointers.select(topic.log, 10)] == [7, 8]
    await pointers.decide([topic.log], 7, Decision.COMMITTED)
    with pytest.raises(TransactionConflictError):
        await pointers.publish_stored(topic.log, 7, TIMEOUT_MS)


async def test_a_publish_of_what_is_rolled_back_is_refused(txn_store: StoreHandle) -> None:
    topic = await txn_store.topics.create(NAME, None)
    await store_under(txn_store, topic, 7, "a")
    await txn_store.pointers.rollback(topic.log, 7, None)
    with pytest.raises(MessageError, match="none is stored under pointer 7") as error:
        await publish_stored(txn_store, topic, 7)
    assert error.value.field == "messages"


@pytest.mark.parametrize("decision", Decision)
async def test_a_decision_removes_what_is_stored_and_not_published(
    txn_store: StoreHandle, decision: Decision
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    await store_under(txn_store, topic, 7, "published")
    await publish_stored(txn_store, topic, 7)
    await store_under(txn_store, topic, 7, "not published")
    await txn_store.pointers.decide([topic.log], 7, decision)
    with pytest.raises(TransactionConflictError):
        await publish_stored(txn_store, topic, 7)
    seen = ["published"] if decision is Decision.COMMITTED else []
    assert (await committed(txn_store, topic)).payloads == seen
    assert await uncommitted(txn_store, topic) == ["published"]


async def test_a_store_over_a_limit_stores_nothing(txn_store: StoreHandle) -> None:
    topic = await txn_store.topics.create(NAME, None)
    size = len(messages("a")[0].data)
    for one, limits in ((7, RecordLimits(records=3)), (17, RecordLimits(bytes=3 * size))):
        await store_under(txn_store, topic, one, "a", "b", limits=limits)
        with pytest.raises(TransactionTooLargeError, match=f"pointer {one} would have more than"):
            await store_under(txn_store, topic, one, "c", "d", limits=limits)
        await store_under(txn_store, topic, one, "e", limits=limits)
        with pytest.raises(TransactionTooLargeError):
            await store_under(txn_store, topic, one, "f", limits=limits)
        await store_under(txn_store, topic, one + 1, "of another", limits=limits)
        await publish_stored(txn_store, topic, one)
        await store_under(txn_store, topic, one, "g", "h", "i", limits=limits)
        await txn_store.pointers.rollback(topic.log, one, None)
        await store_under(txn_store, topic, one, "j", "k", "l", limits=limits)
        await publish_stored(txn_store, topic, one)
        await publish_stored(txn_store, topic, one + 1)
        with pytest.raises(TransactionTooLargeError):
            await store_under(txn_store, topic, one + 2, "m", "n", "o", "p", limits=limits)
    seen = ["j", "k", "l", "of another"]
    assert await uncommitted(txn_store, topic) == seen * 2


async def test_write_stamps_ascend_although_the_clock_goes_back(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    for back in (0, 10_000, 10_000):
        txn_kit.clock.ms -= back
        await store_under(txn_store, topic, 7, "a", "b")
    at = await publish_stored(txn_store, topic, 7)
    assert at.ms >= START_MS - 20_000
    txn_kit.clock.ms -= 10_000
    await store_under(txn_store, topic, 7, "c")
    await publish_stored(txn_store, topic, 7)
    assert await uncommitted(txn_store, topic) == ["a", "b"] * 3 + ["c"]


async def test_stores_of_several_agents_are_all_published_in_one_order(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    stores = [txn_store, await txn_kit.open()]
    topic = await txn_store.topics.create(NAME, None)
    await asyncio.gather(
        *(store_under(stores[n % 2], topic, 7, f"{n}a", f"{n}b") for n in range(20))
    )
    marks = await asyncio.gather(*(publish_stored(store, topic, 7) for store in stores * 2))
    assert len(set(marks)) == 1
    seen = await uncommitted(txn_store, topic)
    assert seen == await uncommitted(stores[1], topic)
    assert sorted(seen) == sorted(f"{n}{letter}" for n in range(20) for letter in "ab")
    for n in range(20):
        assert seen.index(f"{n}a") < seen.index(f"{n}b")


async def test_a_store_that_meets_a_publish_is_in_it_or_in_the_next_one(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    """Two readers see the same list, whenever they read it."""
    other = await txn_kit.open()
    topic = await txn_store.topics.create(NAME, None)
    log = txn_store.topics.log(topic)
    for pointer in range(1, 6):
        await store_under(txn_store, topic, pointer, "first")
        publishing = asyncio.create_task(publish_stored(txn_store, topic, pointer))
        stores = (store_under(other, topic, pointer, f"{pointer}.{n}") for n in range(5))
        await asyncio.gather(publishing, *stores)
        at = await publishing
        entry = await entry_at(txn_store, topic, at)
        early = await log.expand(entry, -1, 100)
        assert len(early) == decode_marker(entry.data).records
        await publish_stored(other, topic, pointer)
        assert await log.expand(entry, -1, 100) == early
        entries = [each for each in await entries_of(log) if each.pointer == pointer]
        seen = [
            payload_of(found.data) for each in entries for found in await log.expand(each, -1, 9)
        ]
        assert sorted(seen) == sorted(["first", *(f"{pointer}.{n}" for n in range(5))])


@pytest.mark.parametrize("txn_kits", EVERY, indirect=True)
async def test_stored_messages_are_read_page_by_page_from_any_number(
    txn_store: StoreHandle,
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    log = txn_store.topics.log(topic)
    await store_under(txn_store, topic, 7, "earlier")
    await publish_stored(txn_store, topic, 7)
    for letter in "abcde":
        await store_under(txn_store, topic, 7, letter)
        await store_under(txn_store, topic, 8, "other")
    entry = await entry_at(txn_store, topic, await publish_stored(txn_store, topic, 7))
    await store_under(txn_store, topic, 7, "later")
    found = await log.expand(entry, -1, 100)
    assert [payload_of(record.data) for record in found] == [*"abcde"]
    assert {record.expires_ms for record in found} == {0}
    for after in [-1, *(record.number for record in found)]:
        for near in (after - 1, after, after + 1):
            rest = [record for record in found if record.number > near]
            for limit in (1, 2, 100):
                assert await log.expand(entry, near, limit) == rest[:limit]


async def test_a_page_of_large_stored_messages_has_about_a_megabyte_and_never_none(
    txn_store: StoreHandle,
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    sizes = [400_000, 400_000, 900_000, 1_000_000, 10, 10]
    for number, size in enumerate(sizes):
        await store_under(txn_store, topic, 7, str(number) * size)
    entry = await entry_at(txn_store, topic, await publish_stored(txn_store, topic, 7))
    log = txn_store.topics.log(topic)
    pages, after = [], -1
    while found := await log.expand(entry, after, 1000):
        pages.append(len(found))
        after = found[-1].number
        assert sum(len(record.data) for record in found) < 1_100_000
    assert pages == [2, 1, 1, 2]


@pytest.mark.parametrize("with_another", [False, True])
async def test_a_large_message_is_stored_as_it_is(
    txn_store: StoreHandle, *, with_another: bool
) -> None:
    """SQLite gets it as a value of its own if it is alone."""
    topic = await txn_store.topics.create(NAME, None)
    payloads = ['\0ä\n"' * 30_000 + "end", *(["small"] if with_another else [])]
    await publish_under(txn_store, topic, 7, *payloads)
    await store_under(txn_store, topic, 7, *payloads)
    await publish_stored(txn_store, topic, 7)
    await txn_store.pointers.decide([topic.log], 7, Decision.COMMITTED)
    assert (await committed(txn_store, topic)).payloads == 2 * payloads


async def test_own_times_to_live_of_stored_messages_count_from_the_publish(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    await store_under(txn_store, topic, 7, "short", ttl=5)
    await store_under(txn_store, topic, 7, "long")
    txn_kit.clock.ms += 60_000
    at = await publish_stored(txn_store, topic, 7)
    entry = await entry_at(txn_store, topic, at)
    assert entry.expires_ms == 0
    log = txn_store.topics.log(topic)
    ends = [record.expires_ms for record in await log.expand(entry, -1, 10)]
    assert ends == [at.ms + 5000, 0]
    txn_kit.clock.ms += 5000
    assert await uncommitted(txn_store, topic) == ["short", "long"]
    txn_kit.clock.ms += 1
    for _ in range(2):
        assert await uncommitted(txn_store, topic) == ["long"]
        assert [record.data == "" for record in await log.expand(entry, -1, 10)] == [True, False]
        await txn_store.topics.sweep()


async def test_the_same_order_is_seen_before_and_after_a_restart(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    await store_under(txn_store, topic, 7, "a")
    other = await txn_kit.open()
    await store_under(other, topic, 7, "b")
    at = await publish_stored(txn_store, topic, 7)
    assert await publish_stored(other, topic, 7) == at
    await txn_store.pointers.decide([topic.log], 7, Decision.COMMITTED)
    found = await committed(txn_store, topic)
    assert found == await committed(other, topic)
    assert found == Found(found.seen, None)
    assert found.payloads == ["a", "b"]
    (entry, _) = await entries_of(txn_store.topics.log(topic))
    assert (mark(entry), entry.event) == (at, EntryKind.PUBLISH)

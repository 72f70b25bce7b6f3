"""Publishing messages under a pointer in every store."""

import asyncio

import pytest

from oplogd.errors import MessageError, TopicNotFoundError, TransactionConflictError
from oplogd.model.event_id import Mark
from oplogd.model.pointer import Decision
from oplogd.store.topics import EntryKind
from tests.kits.clock.virtual import START_MS
from tests.kits.store.kits import Kit
from tests.kits.store.messages import NAME, entries_of, mark, messages, named, publish
from tests.kits.store.pointing import (
    POINTERS,
    TIMEOUT_MS,
    committed,
    entry_at,
    kinds_in,
    publish_stored,
    publish_under,
    store_under,
    uncommitted,
)
from tests.kits.store.transacting import EVERY, LIMITS, StoreHandle, payload_of


@pytest.mark.parametrize("txn_kits", EVERY, indirect=True)
async def test_a_message_under_a_pointer_is_an_entry_at_its_place_that_names_the_pointer(
    txn_store: StoreHandle,
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    await publish(txn_store.topics, topic, "before")
    for pointer in POINTERS:
        marks = await publish_under(txn_store, topic, pointer, f"a{pointer}", f"b{pointer}")
        await publish(txn_store.topics, topic, "plain")
        a, b = [await entry_at(txn_store, topic, each) for each in marks]
        for entry, payload in ((a, f"a{pointer}"), (b, f"b{pointer}")):
            assert (entry.event, entry.pointer) == (EntryKind.DIRECT, pointer)
            assert entry.data == f'{{"payload":"{payload}"}}'
            assert entry.expires_ms == 0
        assert b.offset == a.offset + 1
    kinds: list[tuple[str, int | None]] = [("message", None)]
    for pointer in POINTERS:
        kinds += [("direct", pointer), ("direct", pointer), ("message", None)]
    assert await kinds_in(txn_store, topic) == kinds
    entries = await entries_of(txn_store.topics.log(topic))
    assert await uncommitted(txn_store, topic) == [payload_of(each.data) for each in entries]


async def test_any_text_is_published_and_stored_as_it_was_given(txn_store: StoreHandle) -> None:
    topic = await txn_store.topics.create(NAME, None)
    texts = ["", " ", "7 7", 'ä"\\\n\r\u2028\u0085\x00\x1f', "\U0001f600" * 300]
    await publish_under(txn_store, topic, 7, *texts)
    await store_under(txn_store, topic, 7, *texts)
    await publish_stored(txn_store, topic, 7)
    assert await uncommitted(txn_store, topic) == texts + texts
    (*entries, last) = await entries_of(txn_store.topics.log(topic))
    given = [message.data.decode() for message in messages(texts)]
    assert [entry.data for entry in entries] == given
    found = await txn_store.topics.log(topic).expand(last, -1, 100)
    assert [record.data for record in found] == given


async def test_a_repeated_publish_of_messages_appends_them_again(txn_store: StoreHandle) -> None:
    topic = await txn_store.topics.create(NAME, None)
    first = await publish_under(txn_store, topic, 7, "a")
    second = await publish_under(txn_store, topic, 7, "a")
    assert first != second
    assert await uncommitted(txn_store, topic) == ["a", "a"]


async def test_many_messages_of_one_call_get_their_marks_in_order(txn_store: StoreHandle) -> None:
    topic = await txn_store.topics.create(NAME, None)
    marks = await publish_under(txn_store, topic, 7, *range(1100))
    entries = await entries_of(txn_store.topics.log(topic))
    assert marks == [mark(entry) for entry in entries]
    assert [payload_of(entry.data) for entry in entries] == [str(n) for n in range(1100)]
    assert {entry.pointer for entry in entries} == {7}


async def test_no_entry_of_another_kind_has_a_pointer(txn_store: StoreHandle) -> None:
    topic = await txn_store.topics.create(NAME, None)
    await publish(txn_store.topics, topic, "plain")
    (gone,) = await publish_under(txn_store, topic, 7, "gone")
    await txn_store.pointers.rollback(topic.log, 7, None)
    await publish_under(txn_store, topic, 7, "a")
    await store_under(txn_store, topic, 7, "b")
    await publish_stored(txn_store, topic, 7)
    await txn_store.pointers.decide([topic.log], 7, Decision.COMMITTED)
    assert await kinds_in(txn_store, topic) == [
        ("message", None),
        ("void", None),
        ("void", None),
        ("direct", 7),
        ("publish", 7),
        ("commit", None),
    ]
    assert gone.offset == 2


@pytest.mark.parametrize("decision", Decision)
async def test_nothing_is_published_or_stored_under_a_pointer_after_its_decision(
    txn_store: StoreHandle, decision: Decision
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    await publish_under(txn_store, topic, 7, "a")
    await txn_store.pointers.decide([topic.log], 7, decision)
    for call in (
        publish_under(txn_store, topic, 7, "b"),
        store_under(txn_store, topic, 7, "b"),
        publish_stored(txn_store, topic, 7),
    ):
        with pytest.raises(TransactionConflictError, match=r"pointer 7 .* in this topic"):
            await call
    assert len(await kinds_in(txn_store, topic)) == 2


async def test_messages_are_refused_while_stored_ones_wait_for_their_publish(
    txn_store: StoreHandle,
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    await publish_under(txn_store, topic, 7, "a")
    await store_under(txn_store, topic, 7, "b")
    with pytest.raises(MessageError, match="under pointer 7; publish those first") as error:
        await publish_under(txn_store, topic, 7, "c")
    assert error.value.field == "messages"
    await publish_under(txn_store, topic, 8, "of another pointer")
    await publish_stored(txn_store, topic, 7)
    await publish_under(txn_store, topic, 7, "d")
    assert await uncommitted(txn_store, topic) == ["a", "of another pointer", "b", "d"]


async def test_a_pointer_in_one_topic_has_nothing_to_do_with_the_same_in_another(
    txn_store: StoreHandle,
) -> None:
    one, other = [await txn_store.topics.create(named(name), None) for name in "ab"]
    await store_under(txn_store, one, 7, "waits")
    await publish_under(txn_store, other, 7, "b")
    await txn_store.pointers.decide([one.log], 7, Decision.ABORTED)
    await publish_under(txn_store, other, 7, "c")
    await store_under(txn_store, other, 7, "d")
    await publish_stored(txn_store, other, 7)
    assert await txn_store.topics.log(other).decisions([7]) == {}
    await txn_store.pointers.decide([other.log], 7, Decision.COMMITTED)
    assert (await committed(txn_store, other)).payloads == ["b", "c", "d"]
    assert await kinds_in(txn_store, one) == [("abort", None)]


async def test_a_deleted_topic_is_reported_by_every_method_that_takes_a_log(
    txn_store: StoreHandle,
) -> None:
    topic, kept = [await txn_store.topics.create(named(name), None) for name in "ab"]
    await publish_under(txn_store, topic, 7, "a")
    await txn_store.topics.delete(topic.name)
    pointers = txn_store.pointers
    for call in (
        publish_under(txn_store, topic, 7, "b"),
        publish_under(txn_store, topic, 8, "b"),
        store_under(txn_store, topic, 7, "b"),
        store_under(txn_store, topic, 8, "b"),
        publish_stored(txn_store, topic, 7),
        publish_stored(txn_store, topic, 8),
        pointers.rollback(topic.log, 7, None),
        pointers.decide([topic.log], 7, Decision.COMMITTED),
        pointers.decide([topic.log], 8, Decision.ABORTED),
        pointers.decide([kept.log, topic.log], 9, Decision.COMMITTED),
        pointers.select(topic.log, 10),
        txn_store.topics.log(topic).decisions([7]),
    ):
        with pytest.raises(TopicNotFoundError):
            await call
    again = await txn_store.topics.create(topic.name, None)
    await publish_under(txn_store, again, 7, "new")
    assert await uncommitted(txn_store, again) == ["new"]


async def test_a_publish_that_meets_a_decision_is_before_it_or_not_in_the_log(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    other = await txn_kit.open()
    topic = await txn_store.topics.create(NAME, None)
    for pointer in range(1, 9):
        await publish_under(txn_store, topic, pointer, "first")
        calls = [
            publish_under(store, topic, pointer, f"{pointer}.{k}a", f"{pointer}.{k}b")
            for k, store in enumerate((txn_store, other) * 3)
        ]
        decide = other.pointers.decide([topic.log], pointer, Decision.COMMITTED)
        *marks, decided = await asyncio.gather(
            *calls[:3], decide, *calls[3:], return_exceptions=True
        )
        marks.append(decided)
        placed = [each for each in marks if isinstance(each, list)]
        refused = [each for each in marks if isinstance(each, TransactionConflictError)]
        (at,) = [each[topic.log] for each in marks if isinstance(each, dict)]
        assert len(placed) + len(refused) == 6
        entries = await entries_of(txn_store.topics.log(topic))
        own = [mark(entry) for entry in entries if entry.pointer == pointer]
        assert sorted(own[1:]) == sorted(each for pair in placed for each in pair)
        assert all(each.offset < at.offset for each in own)
        assert isinstance(at, Mark)


async def test_calls_of_several_agents_all_find_a_place(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    stores = [txn_store, await txn_kit.open()]
    topic = await txn_store.topics.create(NAME, None)
    calls = [
        publish_under(stores[n % 2], topic, POINTERS[n % 4], f"{n}a", f"{n}b") for n in range(24)
    ]
    marks = await asyncio.gather(*calls)
    for n, (first, second) in enumerate(marks):
        assert first < second
        for at, payload in ((first, f"{n}a"), (second, f"{n}b")):
            entry = await entry_at(stores[(n + 1) % 2], topic, at)
            assert (entry.pointer, payload_of(entry.data)) == (POINTERS[n % 4], payload)
    assert len(await kinds_in(txn_store, topic)) == 48


async def test_a_message_under_a_pointer_has_its_own_time_to_live_from_its_entry(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    marks = await publish_under(txn_store, topic, 7, "short", ttl=5)
    marks += await publish_under(txn_store, topic, 7, "long")
    assert (await entry_at(txn_store, topic, marks[0])).expires_ms == START_MS + 5000
    txn_kit.clock.ms += 5000
    assert await uncommitted(txn_store, topic) == ["short", "long"]
    txn_kit.clock.ms += 1
    for _ in range(2):
        assert await uncommitted(txn_store, topic) == ["long"]
        assert await kinds_in(txn_store, topic) == [("void", None), ("direct", 7)]
        await txn_store.topics.sweep()
    assert await txn_store.pointers.rollback(topic.log, 7, None) is not None
    assert await uncommitted(txn_store, topic) == []


async def test_the_methods_are_free_of_limits_that_were_not_given(txn_store: StoreHandle) -> None:
    """Limits count stored messages only, not published ones."""
    topic = await txn_store.topics.create(NAME, None)
    await publish_under(txn_store, topic, 7, *range(10))
    limits = LIMITS._replace(records=3)
    await txn_store.pointers.store(topic.log, 7, messages("abc"), TIMEOUT_MS, limits)
    await publish_stored(txn_store, topic, 7)
    assert len(await uncommitted(txn_store, topic)) == 13

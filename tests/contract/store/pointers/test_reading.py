"""Readers of messages under pointers in every store: with a snapshot, and by the decisions."""

import pytest

from oplogd.model.pointer import Decision, Snapshot
from oplogd.store.topics import EntryKind
from tests.kits.store.kits import Kit
from tests.kits.store.messages import NAME, entries_of, publish
from tests.kits.store.pointing import (
    POINTERS,
    TEPHRA,
    Found,
    committed,
    kinds_in,
    publish_stored,
    publish_under,
    store_under,
    uncommitted,
    with_snapshot,
)
from tests.kits.store.transacting import StoreHandle, begin, record, write


@pytest.mark.parametrize("first", [2, TEPHRA])
async def test_a_snapshot_passes_skips_or_holds_each_pointer(
    txn_store: StoreHandle, first: int
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    await publish_under(txn_store, topic, first, "m3")
    await publish(txn_store.topics, topic, "m4")
    own = frozenset({first})
    assert await uncommitted(txn_store, topic) == ["m3", "m4"]
    for snapshot, payloads, held_by in (
        (Snapshot(first + 1, in_progress=own), [], first),
        (Snapshot(first - 1), [], first),
        (Snapshot(first + 1, invalid=own), ["m4"], None),
        (Snapshot(first + 1), ["m3", "m4"], None),
        (Snapshot(first), ["m3", "m4"], None),
        (Snapshot(first - 1, write_pointer=first, in_progress=own), ["m3", "m4"], None),
    ):
        found = await with_snapshot(txn_store, topic, snapshot)
        assert (found.payloads, found.held_by) == (payloads, held_by)


@pytest.mark.parametrize("decision", Decision)
async def test_a_committed_reader_holds_until_the_decision(
    txn_store: StoreHandle, decision: Decision
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    seen: list[str] = []
    await publish(txn_store.topics, topic, "before")
    for pointer in POINTERS:
        await store_under(txn_store, topic, pointer, "a", "b", "c")
        await publish_stored(txn_store, topic, pointer)
        await publish_under(txn_store, topic, pointer, "d")
        await publish(txn_store.topics, topic, "plain")
        found = await committed(txn_store, topic)
        assert (found.payloads, found.held_by) == (["before", *seen], pointer)
        await txn_store.pointers.decide([topic.log], pointer, decision)
        seen += [*"abcd", "plain"] if decision is Decision.COMMITTED else ["plain"]
        found = await committed(txn_store, topic)
        assert (found.payloads, found.held_by) == (["before", *seen], None)


async def test_all_readers_see_the_same_ids_in_the_same_order(txn_store: StoreHandle) -> None:
    """Messages stay at their own places, whatever the order of the decisions."""
    topic = await txn_store.topics.create(NAME, None)
    await publish_under(txn_store, topic, 5, "5a")
    await store_under(txn_store, topic, 6, "6a", "6b")
    await publish_under(txn_store, topic, 4, "4a")
    await publish_stored(txn_store, topic, 6)
    await publish_under(txn_store, topic, 5, "5b")
    await publish(txn_store.topics, topic, "plain")
    for pointer in (6, 4, 5):
        await txn_store.pointers.decide([topic.log], pointer, Decision.COMMITTED)
    found = await committed(txn_store, topic)
    assert found.payloads == ["5a", "4a", "6a", "6b", "5b", "plain"]
    assert found == await with_snapshot(txn_store, topic, Snapshot(9), page=1)
    without_5 = await with_snapshot(txn_store, topic, Snapshot(9, invalid=frozenset({5})))
    expected = [each for each in found.seen if not each.payload.startswith("5")]
    assert without_5 == Found(expected, None)
    assert [each.id for each in found.seen] == sorted(each.id for each in found.seen)


async def test_twenty_stored_messages_are_read_in_order_after_their_publish(
    txn_store: StoreHandle,
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    for number in range(20):
        await store_under(txn_store, topic, TEPHRA, number)
    snapshot = Snapshot(TEPHRA)
    assert await with_snapshot(txn_store, topic, snapshot) == Found([], None)
    await publish_stored(txn_store, topic, TEPHRA)
    for page in (1, 6, 20, 100):
        found = await with_snapshot(txn_store, topic, snapshot, page=page)
        assert found.payloads == [str(number) for number in range(20)]
    (entry,) = await entries_of(txn_store.topics.log(topic))
    log = txn_store.topics.log(topic)
    six = await log.expand(entry, -1, 6)
    assert len(await log.expand(entry, six[-1].number, 100)) == 14


async def test_transactions_and_pointers_in_one_topic_are_judged_each_by_its_own_rule(
    txn_store: StoreHandle,
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    ours = await begin(txn_store)
    await write(txn_store, ours, record(0, topic, "ours"), record(1, topic, "too"))
    await publish_under(txn_store, topic, 7, "theirs")
    await txn_store.transactions.commit(ours.id, 2)
    assert await uncommitted(txn_store, topic) == ["ours", "too", "theirs"]
    found = await committed(txn_store, topic)
    assert (found.payloads, found.held_by) == ([], 7)
    await txn_store.pointers.decide([topic.log], 7, Decision.COMMITTED)
    assert (await committed(txn_store, topic)).payloads == ["theirs", "ours", "too"]
    nothing = await with_snapshot(txn_store, topic, Snapshot(9, invalid=frozenset({7})))
    assert nothing.payloads == ["ours", "too"]
    assert await txn_store.topics.log(topic).decisions([7, ours.id]) == {7: Decision.COMMITTED}
    kinds = ["deferred", "deferred", "direct", "commit", "commit"]
    assert [kind for kind, _ in await kinds_in(txn_store, topic)] == kinds
    for _ in range(2):
        assert await txn_store.transactions.keep() == await txn_store.pointers.keep() == 0


async def test_stored_messages_stay_for_readers_while_the_front_passes_their_entry(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    topic = await txn_store.topics.create(NAME, 60)
    await store_under(txn_store, topic, 7, "a", "b")
    await publish_stored(txn_store, topic, 7)
    await txn_store.pointers.decide([topic.log], 7, Decision.COMMITTED)
    log = txn_store.topics.log(topic)
    (entry, _) = await entries_of(log)
    assert entry.event == EntryKind.PUBLISH
    txn_kit.clock.ms += 60_001
    for _ in range(2):
        assert (await committed(txn_store, topic)).payloads == []
        assert len(await log.expand(entry, -1, 100)) == 2
        assert await log.decisions([7]) == {7: Decision.COMMITTED}
        txn_kit.clock.ms += 150_000
        await txn_store.topics.sweep()

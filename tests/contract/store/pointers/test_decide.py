"""Decisions about pointers in every store: by their owner, or by the keeper after the time-out."""

import asyncio

import pytest

from oplogd.errors import TopicNotFoundError, TransactionConflictError
from oplogd.model.event_id import Mark
from oplogd.model.pointer import Decision
from oplogd.model.transaction import Marker
from oplogd.store.pointers import OpenPointer
from oplogd.store.topics import EntryKind
from oplogd.store.transactions import Decisions, OpenStats
from tests.kits.clock.virtual import START_MS
from tests.kits.store.kits import Kit
from tests.kits.store.messages import NAME, named
from tests.kits.store.pointing import (
    POINTERS,
    TEPHRA,
    TIMEOUT_MS,
    committed,
    entry_at,
    kinds_in,
    markers_in,
    publish_stored,
    publish_under,
    store_under,
)
from tests.kits.store.transacting import EVERY, StoreHandle

KIND = {
    Decision.COMMITTED: EntryKind.COMMIT,
    Decision.ABORTED: EntryKind.ABORT,
    Decision.TIMED_OUT: EntryKind.ABORT,
}


@pytest.mark.parametrize("txn_kits", EVERY, indirect=True)
@pytest.mark.parametrize("decision", Decision)
async def test_a_decision_is_one_entry_in_each_log_however_often_it_is_reported(
    txn_kit: Kit, txn_store: StoreHandle, decision: Decision
) -> None:
    other = await txn_kit.open()
    one, two, three = [await txn_store.topics.create(named(name), None) for name in "abc"]
    for pointer in POINTERS:
        await publish_under(txn_store, one, pointer, "a")
        await store_under(txn_store, two, pointer, "b")
        await publish_stored(txn_store, two, pointer)
        logs = [three.log, one.log, two.log]  # nothing was published in the third one
        marks = await txn_store.pointers.decide([*logs, one.log], pointer, decision)
        assert sorted(marks) == sorted(logs)
        for topic in (one, two, three):
            entry = await entry_at(txn_store, topic, marks[topic.log])
            assert (entry.event, entry.pointer) == (KIND[decision], None)
        for store in (txn_store, other):
            assert await store.pointers.decide(logs, pointer, decision) == marks
            assert await store.pointers.decide([two.log], pointer, decision) == {
                two.log: marks[two.log]
            }
    expected = [(KIND[decision], Marker(str(pointer))) for pointer in POINTERS]
    for topic in (one, two, three):
        assert await markers_in(txn_store, topic) == expected
        found = await other.topics.log(topic).decisions(POINTERS)
        assert found == dict.fromkeys(POINTERS, decision)


async def test_another_decision_is_refused_and_changes_nothing(txn_store: StoreHandle) -> None:
    one, two = [await txn_store.topics.create(named(name), None) for name in "ab"]
    for pointer, first in enumerate(Decision, 1):
        await publish_under(txn_store, one, pointer, "a")
        await txn_store.pointers.decide([one.log], pointer, first)
        late = set() if first is Decision.TIMED_OUT else set(Decision)
        for second in late - {first, Decision.TIMED_OUT}:
            with pytest.raises(TransactionConflictError, match=f"pointer {pointer} "):
                await txn_store.pointers.decide([one.log], pointer, second)
        assert await txn_store.topics.log(one).decisions([pointer]) == {pointer: first}
    await txn_store.pointers.decide([two.log], 9, Decision.COMMITTED)
    with pytest.raises(TransactionConflictError):
        await txn_store.pointers.decide([one.log, two.log], 9, Decision.ABORTED)
    assert await txn_store.topics.log(two).decisions([9]) == {9: Decision.COMMITTED}
    assert len(await markers_in(txn_store, one)) == 3
    assert len(await markers_in(txn_store, two)) == 1


async def test_a_decision_before_the_first_message_refuses_that_message(
    txn_store: StoreHandle,
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    await txn_store.pointers.decide([topic.log], 7, Decision.COMMITTED)
    for call in (
        publish_under(txn_store, topic, 7, "a"),
        store_under(txn_store, topic, 7, "a"),
        publish_stored(txn_store, topic, 7),
    ):
        with pytest.raises(TransactionConflictError):
            await call
    assert await kinds_in(txn_store, topic) == [("commit", None)]
    assert await txn_store.pointers.select(topic.log, 10) == []


async def test_of_two_decisions_at_a_time_one_holds_in_the_log(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    other = await txn_kit.open()
    topic = await txn_store.topics.create(NAME, None)
    for pointer in range(1, 9):
        await publish_under(txn_store, topic, pointer, "a")
        results = await asyncio.gather(
            txn_store.pointers.decide([topic.log], pointer, Decision.COMMITTED),
            other.pointers.decide([topic.log], pointer, Decision.ABORTED),
            other.pointers.decide([topic.log], pointer, Decision.COMMITTED),
            txn_store.pointers.decide([topic.log], pointer, Decision.ABORTED),
            return_exceptions=True,
        )
        placed = [each for each in results if isinstance(each, dict)]
        assert len(placed) == 2
        assert placed[0] == placed[1]
        refused = [each for each in results if isinstance(each, TransactionConflictError)]
        assert len(refused) == 2
        (decision,) = (await txn_store.topics.log(topic).decisions([pointer])).values()
        kind, marker = (await markers_in(txn_store, topic))[-1]
        assert (kind, marker) == (KIND[decision], Marker(str(pointer)))
    assert len(await markers_in(txn_store, topic)) == 8


async def test_decisions_are_told_of_the_asked_pointers_in_this_log_and_of_no_open_one(
    txn_store: StoreHandle,
) -> None:
    one, two = [await txn_store.topics.create(named(name), None) for name in "ab"]
    for pointer in (5, 6, *range(TEPHRA, TEPHRA + 20)):
        await publish_under(txn_store, one, pointer, "a")
    await txn_store.pointers.decide([one.log], TEPHRA + 1, Decision.COMMITTED)
    await txn_store.pointers.decide([one.log], TEPHRA + 2, Decision.ABORTED)
    await txn_store.pointers.decide([two.log], TEPHRA + 3, Decision.COMMITTED)
    log = txn_store.topics.log(one)
    both = {TEPHRA + 1: Decision.COMMITTED, TEPHRA + 2: Decision.ABORTED}
    assert await log.decisions(range(TEPHRA - 2000, TEPHRA + 2000)) == both
    assert await log.decisions({TEPHRA + 2, 5}) == {TEPHRA + 2: Decision.ABORTED}
    assert await log.decisions([TEPHRA + 3, 5, 6, 0]) == {}
    assert await log.decisions([]) == {}
    found = await txn_store.topics.log(two).decisions([TEPHRA + 1, TEPHRA + 3])
    assert found == {TEPHRA + 3: Decision.COMMITTED}


# --- The time-out ---


async def test_the_keeper_aborts_overdue_pointers_and_nothing_else(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    one, two = [await txn_store.topics.create(named(name), None) for name in "ab"]
    for topic in (one, two):
        await publish_under(txn_store, topic, TEPHRA, "a", timeout_ms=1000)
    await publish_under(txn_store, one, 8, "b", timeout_ms=5000)
    await publish_under(txn_store, one, 9, "c", timeout_ms=1000)
    await txn_store.pointers.decide([one.log], 9, Decision.COMMITTED)
    txn_kit.clock.ms += 1000
    assert await txn_store.pointers.keep() == 0
    txn_kit.clock.ms += 1
    assert await txn_store.topics.log(one).decisions([TEPHRA]) == {}
    assert (await committed(txn_store, one)).held_by == TEPHRA
    assert await txn_store.pointers.keep() == 2
    assert await txn_store.pointers.keep() == 0
    assert txn_store.pointers.decisions == Decisions(committed=1, aborted=0, timed_out=2)
    for topic in (one, two):
        found = await txn_store.topics.log(topic).decisions([TEPHRA])
        assert found == {TEPHRA: Decision.TIMED_OUT}
        assert (await markers_in(txn_store, topic))[-1] == ("abort", Marker(str(TEPHRA)))
    with pytest.raises(TransactionConflictError, match="timed out"):
        await publish_under(txn_store, one, TEPHRA, "late")
    await txn_store.pointers.decide([one.log], 8, Decision.COMMITTED)
    assert (await committed(txn_store, one)).payloads == ["b", "c"]


async def test_the_time_out_runs_from_the_first_entry_or_from_the_last_store_before_it(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    topic = await txn_store.topics.create(NAME, None)

    async def expiry(pointer: int) -> tuple[int, bool]:
        found = {each.pointer: each for each in await txn_store.pointers.select(topic.log, 10)}
        return found[pointer].expires_ms - START_MS, found[pointer].has_entries

    await publish_under(txn_store, topic, 1, "a", timeout_ms=1000)
    await store_under(txn_store, topic, 2, "a", timeout_ms=1000)
    await store_under(txn_store, topic, 3, "a", timeout_ms=1000)
    assert [await expiry(each) for each in (1, 2, 3)] == [
        (1000, True), (1000, False), (1000, False)
    ]  # fmt: skip
    txn_kit.clock.ms += 600
    await publish_under(txn_store, topic, 1, "b", timeout_ms=1000)
    await store_under(txn_store, topic, 1, "b", timeout_ms=1000)
    await store_under(txn_store, topic, 2, "b", timeout_ms=1000)
    await publish_stored(txn_store, topic, 3, timeout_ms=1000)
    await store_under(txn_store, topic, 3, "b", timeout_ms=1000)
    assert [await expiry(each) for each in (1, 2, 3)] == [
        (1000, True), (1600, False), (1600, True)
    ]  # fmt: skip
    txn_kit.clock.ms += 600
    await store_under(txn_store, topic, 2, "c", timeout_ms=1000)
    await publish_stored(txn_store, topic, 3, timeout_ms=1000)
    await txn_store.pointers.rollback(topic.log, 3, None)
    assert [await expiry(each) for each in (2, 3)] == [(2200, False), (1600, True)]
    assert await txn_store.pointers.keep() == 1
    txn_kit.clock.ms = START_MS + 2201
    assert await txn_store.pointers.keep() == 2
    found = await txn_store.topics.log(topic).decisions([1, 2, 3])
    assert found == dict.fromkeys([1, 2, 3], Decision.TIMED_OUT)
    with pytest.raises(TransactionConflictError):
        await publish_stored(txn_store, topic, 2)


async def test_keepers_of_several_agents_abort_a_pointer_once(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    stores = [txn_store, await txn_kit.open()]
    topic = await txn_store.topics.create(NAME, None)
    for pointer in range(10):
        await publish_under(txn_store, topic, pointer, "a", timeout_ms=10)
    txn_kit.clock.ms += 1000
    counts = await asyncio.gather(*(store.pointers.keep() for store in stores))
    assert sum(counts) == 10
    markers = [marker.txn for _, marker in await markers_in(txn_store, topic)]
    assert sorted(markers) == sorted(map(str, range(10)))


async def test_a_decision_is_not_reported_again_after_its_topic_was_deleted(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    gone, kept = [await txn_store.topics.create(named(name), None) for name in "ab"]
    for topic in (gone, kept):
        await publish_under(txn_store, topic, 7, "a")
    marks = await txn_store.pointers.decide([gone.log, kept.log], 7, Decision.COMMITTED)
    await txn_store.topics.delete(gone.name)
    for store in (txn_store, await txn_kit.open()):
        for logs in ([gone.log], [kept.log, gone.log]):
            with pytest.raises(TopicNotFoundError):
                await store.pointers.decide(logs, 7, Decision.COMMITTED)
        again = await store.pointers.decide([kept.log], 7, Decision.COMMITTED)
        assert again == {kept.log: marks[kept.log]}


async def test_the_keeper_passes_over_pointers_of_a_deleted_topic(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    gone, kept = [await txn_store.topics.create(named(name), None) for name in "ab"]
    for topic in (gone, kept):
        await publish_under(txn_store, topic, 7, "a", timeout_ms=1000)
    await txn_store.topics.delete(gone.name)
    txn_kit.clock.ms += 1001
    await txn_store.pointers.keep()
    assert await txn_store.topics.log(kept).decisions([7]) == {7: Decision.TIMED_OUT}
    assert await txn_store.pointers.keep() == 0
    await txn_store.topics.sweep()
    assert await txn_store.pointers.stats() == OpenStats(0, 0)


# --- Lists and figures ---


async def test_open_pointers_of_a_topic_are_listed_the_oldest_first(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    one, two = [await txn_store.topics.create(named(name), None) for name in "ab"]
    assert await txn_store.pointers.select(one.log, 10) == []
    expected = []
    for n, pointer in enumerate((9, TEPHRA, 0, 4)):
        txn_kit.clock.ms = begun = START_MS + n
        if n % 2:
            await store_under(txn_store, one, pointer, "a", timeout_ms=TIMEOUT_MS - 2 * n)
        else:
            await publish_under(txn_store, one, pointer, "a", timeout_ms=TIMEOUT_MS - 2 * n)
        expected.append(OpenPointer(pointer, begun, begun + TIMEOUT_MS - 2 * n, n % 2 == 0))
    await publish_under(txn_store, two, 5, "a")
    assert await txn_store.pointers.select(one.log, 10) == expected
    assert await txn_store.pointers.select(one.log, 2) == expected[:2]
    await txn_store.pointers.decide([one.log], 0, Decision.COMMITTED)
    del expected[2]
    assert await txn_store.pointers.select(one.log, 3) == expected


async def test_figures_tell_the_open_pointers_and_the_own_decisions(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    other = await txn_kit.open()
    one, two = [await txn_store.topics.create(named(name), None) for name in "ab"]
    assert await txn_store.pointers.stats() == OpenStats(0, 0)
    await publish_under(txn_store, one, TEPHRA, "a")
    txn_kit.clock.ms += 10
    await store_under(txn_store, two, TEPHRA, "a")
    await publish_under(txn_store, two, 8, "a")
    for store in (txn_store, other):
        assert await store.pointers.stats() == OpenStats(3, START_MS)
    await other.pointers.decide([one.log, two.log], TEPHRA, Decision.COMMITTED)
    await txn_store.pointers.decide([one.log], TEPHRA, Decision.COMMITTED)
    assert await txn_store.pointers.stats() == OpenStats(1, START_MS + 10)
    await txn_store.pointers.decide([two.log], 8, Decision.ABORTED)
    await txn_store.pointers.decide([two.log], 9, Decision.ABORTED)
    with pytest.raises(TransactionConflictError):
        await txn_store.pointers.decide([two.log], 9, Decision.COMMITTED)
    assert await other.pointers.stats() == OpenStats(0, 0)
    assert other.pointers.decisions == Decisions(committed=2, aborted=0, timed_out=0)
    assert txn_store.pointers.decisions == Decisions(committed=0, aborted=2, timed_out=0)


async def test_the_sweep_voids_messages_of_aborted_pointers_and_of_no_other(
    txn_store: StoreHandle,
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    marks: dict[Decision | None, list[Mark]] = {}
    for pointer, decision in enumerate((*Decision, None)):
        marks[decision] = await publish_under(txn_store, topic, pointer, "a", "b")
        await store_under(txn_store, topic, pointer, "c")
        marks[decision].append(await publish_stored(txn_store, topic, pointer))
        if decision is not None:
            await txn_store.pointers.decide([topic.log], pointer, decision)
    stored = [await entry_at(txn_store, topic, each[-1]) for each in marks.values()]
    for _ in range(2):
        await txn_store.topics.sweep()
    for decision, each in marks.items():
        kinds = {(await entry_at(txn_store, topic, at)).event for at in each}
        expected = {"void"} if decision is Decision.ABORTED else {"direct", "publish"}
        assert kinds == expected, decision
    log = txn_store.topics.log(topic)
    counts = [len(await log.expand(entry, -1, 9)) for entry in stored]
    assert counts == [decision is not Decision.ABORTED for decision in marks]
    assert await log.decisions([0, 1, 2]) == dict(enumerate(Decision))

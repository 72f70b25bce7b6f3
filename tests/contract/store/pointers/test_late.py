"""Reports and rollbacks after a decision about a pointer, in every store."""

import asyncio

import pytest

from oplogd.errors import TransactionConflictError
from oplogd.model.pointer import Decision, decode_voided
from oplogd.store.pointers import TimedOutPointer
from oplogd.store.topics import EntryKind
from oplogd.store.transactions import Decisions
from tests.kits.clock.virtual import START_MS
from tests.kits.store.kits import Kit
from tests.kits.store.messages import NAME, entries_of, named, publish
from tests.kits.store.pointing import (
    committed,
    kinds_in,
    publish_stored,
    publish_under,
    runs_in,
    stamp_of,
    store_under,
    uncommitted,
)
from tests.kits.store.transacting import StoreHandle

COMMITTED, ABORTED, TIMED_OUT = Decision


@pytest.mark.parametrize("everything", [False, True])
async def test_a_rollback_after_the_report_of_a_commit_is_refused_and_takes_nothing(
    txn_kit: Kit, txn_store: StoreHandle, everything: bool
) -> None:
    other = await txn_kit.open()
    topic = await txn_store.topics.create(NAME, None)
    marks = await publish_under(txn_store, topic, 7, "a", "b")
    await txn_store.pointers.decide([topic.log], 7, COMMITTED)
    before = await entries_of(txn_store.topics.log(topic))
    stamps = None if everything else [stamp_of(marks[0])]
    for store in (txn_store, other):
        with pytest.raises(TransactionConflictError, match="pointer 7 has committed"):
            await store.pointers.rollback(topic.log, 7, stamps)
    assert await entries_of(txn_store.topics.log(topic)) == before
    assert (await committed(other, topic)).payloads == ["a", "b"]


async def test_of_a_report_and_a_rollback_at_a_time_no_reader_sees_both(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    """A committed reader gets all that was rolled back, and the rollback fails, or nothing."""
    other = await txn_kit.open()
    topic = await txn_store.topics.create(NAME, None)
    expected: list[str] = []
    for pointer in range(1, 13):
        names = [f"{pointer}a", f"{pointer}b"]
        marks = await publish_under(txn_store, topic, pointer, *names)
        stamps = None if pointer % 2 else [stamp_of(marks[0])]
        reported, voided = await asyncio.gather(
            other.pointers.decide([topic.log], pointer, COMMITTED),
            txn_store.pointers.rollback(topic.log, pointer, stamps),
            return_exceptions=True,
        )
        assert isinstance(reported, dict)
        if isinstance(voided, TransactionConflictError):
            expected += names
        else:
            assert voided is not None
            assert not isinstance(voided, BaseException)
            assert voided.offset < reported[topic.log].offset
            expected += [] if stamps is None else names[1:]
        assert (await committed(txn_store, topic)).payloads == expected


async def test_a_forced_rollback_takes_what_was_committed_and_tells_of_a_gap(
    txn_store: StoreHandle,
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    log = txn_store.topics.log(topic)
    marks = await publish_under(txn_store, topic, 7, "a", "b", "c")
    await publish(txn_store.topics, topic, "plain")
    await txn_store.pointers.decide([topic.log], 7, COMMITTED)
    assert (await log.locate()).purged == 0
    stamps = [stamp_of(each) for each in marks[:2]]
    at = await txn_store.pointers.rollback(topic.log, 7, stamps, force=True)
    assert at is not None
    assert (await log.locate()).purged == stamps[1]
    assert (await committed(txn_store, topic)).payloads == ["c", "plain"]
    voided = decode_voided((await entries_of(log))[-1].data)
    assert voided is not None
    assert voided.is_gap
    assert await log.decisions([7]) == {7: COMMITTED}
    assert await txn_store.pointers.rollback(topic.log, 7, stamps, force=True) is None
    await txn_store.pointers.rollback(topic.log, 7, None, force=True)
    assert (await log.locate()).purged == stamp_of(marks[2])
    assert (await committed(txn_store, topic)).payloads == ["plain"]


async def test_a_forced_rollback_before_the_commit_is_a_rollback(txn_store: StoreHandle) -> None:
    topic = await txn_store.topics.create(NAME, None)
    await publish_under(txn_store, topic, 7, "a")
    await txn_store.pointers.rollback(topic.log, 7, None, force=True)
    assert (await txn_store.topics.log(topic).locate()).purged == 0
    voided = decode_voided((await entries_of(txn_store.topics.log(topic)))[-1].data)
    assert voided is not None
    assert not voided.is_gap


# --- After the time-out ---


async def _timed_out(kit: Kit, store: StoreHandle, *, pointer: int = 7) -> None:
    """Let the time pass until the keeper has ended everything."""
    kit.clock.ms += 1001
    assert await store.pointers.keep()


async def test_a_late_commit_publishes_the_messages_once_at_the_end_for_committed_readers(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    other = await txn_kit.open()
    topic = await txn_store.topics.create(NAME, 3600)
    await publish_under(txn_store, topic, 7, "a", "b", timeout_ms=1000)
    await store_under(txn_store, topic, 7, "c", "d")
    await publish_stored(txn_store, topic, 7)
    await publish_under(txn_store, topic, 7, "e", ttl=60)
    await _timed_out(txn_kit, txn_store)
    await publish(txn_store.topics, topic, "plain")
    assert (await committed(txn_store, topic)).payloads == ["plain"]
    marks = await other.pointers.decide([topic.log], 7, COMMITTED)
    for store in (txn_store, other):
        assert await store.pointers.decide([topic.log], 7, COMMITTED) == marks
        assert (await committed(store, topic)).payloads == ["plain", *"abcde"]
        assert await uncommitted(store, topic) == [*"abcde", "plain"]
    entries = await entries_of(txn_store.topics.log(topic))
    late = [each for each in entries if each.event == EntryKind.LATE]
    assert [each.pointer for each in late] == [None] * 5
    assert late[-1].expires_ms == late[-1].ms + 60_000
    assert marks[topic.log].offset == late[-1].offset == entries[-1].offset
    assert other.pointers.decisions == Decisions(committed=1)


async def test_a_late_commit_leaves_out_what_was_rolled_back_or_has_expired(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    topic = await txn_store.topics.create(NAME, 3600)
    marks = await publish_under(txn_store, topic, 7, "a", "b", timeout_ms=1000)
    await publish_under(txn_store, topic, 7, "short", ttl=1)
    await txn_store.pointers.rollback(topic.log, 7, [stamp_of(marks[0])])
    await store_under(txn_store, topic, 7, "c", ttl=1)
    await store_under(txn_store, topic, 7, "d")
    await publish_stored(txn_store, topic, 7)
    await store_under(txn_store, topic, 7, "never published")
    await _timed_out(txn_kit, txn_store)
    await txn_store.pointers.decide([topic.log], 7, COMMITTED)
    assert (await committed(txn_store, topic)).payloads == ["b", "d"]


async def test_a_late_commit_of_messages_that_are_gone_publishes_nothing(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    topic = await txn_store.topics.create(NAME, 5)
    await publish_under(txn_store, topic, 7, "a", timeout_ms=1000)
    await _timed_out(txn_kit, txn_store)
    txn_kit.clock.ms += 6000
    marks = await txn_store.pointers.decide([topic.log], 7, COMMITTED)
    assert await txn_store.pointers.decide([topic.log], 7, COMMITTED) == marks
    assert (await committed(txn_store, topic)).payloads == []


async def test_timed_out_pointers_with_messages_are_listed_until_they_are_reported(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    topic, other = [await txn_store.topics.create(named(name), None) for name in "ab"]
    for pointer in (5, 6, 7):
        await publish_under(txn_store, topic, pointer, "a", timeout_ms=1000)
        txn_kit.clock.ms += 1
    await publish_under(txn_store, other, 5, "a", timeout_ms=1000)
    await store_under(txn_store, topic, 9, "only stored", timeout_ms=1000)
    assert await txn_store.pointers.timed_out(topic.log, 10) == []
    await _timed_out(txn_kit, txn_store)
    found = await txn_store.pointers.timed_out(topic.log, 10)
    ended = found[0].ended_ms
    assert START_MS + 1000 < ended <= txn_kit.clock.ms
    assert found == [TimedOutPointer(5 + n, START_MS + n, found[n].ended_ms) for n in range(3)]
    assert await txn_store.pointers.timed_out(topic.log, 1) == found[:1]
    await txn_store.pointers.decide([topic.log], 5, COMMITTED)
    await txn_store.pointers.decide([topic.log], 6, ABORTED)
    assert await txn_store.pointers.timed_out(topic.log, 10) == found[2:]
    assert len(await txn_store.pointers.timed_out(other.log, 10)) == 1


@pytest.mark.parametrize("with_keys", [False, True])
async def test_a_late_rollback_is_a_report_of_an_abort(
    txn_kit: Kit, txn_store: StoreHandle, with_keys: bool
) -> None:
    one, two = [await txn_store.topics.create(named(name), None) for name in "ab"]
    marks = await publish_under(txn_store, one, 7, "a", "b", timeout_ms=1000)
    await publish_under(txn_store, two, 7, "c", timeout_ms=1000)
    await _timed_out(txn_kit, txn_store)
    stamps = [stamp_of(marks[0])] if with_keys else None
    await txn_store.pointers.rollback(one.log, 7, stamps)
    assert await txn_store.topics.log(one).decisions([7]) == {7: ABORTED}
    for logs in ([one.log], [two.log, one.log]):
        with pytest.raises(TransactionConflictError, match="pointer 7 was aborted"):
            await txn_store.pointers.decide(logs, 7, COMMITTED)
    assert (await committed(txn_store, two)).payloads == []
    await txn_store.pointers.decide([one.log, two.log], 7, ABORTED)
    await txn_store.topics.sweep()
    assert [await uncommitted(txn_store, each) for each in (one, two)] == [[], []]


async def test_of_a_late_commit_and_a_late_rollback_one_holds(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    other = await txn_kit.open()
    topic = await txn_store.topics.create(NAME, None)
    for pointer in range(1, 9):
        await publish_under(txn_store, topic, pointer, pointer, timeout_ms=1000)
    await _timed_out(txn_kit, txn_store)
    expected = []
    for pointer in range(1, 9):
        results = await asyncio.gather(
            txn_store.pointers.decide([topic.log], pointer, COMMITTED),
            other.pointers.rollback(topic.log, pointer, None),
            return_exceptions=True,
        )
        refused = [isinstance(each, TransactionConflictError) for each in results]
        assert sorted(refused) == [False, True], results
        expected += [str(pointer)] if refused[1] else []
    assert (await committed(txn_store, topic)).payloads == expected
    assert await uncommitted(txn_store, topic) == expected


# --- Several topics ---


async def test_a_report_is_for_all_of_its_topics_or_for_none(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    one, two, three = [await txn_store.topics.create(named(name), None) for name in "abc"]
    for topic in (one, two):
        await publish_under(txn_store, topic, 7, "a")
    await txn_store.pointers.decide([two.log], 7, ABORTED)
    logs = [one.log, two.log, three.log]
    with pytest.raises(TransactionConflictError, match="pointer 7 was aborted"):
        await txn_store.pointers.decide(logs, 7, COMMITTED)
    assert await kinds_in(txn_store, one) == [("direct", 7)]
    assert await kinds_in(txn_store, three) == []
    await txn_store.pointers.decide(logs, 7, ABORTED)
    assert await kinds_in(txn_store, three) == [("abort", None)]


async def test_a_commit_of_a_pointer_that_timed_out_in_one_topic_commits_in_all(
    txn_kit: Kit, txn_store: StoreHandle
) -> None:
    one, two = [await txn_store.topics.create(named(name), None) for name in "ab"]
    await publish_under(txn_store, one, 7, "a")
    await publish_under(txn_store, two, 7, "b", timeout_ms=1000)
    await _timed_out(txn_kit, txn_store)
    await txn_store.pointers.decide([one.log, two.log], 7, COMMITTED)
    for topic, payload in ((one, "a"), (two, "b")):
        assert (await committed(txn_store, topic)).payloads == [payload]


# --- The sweep ---


async def test_the_sweep_of_an_aborted_pointer_names_the_entries_that_it_voids(
    txn_store: StoreHandle,
) -> None:
    topic = await txn_store.topics.create(NAME, None)
    await publish_under(txn_store, topic, 7, "a", "b")
    await publish(txn_store.topics, topic, "plain")
    await store_under(txn_store, topic, 7, "c")
    await publish_stored(txn_store, topic, 7)
    await publish_under(txn_store, topic, 8, "d")
    await txn_store.pointers.decide([topic.log], 7, ABORTED)
    await txn_store.topics.sweep()
    assert await runs_in(txn_store, topic) == [("7", [1, 2, 4])]
    before = await entries_of(txn_store.topics.log(topic))
    await txn_store.topics.sweep()
    assert await entries_of(txn_store.topics.log(topic)) == before

"""Polls of messages under pointers: holds, snapshots, stored messages, rollbacks meanwhile."""

from collections.abc import Awaitable, Callable
from typing import Any

from oplogd.model.message_id import MessageId, end_id, parse_message_id
from oplogd.model.pointer import Decision, Snapshot
from oplogd.model.transaction import Isolation
from oplogd.store.topics import Topic
from oplogd.stream.topic_feed import Peeked
from oplogd.topics.poll import PASSING_ENTRIES
from tests.unit.topics.pointer_world import (
    ABOVE_ALL,
    COMMITTED,
    LIMIT,
    TEPHRA,
    TTL_MS,
    UNCOMMITTED,
    World,
    payloads,
)


class FakeMemory:
    def __init__(self, peek: Callable[..., Awaitable[Peeked | None]]) -> None:
        self._peek = peek

    async def peek_soon(self, *asked: Any) -> Peeked | None:
        return await self._peek(*asked)

    def acknowledged(self, _log: int, _offset: int) -> None:
        pass


async def test_a_snapshot_tells_which_messages_pass_and_where_a_poll_ends() -> None:
    world = await World.new()
    await world.direct(2, "m3")
    await world.plain("m4")
    assert await world.poll(UNCOMMITTED) == "m3 m4"
    assert await world.poll(Snapshot(5, None, frozenset({2}))) == "held by 2"
    assert await world.poll(Snapshot(5, None, frozenset(), frozenset({2}))) == "m4"
    assert await world.poll(Snapshot(5)) == "m3 m4"
    assert await world.poll(Snapshot(1)) == "held by 2", "it began after the snapshot"
    assert await world.poll(Snapshot(1, 2, frozenset({2}), frozenset({2}))) == "m3 m4", "its own"


async def test_twenty_stored_messages_are_read_at_their_publish_entry_in_order() -> None:
    world = await World.new()
    for first in range(0, 20, 5):
        await world.store(TEPHRA, *(f"s{each}" for each in range(first, first + 5)))
        world.now += 1
    readers = (UNCOMMITTED, COMMITTED, ABOVE_ALL)
    for reader in readers:
        assert await world.poll(reader) == ""
    await world.publish(TEPHRA)
    await world.decide(TEPHRA, Decision.COMMITTED)
    everything = [f"s{each}" for each in range(20)]
    for reader in readers:
        assert await world.poll(reader) == " ".join(everything)
        six = await world.answer(reader, limit=6)
        assert payloads(six) == everything[:6]
        last = six.messages[-1].id
        assert await world.poll(reader, last) == " ".join(everything[6:]), "fourteen"
        assert await world.poll(reader, last, inclusive=True) == " ".join(everything[5:])


async def test_ids_of_stored_messages_sort_and_their_last_one_is_the_end() -> None:
    world = await World.new()
    await world.plain("a")
    await world.store(1, *"bcd")
    await world.publish(1)
    await world.plain("e")
    answer = await world.answer(UNCOMMITTED)
    ids = [each.id for each in answer.messages]
    assert sorted(ids) == ids
    assert [parse_message_id(each).is_inside for each in ids] == [False, True, True, False, False]
    for reader in (UNCOMMITTED, ABOVE_ALL):
        for index, id_ in enumerate(ids):
            assert await world.poll(reader, id_) == " ".join("abcde"[index + 1 :])
            assert await world.poll(reader, id_, inclusive=True) == " ".join("abcde"[index:])


async def test_the_place_of_a_publish_entry_means_before_it_for_committed_readers_alone() -> None:
    world = await World.new()
    await world.store(1, "a", "b")
    mark = await world.publish(1)
    place, end = str(MessageId(mark.ms, mark.sequence)), str(end_id(mark.ms, mark.sequence))
    assert await world.poll(ABOVE_ALL, place) == "a b"
    assert await world.poll(UNCOMMITTED, place) == ""
    assert await world.poll(COMMITTED, place) == "held by 1"
    for reader in (UNCOMMITTED, COMMITTED, ABOVE_ALL):
        assert await world.poll(reader, end) == await world.poll(reader, end, inclusive=True) == ""
    for reader in (UNCOMMITTED, ABOVE_ALL):
        assert await world.poll(reader, place, inclusive=True) == "a b"


async def test_committed_readers_wait_for_the_decision_and_then_keep_the_order() -> None:
    for decision, then in (
        (Decision.COMMITTED, "a d e s t f"),
        (Decision.ABORTED, "a f"),
        (Decision.TIMED_OUT, "a f"),
    ):
        world = await World.new()
        await world.plain("a")
        await world.direct(7, "d", "e")
        await world.store(7, "s", "t")
        await world.publish(7)
        await world.plain("f")
        assert await world.poll(COMMITTED) == "a held by 7"
        await world.decide(7, decision)
        assert await world.poll(COMMITTED) == then
        assert await world.poll(UNCOMMITTED) == "a d e s t f"
        assert await world.poll(ABOVE_ALL) == "a d e s t f", "a snapshot counts, not the decision"


async def test_only_a_hold_that_ends_the_answer_is_named() -> None:
    world = await World.new()
    await world.plain("a", "b")
    await world.direct(7, "c")
    assert await world.poll(COMMITTED, limit=2) == "a b"
    assert await world.poll(COMMITTED, limit=3) == "a b held by 7"
    await world.direct(8, "d")
    assert await world.poll(Snapshot(7, None, frozenset({7}))) == "a b held by 7", "not by 8"
    assert await world.poll(Snapshot(7)) == "a b c held by 8"


async def test_a_reader_does_not_wait_for_an_entry_that_it_has() -> None:
    world = await World.new()
    await world.direct(7, "a")
    await world.plain("b")
    (id_, _) = (each.id for each in (await world.answer(UNCOMMITTED)).messages)
    assert await world.poll(COMMITTED, id_) == "b"
    assert await world.poll(COMMITTED, id_, inclusive=True) == "held by 7"
    await world.store(7, "s", "t")
    await world.publish(7)
    inside, last = (each.id for each in (await world.answer(UNCOMMITTED)).messages[2:])
    assert await world.poll(COMMITTED, inside) == "held by 7", "it lacks the last message"
    assert await world.poll(COMMITTED, last) == ""


async def test_decisions_are_asked_for_once_per_page_and_only_if_it_has_pointers() -> None:
    world = await World.new()
    await world.plain("a")
    await world.poll(COMMITTED)
    assert world.topics.calls == ["read", "read"]
    await world.direct(1, "b")
    await world.store(2, "c")
    await world.publish(2)
    for reader in (UNCOMMITTED, ABOVE_ALL):
        world.topics.calls.clear()
        assert await world.poll(reader) == "a b c"
        assert "decisions" not in world.topics.calls
    world.topics.calls.clear()
    assert await world.poll(COMMITTED) == "a held by 1"
    assert world.topics.calls == ["read", "decisions"]
    await world.decide(1, Decision.ABORTED)
    await world.decide(2, Decision.ABORTED)
    world.topics.calls.clear()
    assert await world.poll(COMMITTED) == "a"
    assert world.topics.calls == ["read", "decisions", "read"]


async def test_a_rollback_leaves_every_reader_without_a_gap() -> None:
    world = await World.new()
    await world.plain("a")
    one, _ = await world.direct(1, "b", "c")
    await world.store(1, *"def")
    stored = await world.publish(1)
    await world.plain("g")
    ids = [each.id for each in (await world.answer(UNCOMMITTED)).messages]
    await world.rollback(1, [one, stored])
    for reader in (UNCOMMITTED, ABOVE_ALL):
        assert await world.poll(reader) == "a c g"
        for start, then in zip(ids, ("c g", "c g", "g", "g", "g", "g", ""), strict=True):
            assert await world.poll(reader, start) == then
    await world.rollback(1)
    await world.decide(1, Decision.COMMITTED)
    for reader in (UNCOMMITTED, ABOVE_ALL, COMMITTED):
        assert await world.poll(reader) == "a g"


async def test_a_rollback_while_stored_messages_are_read_is_no_gap() -> None:
    for reader in (UNCOMMITTED, ABOVE_ALL):
        world = await World.new()
        await world.store(1, "a", "b")
        mark = await world.publish(1)
        await world.plain("c")
        world.topics.hooks["expand"] = lambda mark=mark, world=world: world.void(mark)  # type: ignore[misc]
        assert await world.poll(reader) == "c"
        assert await world.poll(reader) == "c"


async def test_stored_messages_that_are_gone_are_a_gap() -> None:
    world = await World.new()
    await world.store(1, *"abc")
    await world.publish(1)
    await world.plain("d")
    stored = world.topics.stored[world.log, 1]
    numbers = sorted(stored)
    first = (await world.answer(UNCOMMITTED)).messages[0].id
    for lost, left in ((numbers[1], "ac"), (numbers[2], "a"), (numbers[0], "")):
        del stored[lost]
        for reader in (UNCOMMITTED, ABOVE_ALL):
            for _ in range(2):  # the second one may pass over what the first one found void
                answer = await world.answer(reader)
                assert (payloads(answer), answer.gap) == ([*left, "d"], True)
    answer = await world.answer(UNCOMMITTED, first)
    assert (payloads(answer), answer.gap) == (["d"], True)


async def test_a_position_inside_a_publish_entry_at_the_front_is_a_gap_and_its_end_is_none() -> (
    None
):
    world = await World.new()
    await world.store(1, "a", "b")
    await world.publish(1)
    world.now += 1
    await world.plain("later")
    first, last = (each.id for each in (await world.answer(UNCOMMITTED)).messages[:2])
    world.now += TTL_MS
    for reader in (UNCOMMITTED, ABOVE_ALL):
        for inclusive in (False, True):
            answer = await world.answer(reader, first, inclusive=inclusive)
            assert (payloads(answer), answer.gap) == (["later"], True)
        assert await world.poll(reader, last) == "later"


async def test_a_message_that_was_rolled_back_before_its_pointer_committed_is_not_read() -> None:
    """Both may happen after a page was read, and before its decisions are asked for."""
    world = await World.new()
    (mark,) = await world.direct(1, "a")
    await world.direct(1, "b")
    await world.plain("c")

    def end() -> None:
        world.void(mark)
        world.topics.decided[world.log, 1] = Decision.COMMITTED

    world.topics.hooks["decisions"] = end
    assert await world.poll(COMMITTED) == "b c"


async def test_own_times_to_live_count_from_the_entry_and_release_a_hold() -> None:
    world = await World.new()
    await world.direct(1, {"payload": "a", "ttl": 1})
    await world.store(2, {"payload": "b", "ttl": 1}, "c")
    world.now += 1000
    await world.publish(2)
    assert await world.poll(UNCOMMITTED) == "a b c"
    assert await world.poll(COMMITTED) == "held by 1"
    world.now += 1000
    assert await world.poll(UNCOMMITTED) == "b c", "the time of b counts from its publish entry"
    assert await world.poll(COMMITTED) == "held by 2"
    world.now += 1
    assert await world.poll(UNCOMMITTED) == "c"


async def test_aborted_messages_are_passed_over_once_but_never_for_a_snapshot() -> None:
    world = await World.new()
    row = 3 * PASSING_ENTRIES
    await world.plain("first")
    first = (await world.answer(UNCOMMITTED)).messages[0].id
    await world.direct(1, *["x"] * row)
    await world.plain("last")
    for _ in range(2):
        assert await world.poll(COMMITTED, first) == "held by 1", "an open row is not passed over"
    await world.decide(1, Decision.TIMED_OUT)
    reads = []
    for _ in range(2):
        before = world.topics.reads
        assert await world.poll(COMMITTED, first) == "last"
        reads.append(world.topics.reads - before)
    assert reads == [5, 3]
    assert len((await world.answer(ABOVE_ALL, first)).messages) == LIMIT
    assert len((await world.answer(UNCOMMITTED, first)).messages) == LIMIT
    assert await world.poll(Snapshot(0, None, frozenset({1})), first) == "held by 1"
    assert await world.poll(Snapshot(5, None, frozenset(), frozenset({1})), first) == "last"
    await world.direct(2, "y")
    assert await world.poll(COMMITTED, first) == "last held by 2"


async def test_what_a_snapshot_passes_over_is_not_passed_over_for_others() -> None:
    world = await World.new()
    await world.plain("first")
    first = (await world.answer(UNCOMMITTED)).messages[0].id
    await world.direct(1, *["x"] * 2 * PASSING_ENTRIES)
    await world.decide(1, Decision.COMMITTED)
    for _ in range(2):
        assert await world.poll(Snapshot(5, None, frozenset(), frozenset({1})), first) == ""
        assert len((await world.answer(COMMITTED, first)).messages) == LIMIT


async def test_an_answer_has_a_megabyte_of_stored_messages_or_at_least_one() -> None:
    world = await World.new()
    big = "x" * 600_000
    await world.store(1, big, big, "small")
    await world.publish(1)
    first = await world.answer(UNCOMMITTED)
    assert [len(each) for each in payloads(first)] == [600_000]
    rest = await world.answer(UNCOMMITTED, first.messages[0].id)
    assert [len(each) for each in payloads(rest)] == [600_000, 5]


async def test_readers_with_a_snapshot_ask_the_store_and_others_may_be_held_from_memory() -> None:
    world = await World.new()
    await world.direct(1, "a")
    asked: list[Isolation] = []

    async def peek(topic: Topic, after: MessageId | None, *rest: Any) -> Peeked:
        asked.append(rest[-1])
        return Peeked([(MessageId(1, 2), '{"payload":"from memory"}')], 5)

    world.poller.memory = FakeMemory(peek)
    assert await world.poll(COMMITTED) == "from memory held by 5"
    assert await world.poll(ABOVE_ALL) == "a"
    assert asked == [COMMITTED]


async def test_memory_is_asked_for_positions_that_mean_the_same_as_to_the_store() -> None:
    """Of uncommitted readers only those of stored messages lie within an entry."""
    world = await World.new()
    await world.store(1, *"abc")
    mark = await world.publish(1)
    inside = (await world.answer(UNCOMMITTED)).messages[1].id
    asked: list[int | None] = []

    async def peek(topic: Topic, after: MessageId | None, *rest: Any) -> None:
        assert after is not None
        asked.append(after.records_after)

    world.poller.memory = FakeMemory(peek)
    place = MessageId(mark.ms, mark.sequence)
    first, second, _ = sorted(world.topics.stored[world.log, 1])
    for start, expected in (
        (inside, second),
        (str(place), None),
        (str(place._replace(write_ms=5)), None),
    ):
        await world.answer(UNCOMMITTED, start)
        assert asked.pop() == expected
    await world.answer(UNCOMMITTED, inside, inclusive=True)
    assert asked == [first]
    await world.answer(COMMITTED, str(place))
    assert asked == [first, -1]

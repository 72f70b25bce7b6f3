"""Streams of messages under pointers that were reported, or rolled back, after their decision."""

import pytest

from oplogd.model.event_id import Mark, Millis
from oplogd.model.message_id import MessageId, end_id
from oplogd.model.transaction import Isolation
from oplogd.store.topics import Topic
from oplogd.stream.topic_feed import Peeked
from tests.kits.stream.topic_worlds import read_all, told
from tests.unit.stream.pointers.pointer_worlds import COMMIT, TIMED_OUT, P, PointerWorld, Q
from tests.unit.stream.transactions.transacted_topics import COMMITTED, UNCOMMITTED


def behind(mark: Mark) -> MessageId:
    return end_id(mark.ms, mark.sequence)


@pytest.mark.parametrize("is_in_ring", [False, True])
async def test_a_late_commit_shows_messages_to_committed_readers_only(
    held_world: PointerWorld, is_in_ring: bool
) -> None:
    world = held_world
    topic = await world.create()
    readers = {each: await world.follow(topic, None, each) for each in Isolation}
    await world.direct(topic, P, "a")
    await world.stored(topic, P, "b", "c")
    await world.decide(topic, P, TIMED_OUT)
    await world.publish(topic, "plain")
    await world.decide(topic, P, COMMIT)
    await world.advance()
    if not is_in_ring:
        await world.forget(topic)
    expected = {UNCOMMITTED: ["a", "b", "c", "plain"], COMMITTED: ["plain", "a", "b", "c"]}
    for isolation, reader in readers.items():
        assert told(await read_all(reader)) == expected[isolation]
    assert await world.reads(topic) == expected


async def test_an_uncommitted_reader_that_reads_on_from_the_store_gets_late_messages_once(
    held_world: PointerWorld,
) -> None:
    """There is no entry that expands among those that it reads."""
    world = held_world
    topic = await world.create()
    reader = await world.follow(topic, None, UNCOMMITTED)
    await world.direct(topic, P, "a", "b")
    await world.decide(topic, P, TIMED_OUT)
    await world.decide(topic, P, COMMIT)
    await world.publish(topic, "plain")
    await world.advance()
    await world.forget(topic)
    assert told(await read_all(reader)) == ["a", "b", "plain"]


async def test_a_poll_from_memory_shows_late_messages_as_one_from_the_store_does(
    held_world: PointerWorld,
) -> None:
    world = held_world
    topic = await world.create()
    await world.follow(topic, None)
    (first,) = await world.publish(topic, "first")
    await world.direct(topic, P, "a")
    await world.decide(topic, P, TIMED_OUT)
    await world.decide(topic, P, COMMIT)
    await world.advance()
    feed = world.feeds.get(topic.log)
    assert feed is not None
    found = feed.peek(behind(first), 10, 10**6, UNCOMMITTED)
    assert found is not None
    assert [data for _, data in found.messages] == ['{"payload":"a"}']
    assert feed.peek(behind(first), 10, 10**6, COMMITTED) in (None, Peeked([]))


async def _purged(world: PointerWorld) -> tuple[Topic, list[Mark]]:
    """Return a topic with a, b, c, d and e, of which a forced rollback then takes b and d."""
    topic = await world.create()
    marks = []
    for pointer, text in enumerate("abcde"):
        marks += await world.direct(topic, [P, Q][pointer % 2], text)
    for pointer in (P, Q):
        await world.decide(topic, pointer, COMMIT)
    return topic, marks


async def test_a_reader_that_resumes_before_messages_that_were_taken_away_is_reset(
    held_world: PointerWorld,
) -> None:
    world = held_world
    topic, marks = await _purged(world)
    await world.pointers.rollback(topic.log, Q, None, force=True)
    for isolation in Isolation:
        for k, rest in ((0, ["reset", "c", "e"]), (2, ["reset", "e"]), (3, ["e"]), (4, [])):
            reader = await world.follow(topic, behind(marks[k]), isolation)
            assert told(await read_all(reader)) == rest
        oldest = await world.follow(topic, Millis(0), isolation)
        assert told(await read_all(oldest)) == ["a", "c", "e"]
        timed = await world.follow(topic, Millis(marks[1].ms), isolation)
        assert told(await read_all(timed))[0] == "reset"


async def test_connected_readers_that_lag_behind_such_messages_are_reset_and_others_go_on(
    held_world: PointerWorld,
) -> None:
    world = held_world
    topic = await world.create()
    ahead, behind_it = [await world.follow(topic, None) for _ in range(2)]
    await world.direct(topic, P, "a", "b")
    await world.decide(topic, P, COMMIT)
    await world.advance()
    assert told(await read_all(ahead)) == ["a", "b"]
    await world.pointers.rollback(topic.log, P, None, force=True)
    await world.publish(topic, "plain")
    await world.advance()
    assert told(await read_all(ahead)) == ["plain"]
    assert told(await read_all(behind_it)) == ["reset", "plain"]


@pytest.mark.parametrize("isolation", Isolation)
async def test_a_reader_within_an_entry_gets_the_entry_again_after_the_reset(
    held_world: PointerWorld, isolation: Isolation
) -> None:
    world = held_world
    topic = await world.create()
    await world.publish(topic, "first")
    mark = await world.stored(topic, P, "a", "b", "c")
    await world.direct(topic, Q, "taken")
    for pointer in (P, Q):
        await world.decide(topic, pointer, COMMIT)
    whole = await read_all(await world.follow(topic, Millis(0), isolation))
    inside = whole.decode().split("id: ")[3][:40]
    assert inside.startswith(f"{mark.ms:016x}{mark.sequence:04x}")
    await world.pointers.rollback(topic.log, Q, None, force=True)
    position = MessageId.of_bytes(bytes.fromhex(inside))
    reader = await world.follow(topic, position, isolation)
    assert told(await read_all(reader)) == ["reset", "a", "b", "c"]

"""Streams of messages under pointers: positions, rollbacks, expansions, polls from memory."""

from typing import Literal

import pytest

from oplogd.model.event_id import Millis
from oplogd.model.message_id import MessageId, end_id, parse_message_id
from oplogd.model.transaction import Isolation
from oplogd.stream.phases.catch_up import Expansion
from oplogd.stream.phases.record_pages import IDLE_SECONDS, PAGE
from oplogd.stream.topic_feed import Peeked
from tests.kits.stream.topic_worlds import (
    TTL,
    end_of,
    last_id_of,
    next_chunk,
    read_all,
    told,
)
from tests.unit.stream.pointers.pointer_worlds import ABORT, COMMIT, LARGE, P, PointerWorld, Q
from tests.unit.stream.transactions.transacted_topics import COMMITTED, UNCOMMITTED

MB = 1_000_000


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def blocks_of(chunk: bytes) -> list[bytes]:
    return [block + b"\n\n" for block in chunk.split(b"\n\n")[:-1]]


@pytest.mark.thorough
@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("count", [3, LARGE])
async def test_stored_messages_are_cut_at_every_record_and_resumed(
    held_world: PointerWorld,
    isolation: Isolation,
    count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of many messages, each isolation is cut at every second one."""
    world = held_world
    topic = await world.create()
    live = await world.follow(topic, None, isolation)
    (before,) = await world.direct(topic, P, "before")
    place = await world.stored(topic, P, *numbers(count))
    await world.decide(topic, P, COMMIT)
    (after,) = await world.publish(topic, "after")
    await world.advance()
    whole = await read_all(live)
    assert told(whole) == ["before", *numbers(count), "after"]
    assert await read_all(await world.follow(topic, Millis(0), isolation)) == whole
    assert live.sent == count + 2
    blocks = blocks_of(whole)
    monkeypatch.setattr("oplogd.stream.phases.record_pages.PAGE", 2)
    world.clock.seconds += IDLE_SECONDS
    world.hub.look(world.clock.seconds)
    step = 2 if count == LARGE else 1
    for index in range(1 + (step == 2 and isolation is COMMITTED), count, step):
        reader = await world.follow(topic, parse_message_id(last_id_of(blocks[index])), isolation)
        assert isinstance(reader.phase, Expansion)
        rest = blocks[index + 1 : count + 1]
        chunk = await next_chunk(reader)
        assert chunk in (rest[0], b"".join(rest[:2]))
        assert reader.phase.position == last_id_of(chunk) or len(rest) <= 2
        world.hub.disconnect(reader)
    ends = {
        parse_message_id(last_id_of(blocks[1])): [*numbers(count)[1:], "after"],
        parse_message_id(last_id_of(blocks[count])): ["after"],
        end_id(before.ms, before.sequence): [*numbers(count), "after"],
        end_id(place.ms, place.sequence): ["after"],
        end_id(after.ms, after.sequence): [],
    }
    for position, expected in ends.items():
        assert told(await read_all(await world.follow(topic, position, isolation))) == expected


async def test_the_id_of_a_publish_entry_is_before_its_messages_only_for_committed_readers(
    held_world: PointerWorld,
) -> None:
    world = held_world
    topic = await world.create()
    place = await world.stored(topic, P, "a", "b")
    await world.decide(topic, P, COMMIT)
    position = MessageId(place.ms, place.sequence)
    for isolation, expected in ((COMMITTED, ["a", "b"]), (UNCOMMITTED, [])):
        assert told(await read_all(await world.follow(topic, position, isolation))) == expected


async def test_a_large_publish_entry_is_read_in_pages_with_checkpoints(
    held_world: PointerWorld,
) -> None:
    world = held_world
    topic = await world.create()
    (before,) = await world.publish(topic, "before")
    readers = [await world.follow(topic, None, each) for each in Isolation]
    await world.stored(topic, P, *numbers(LARGE))
    await world.decide(topic, P, COMMIT)
    await world.publish(topic, "after")
    await world.advance()
    for reader in readers:
        assert reader.lag().operations == LARGE + 2
        assert reader.phase.position == end_of(before)
        got: list[str] = []
        while len(got) < LARGE:
            chunk = await next_chunk(reader)
            got += told(chunk)
            assert reader.lag().operations == LARGE + 2 - len(got)
            position = parse_message_id(reader.phase.position)
            assert str(position) == last_id_of(chunk) or not position.is_inside
            assert len(told(chunk)) == PAGE
        assert got == numbers(LARGE)
        assert told(await read_all(reader)) == ["after"]


async def test_small_publish_entries_are_read_once_for_the_readers_that_are_there(
    held_world: PointerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = held_world
    topic = await world.create()
    readers = [await world.follow(topic, None, UNCOMMITTED) for _ in range(2)]
    await world.stored(topic, P, "a", "b")
    await world.advance()
    late = [await world.follow(topic, Millis(0), each) for each in Isolation]
    assert [told(await read_all(each)) for each in late] == [["a", "b"], []]
    reads = world.topics.reads
    assert [told(await read_all(each)) for each in readers] == [["a", "b"]] * 2
    await world.decide(topic, P, COMMIT)
    await world.advance()
    followed = world.topics.reads - reads
    assert told(await read_all(late[1])) == ["a", "b"]
    assert world.topics.reads - reads == followed


async def test_a_reader_that_begins_behind_an_open_entry_is_not_held_by_it(
    held_world: PointerWorld,
) -> None:
    world = held_world
    topic = await world.create()
    held = await world.follow(topic)
    (mark,) = await world.direct(topic, P, "a")
    await world.advance()
    readers = [await world.follow(topic), await world.follow(topic, MessageId(*mark[1:]))]
    await world.publish(topic, "b")
    await world.direct(topic, Q, "c")
    await world.publish(topic, "d")
    await world.advance()
    assert [told(await read_all(each)) for each in (*readers, held)] == [["b"], ["b"], []]
    assert [each.held_by for each in (*readers, held)] == [Q, Q, P]
    await world.decide(topic, Q, COMMIT)
    await world.advance()
    assert [told(await read_all(each)) for each in (*readers, held)] == [["c", "d"]] * 2 + [[]]
    await world.decide(topic, P, COMMIT)
    await world.advance()
    assert told(await read_all(held)) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("end", ["commit", "abort", "rollback"])
async def test_a_reader_inside_an_open_publish_entry_is_held_there(
    held_world: PointerWorld, end: Literal["commit", "abort", "rollback"]
) -> None:
    """The position is from a reader that does not wait."""
    world = held_world
    topic = await world.create()
    await world.stored(topic, P, "a", "b", "c")
    await world.publish(topic, "after")
    whole = await read_all(await world.follow(topic, Millis(0), UNCOMMITTED))
    position = parse_message_id(last_id_of(blocks_of(whole)[0]))
    reader = await world.follow(topic, position)
    assert told(await read_all(reader)) == []
    assert (reader.held_by, reader.phase.position) == (P, str(position))
    assert not reader.phase.is_behind()
    if end == "rollback":
        await world.roll_back(topic, P)
    else:
        await world.decide(topic, P, COMMIT if end == "commit" else ABORT)
    await world.advance()
    expected = ["b", "c", "after"] if end == "commit" else ["after"]
    assert told(await read_all(reader)) == expected


@pytest.mark.parametrize("changed", [0, 10_000])
async def test_a_rollback_reaches_streams_that_were_connected_before(
    held_world: PointerWorld, changed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some have read the messages, others have them in memory: joined, alone, or not at all.

    ``changed``: the ring changes at most so many entries, else it begins anew.
    """
    monkeypatch.setattr("oplogd.stream.ring.topic_ring._MOST_CHANGED", changed)
    world = held_world
    topic = await world.create()
    has_read, *readers = [await world.follow(topic, None, UNCOMMITTED) for _ in range(3)]
    committed = await world.follow(topic)
    await world.direct(topic, P, "a")
    await world.stored(topic, P, "b", "c")
    await world.stored(topic, P, *numbers(LARGE))
    await world.publish(topic, "after")
    await world.advance()
    rolled_back = ["a", "b", "c", *numbers(LARGE), "after"]
    assert told(await read_all(has_read)) == rolled_back
    assert told(await next_chunk(readers[0])) == ["a", "b", "c"]
    assert len(told(await next_chunk(readers[0]))) == PAGE
    await world.roll_back(topic, P)
    await world.advance()
    assert [told(await read_all(each)) for each in readers] == [["after"]] * 2
    assert told(await read_all(committed)) == ["after"]
    assert told(await read_all(has_read)) == []
    assert {each.lag() for each in (*readers, committed)} == {(0, 0)}


async def test_a_rollback_in_the_middle_of_a_page_of_records_is_no_gap(
    held_world: PointerWorld,
) -> None:
    world = held_world
    topic = await world.create()
    await world.stored(topic, P, *numbers(LARGE))
    await world.publish(topic, "after")
    reader = await world.follow(topic, Millis(0), UNCOMMITTED)
    assert len(told(await next_chunk(reader))) == PAGE
    world.meddle[:] = [lambda: world.roll_back(topic, P)]
    assert told(await read_all(reader)) == ["after"]


async def test_a_forced_rollback_in_the_middle_of_a_page_of_records_is_a_gap(
    held_world: PointerWorld,
) -> None:
    world = held_world
    topic = await world.create()
    await world.stored(topic, P, *numbers(LARGE))
    await world.decide(topic, P, COMMIT)
    await world.publish(topic, "after")
    reader = await world.follow(topic, Millis(0), COMMITTED)
    chunk = await next_chunk(reader)
    await world.pointers.rollback(topic.log, P, None, force=True)
    assert told(await read_all(reader)) == ["reset", "after"]
    for isolation in Isolation:
        again = await world.follow(topic, parse_message_id(last_id_of(chunk)), isolation)
        assert told(await read_all(again)) == ["reset", "after"]


async def test_an_expansion_whose_entry_is_gone_by_age_is_a_gap(held_world: PointerWorld) -> None:
    world = held_world
    topic = await world.create()
    await world.stored(topic, P, *numbers(LARGE))
    await world.decide(topic, P, COMMIT)
    readers = [await world.follow(topic, Millis(0), each) for each in Isolation]
    ids = []
    for reader in readers:
        chunk = await next_chunk(reader)
        assert len(told(chunk)) == PAGE
        ids.append(parse_message_id(last_id_of(chunk)))
    world.clock.ms += TTL * 1000 + 1
    await world.publish(topic, "next")
    await world.advance()
    assert [told(await read_all(each)) for each in readers] == [["reset", "next"]] * 2
    for id_, isolation in zip(ids, Isolation, strict=True):
        again = await world.follow(topic, id_, isolation)
        assert told(await read_all(again)) == ["reset", "next"]


async def test_a_message_past_its_own_time_to_live_holds_nobody(held_world: PointerWorld) -> None:
    world = held_world
    topic = await world.create()
    reader = await world.follow(topic)
    await world.direct(topic, P, "short", ttl=1)
    await world.publish(topic, "after")
    await world.advance()
    assert told(await read_all(reader)) == []
    assert reader.held_by == P
    world.clock.ms += 1_001
    assert world.feeds.peek(topic, None, 1, MB) is not None
    assert reader.held_by is None
    assert told(await read_all(reader)) == ["after"]


async def test_polls_stop_at_a_hold_and_tell_it(held_world: PointerWorld) -> None:
    world = held_world
    topic = await world.create(ttl=1)
    (first,) = await world.publish(topic, "a")
    await world.follow(topic, None, UNCOMMITTED)
    await world.publish(topic, "b")
    await world.direct(topic, P, "c")
    await world.stored(topic, P, "d")
    await world.publish(topic, "e")
    await world.advance()

    def peek(after: MessageId, isolation: Isolation, limit: int = 100) -> Peeked | None:
        return world.feeds.peek(topic, after, limit, MB, isolation)

    position = end_id(first.ms, first.sequence)
    found = peek(position, COMMITTED)
    assert found is not None
    assert ([data for _, data in found.messages], found.held_by) == (['{"payload":"b"}'], P)
    assert peek(position, COMMITTED, 1) == Peeked(found.messages)
    at_hold = found.messages[0][0]
    assert peek(at_hold, COMMITTED) == Peeked([], P)
    assert peek(at_hold, UNCOMMITTED) is None
    taken = peek(at_hold, UNCOMMITTED, 1)
    assert taken is not None
    assert [data for _, data in taken.messages] == ['{"payload":"c"}']
    inside = MessageId(*taken.messages[0][0][:2])
    await world.decide(topic, P, ABORT)
    await world.advance()
    rest = peek(at_hold, COMMITTED)
    assert rest is not None
    assert ([data for _, data in rest.messages], rest.held_by) == (['{"payload":"e"}'], None)
    assert peek(inside, COMMITTED) == rest

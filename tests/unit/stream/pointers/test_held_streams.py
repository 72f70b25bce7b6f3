"""Streams of messages that were published under pointers: holds, releases, rollbacks, ends."""

import asyncio
from collections.abc import Collection
from typing import NamedTuple

import pytest

from oplogd.model.event_id import Millis
from oplogd.model.message_id import MessageId, stored_id
from oplogd.model.pointer import Decision
from oplogd.store.topics import Topic
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.phases.catch_up import CatchUp
from oplogd.stream.phases.phase import LivePhase
from oplogd.stream.ring.frames import HEARTBEAT, checkpoint_frame, held_comment
from tests.kits.stream.reading import awaited
from tests.kits.stream.topic_worlds import (
    end_of,
    next_chunk,
    read_all,
    told,
)
from tests.kits.stream.worlds import DEADLINE, WatchedConsumer
from tests.unit.stream.pointers.pointer_worlds import (
    ABORT,
    COMMIT,
    TIMED_OUT,
    TIMEOUT_MS,
    P,
    PointerWorld,
    Q,
)
from tests.unit.stream.transactions.transacted_topics import COMMITTED, UNCOMMITTED


class Way(NamedTuple):
    """``decision``: None: a rollback. ``passes``: committed readers get the messages."""

    decision: Decision | None
    passes: bool


WAYS = [Way(COMMIT, True), Way(ABORT, False), Way(TIMED_OUT, False), Way(None, False)]


async def release(world: PointerWorld, topic: Topic, way: Way) -> None:
    if way.decision is TIMED_OUT:
        world.clock.ms += TIMEOUT_MS + 1
        assert await world.pointers.keep() == 1
    elif way.decision is not None:
        await world.decide(topic, P, way.decision)
    else:
        await world.roll_back(topic, P)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: str(way.decision))
@pytest.mark.parametrize(("forgets", "changed"), [(False, 10_000), (False, 0), (True, 10_000)])
async def test_a_held_stream_goes_on_when_its_pointer_has_an_end(
    held_world: PointerWorld,
    way: Way,
    forgets: bool,
    changed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``forgets``: the ring gives up the entries, so the stream is held in the store's log.

    ``changed``: the ring changes at most so many entries, else it begins anew.
    """
    monkeypatch.setattr("oplogd.stream.ring.topic_ring._MOST_CHANGED", changed)
    world = held_world
    topic = await world.create(ttl=10**6)
    (before,) = await world.publish(topic, "before")
    live = [await world.follow(topic, None, each) for each in (UNCOMMITTED, COMMITTED)]
    late = await world.follow(topic, Millis(0), checkpoints=True)
    assert await next_chunk(late) == checkpoint_frame(late.phase.position)
    await world.direct(topic, P, "a", "b")
    await world.stored(topic, P, "c", "d")
    await world.publish(topic, "after")
    await world.advance()
    if forgets:
        await world.forget(topic)
    uncommitted, committed = live
    assert told(await read_all(uncommitted)) == ["a", "b", "c", "d", "after"]
    assert [told(await read_all(each)) for each in (committed, late)] == [[], ["before"]]
    for reader in (committed, late):
        assert reader.held_by == P
        assert isinstance(reader.phase, CatchUp if forgets else LivePhase)
        assert reader.phase.position == end_of(before)
        assert reader.lag().operations >= 4
        assert not reader.phase.is_behind()
    assert world.hub.held == 2
    late.heartbeat = 0
    world.clock.seconds += 12
    told_to = f": held by pointer {P} of {topic.name} since 12 s\n".encode()
    assert await awaited(late) == told_to + checkpoint_frame(end_of(before))
    late.heartbeat = 1e9
    await release(world, topic, way)
    await world.advance()
    passed = ["a", "b", "c", "d"] if way.passes else []
    assert [told(await read_all(each)) for each in (committed, late)] == [[*passed, "after"]] * 2
    assert told(await read_all(uncommitted)) == []
    assert {each.lag() for each in (*live, late)} == {(0, 0)}
    assert world.hub.held == 0
    kept = [] if way.decision is None else ["a", "b", "c", "d"]
    assert await world.reads(topic) == {
        UNCOMMITTED: ["before", *kept, "after"],
        COMMITTED: ["before", *passed, "after"],
    }


async def test_a_stream_that_one_pointer_holds_again_tells_since_when_it_does(
    held_world: PointerWorld,
) -> None:
    world = held_world
    topic = await world.create(ttl=10**6)
    reader = await world.follow(topic, None)
    for seconds in (12, 5):
        await world.direct(topic, P, "a")
        await world.publish(topic, "after")
        await world.advance()
        assert told(await read_all(reader)) == []
        world.clock.seconds += seconds
        reader.heartbeat = 0
        assert await awaited(reader) == held_comment(P, topic.name, seconds)
        reader.heartbeat = 1e9
        await world.roll_back(topic, P)
        await world.advance()
        assert told(await awaited(reader)) == ["after"]
        assert reader.is_asleep
        world.clock.seconds += 100


@pytest.mark.parametrize(
    ("own", "records"),
    [(False, False), (False, True), (True, False)],
    ids=["of the topic", "of the topic within records", "own"],
)
async def test_a_stream_held_in_the_store_waits_no_longer_than_the_time_to_live(
    held_world: PointerWorld, own: bool, records: bool
) -> None:
    """A heartbeat is the time at which it looks. Before the end it does not ask the store.

    ``own``: the message has one. ``records``: the stream waits within an entry of stored messages.
    """
    world = held_world
    topic = await world.create(ttl=900 if own else 1)
    position: MessageId | Millis = Millis(0)
    if records:
        mark = await world.stored(topic, P, "a", "b")
        position = stored_id(mark.ms, mark.sequence, 1, is_last=False)
    else:
        await world.direct(topic, P, "a", ttl=1 if own else 0)
    await world.publish(topic, "b")
    await world.advance()
    reader = await world.follow(topic, position)
    await world.forget(topic)
    assert told(await read_all(reader)) == []
    assert reader.held_by == P
    reads = world.topics.reads
    reader.heartbeat = 0
    assert await awaited(reader) == held_comment(P, topic.name, 0)
    reader.heartbeat = 1e9
    assert told(await read_all(reader)) == []
    assert world.topics.reads == reads
    world.clock.ms += 1_002
    await world.publish(topic, "c")
    await world.advance()
    assert reader.is_asleep
    reader.heartbeat = 0
    assert await awaited(reader) == HEARTBEAT
    reader.heartbeat = 1e9
    assert told(await read_all(reader)) == (["b", "c"] if own else ["reset", "c"])
    assert reader.held_by is None


async def test_a_thousand_appends_wake_none_of_a_hundred_held_streams(
    held_world: PointerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = held_world
    topic = await world.create()
    woken: list[StreamConsumer] = []
    wake = WatchedConsumer.wake

    def counted(consumer: WatchedConsumer) -> None:
        woken.append(consumer)
        wake(consumer)

    early = [await world.follow(topic) for _ in range(50)]
    await world.direct(topic, P, "a")
    late = [await world.follow(topic, Millis(0)) for _ in range(50)]
    await world.advance()
    readers = [*early, *late]
    got: dict[StreamConsumer, list[str]] = {reader: [] for reader in readers}

    async def read(reader: StreamConsumer) -> None:
        while chunk := await awaited(reader):
            got[reader] += told(chunk)

    reading = [asyncio.create_task(read(reader)) for reader in readers]
    await all_asleep(readers)
    assert {reader.held_by for reader in readers} == {P}
    monkeypatch.setattr(WatchedConsumer, "wake", counted)
    reads = world.topics.reads
    for number in range(500):
        await world.publish(topic, str(number))
        await world.direct(topic, Q, f"q{number}")
        await world.advance()
    await world.decide(topic, Q, COMMIT)
    await world.advance()
    assert woken == []
    assert all(reader.is_asleep for reader in readers)
    assert world.topics.reads - reads < 2 * 1_010, "held streams ask the store"
    await world.decide(topic, P, COMMIT)
    await world.advance()
    assert sorted(woken, key=id) == sorted(readers, key=id)
    await all_asleep(readers)
    expected = ["a"] + [text for number in range(500) for text in (str(number), f"q{number}")]
    assert list(got.values()) == [expected] * 100
    for reader in readers:
        reader.end()
    await asyncio.gather(*reading)


async def all_asleep(readers: Collection[StreamConsumer]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not all(reader.is_asleep for reader in readers):
            await asyncio.sleep(0)

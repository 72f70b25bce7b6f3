"""Held streams, and events in the middle of their look-ups: none is missed, nothing is left."""

import gc
import weakref
from collections.abc import Awaitable, Callable

import pytest

from oplogd.model.event_id import Millis
from oplogd.store.topics import Topic
from oplogd.stream.phases.catch_up import CatchUp
from oplogd.stream.phases.phase import LivePhase
from tests.kits.stream.reading import awaited
from tests.kits.stream.topic_worlds import read_all, told
from tests.unit.stream.pointers.pointer_worlds import ABORT, COMMIT, P, PointerWorld
from tests.unit.stream.transactions.transacted_topics import UNCOMMITTED

Event = Callable[[PointerWorld, Topic], Awaitable[None]]


async def commit(world: PointerWorld, topic: Topic) -> None:
    await world.decide(topic, P, COMMIT)


async def abort(world: PointerWorld, topic: Topic) -> None:
    await world.decide(topic, P, ABORT)


async def roll_back(world: PointerWorld, topic: Topic) -> None:
    await world.roll_back(topic, P)


async def roll_back_and_commit(world: PointerWorld, topic: Topic) -> None:
    await world.roll_back(topic, P)
    await world.decide(topic, P, COMMIT)


async def restart_and_commit(world: PointerWorld, topic: Topic) -> None:
    await restart(world, topic)
    await world.decide(topic, P, COMMIT)


async def restart(world: PointerWorld, topic: Topic) -> None:
    feed = world.feeds.get(topic.log)
    assert feed is not None
    feed.ring.restart(world.topics.generation(topic.log).head)
    world.feeds.grown(feed)


@pytest.mark.parametrize("sees", [False, True])
@pytest.mark.parametrize("calls", range(6))
@pytest.mark.parametrize(
    ("event", "passes"),
    [
        (commit, True), (abort, False), (roll_back, False), (roll_back_and_commit, False),
        (restart_and_commit, True),
    ],
)  # fmt: skip
async def test_no_event_is_missed_between_a_look_up_and_the_sleep(
    held_world: PointerWorld, event: Event, passes: bool, calls: int, sees: bool
) -> None:
    """``calls``: of the store, before the event happens in the middle of the next one. ``sees``:
    the ring has it before that call is answered.
    """
    world = held_world
    topic = await world.create()
    await world.publish(topic, "before")
    await world.direct(topic, P, "a")
    await world.stored(topic, P, "b")
    await world.publish(topic, "after")
    await world.follow(topic)  # the ring begins behind all of them
    reader = await world.follow(topic, Millis(0))
    happened = []

    async def nothing() -> None:
        pass

    async def happen() -> None:
        await event(world, topic)
        happened.append(event)
        if sees:
            await world.advance()

    world.meddle[:] = [nothing] * calls + [happen]
    got = told(await read_all(reader))
    if not happened:
        assert reader.held_by == P
        world.meddle.clear()
        await happen()
    await world.advance()
    got += told(await read_all(reader))
    assert got == ["before", *(["a", "b"] if passes else []), "after"]


@pytest.mark.parametrize("is_live", [False, True])
async def test_a_restart_of_the_ring_a_deletion_and_a_stop_reach_held_streams(
    held_world: PointerWorld, is_live: bool
) -> None:
    world = held_world
    topic = await world.create()
    if is_live:
        await world.follow(topic, None, UNCOMMITTED)
    await world.direct(topic, P, "a")
    await world.publish(topic, "b")
    readers = [await world.follow(topic, Millis(0)) for _ in range(3)]
    await world.advance()
    assert [told(await read_all(each)) for each in readers] == [[]] * 3
    kind = LivePhase if is_live else CatchUp
    assert all(isinstance(each.phase, kind) and each.held_by == P for each in readers)
    await restart(world, topic)
    assert [each.held_by for each in readers] == [None] * 3
    assert [told(await read_all(each)) for each in readers] == [[]] * 3
    assert all(isinstance(each.phase, CatchUp) and each.held_by == P for each in readers)
    readers[0].end()
    assert await awaited(readers[0]) == b""
    world.hub.disconnect(readers[0])
    await world.topics.delete(topic.name)
    await world.advance()
    assert [await awaited(each) for each in readers[1:]] == [b"", b""]
    assert all(each.ending for each in readers)


async def test_a_held_stream_that_disconnects_leaves_nothing_in_the_ring(
    held_world: PointerWorld,
) -> None:
    world = held_world
    topic = await world.create()
    await world.direct(topic, P, "a")
    reader = await world.follow(topic, Millis(0))
    assert await read_all(reader) == b""
    hold = weakref.ref(reader.subscription.ring.holds.of(P))
    kept = hold()
    assert kept is not None
    assert list(kept.waiting) == [reader]
    world.hub.disconnect(reader)
    assert not kept.waiting
    del reader, kept
    gc.collect()
    assert hold() is None

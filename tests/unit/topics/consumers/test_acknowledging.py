"""Acknowledgements: the ids that they may name, and the positions that follow."""

import pytest

from oplogd.errors import (
    ConsumerError,
    ConsumerNotFoundError,
    StaleTermError,
    StoreUnavailableError,
    TopicNotFoundError,
)
from oplogd.model.consumer import ConsumerSettings
from oplogd.model.event_id import Mark, format_id
from oplogd.model.message_id import MessageId
from oplogd.model.names import OPLOG
from oplogd.store import LogBounds
from oplogd.topics.consumers.rules import SeekBody
from tests.kits.models.operations import numbered
from tests.unit.topics.consumers.consumer_worlds import (
    NAME,
    OF_TOPIC,
    TOPIC,
    ConsumerWorld,
    Desk,
    ids_of,
    read,
)


async def seek(desk: Desk, position: str) -> None:
    await desk.consumers.seek(await desk.consumers.find(NAME), SeekBody(position))


async def test_an_older_id_changes_nothing(world: ConsumerWorld) -> None:
    await world.desk.create(start="copy")
    ids = await world.grow(numbered(3))
    await world.desk.connect()
    await world.desk.acknowledge(1, ids[1])
    before = await world.desk.shard()
    world.clock.move(1)
    for older in (ids[0], ids[1]):
        await world.desk.acknowledge(1, older)
    assert await world.desk.shard() == before
    await world.desk.acknowledge(1, ids[2])
    after = await world.desk.shard()
    assert (after.position, after.acknowledged_ms) == (ids[2], world.clock.ms)


async def test_an_id_that_the_stream_here_has_sent_asks_nothing(
    world: ConsumerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.grow(numbered(2))
    await world.desk.create(start="copy")
    stream = await world.desk.connect()
    events = await read(stream, 4)
    asked = 0
    real = world.store.locate

    async def locate(offset: int = 0) -> LogBounds:
        nonlocal asked
        asked += 1
        return await real(offset)

    monkeypatch.setattr(world.store, "locate", locate)
    assert stream.phase.position == events[-1].id
    await world.desk.acknowledge(1, events[-1].id)
    assert asked == 0
    await world.add_desk().acknowledge(1, events[-1].id)
    assert asked == 1


@pytest.mark.parametrize("is_connected", [True, False])
@pytest.mark.parametrize("start", ["copy", "now"])
async def test_an_id_that_the_log_never_had_is_refused(
    world: ConsumerWorld, start: str, is_connected: bool
) -> None:
    ids = await world.grow(numbered(3))
    await world.desk.create(start=start)
    if is_connected:
        stream = await world.desk.connect()
        events = await read(stream, 5 if start == "copy" else 1)
        assert stream.phase.position == events[-1].id == ids[-1]
    else:
        await world.add_desk().connect()
    before = await world.desk.shard()
    ms = world.mark(3).ms
    for wrong in (
        "!" * 24,
        " " * 24,
        "0" * 40,
        "6" * 23,
        ids[2].upper().replace("6", "A"),
        "-1",
        "0",
        "!" * 13,
        format_id(Mark(4, ms)),
        *([] if is_connected else [format_id(Mark(2, ms - 1)), "0" * 23 + "1"]),
    ):
        with pytest.raises(ConsumerError) as raised:
            await world.desk.acknowledge(1, wrong)
        assert raised.value.field == "id", wrong
        assert await world.desk.shard() == before, wrong
        await world.desk.shown()


async def test_rubbish_is_no_place_in_a_replication(world: ConsumerWorld) -> None:
    await world.grow(numbered(3))
    await world.desk.create(start="copy")
    stream = await world.desk.connect()
    await read(stream, 4)
    assert len(stream.phase.position) == 13
    for wrong in ("!" * 13, "1" * 12 + "-", "0" * 13):
        with pytest.raises(ConsumerError, match="id: "):
            await world.desk.acknowledge(1, wrong)
    assert (await world.desk.shard()).place is None


async def test_a_time_that_the_stream_has_not_replicated_is_no_place(world: ConsumerWorld) -> None:
    """Else the same reader would go on behind it, and lack what came before."""
    await world.grow(numbered(1))
    await world.desk.create(start="now")
    stream = await world.desk.connect()
    await world.grow(numbered(3))
    newest = str(world.mark(4).ms)
    await world.desk.acknowledge(1, newest)
    assert (await world.desk.shard()).start == stream.phase.position, "it stays where it was"
    await world.add_desk().acknowledge(1, newest)  # another agent cannot know
    assert (await world.desk.shard()).place == newest
    stream = await world.desk.connect(term=1)
    await read(stream, 3)
    earlier = str(stream.subscription.replicated_ms)
    assert earlier == newest
    await world.desk.acknowledge(1, earlier)
    assert (await world.desk.shard()).place == earlier


async def test_the_term_is_judged_before_the_id(world: ConsumerWorld) -> None:
    await world.create_topic()
    await world.desk.create(OF_TOPIC)
    await world.desk.create(name="operations")
    for name in (NAME, "operations"):
        for _ in range(2):
            await world.desk.connect(name=name)
        for stale in (1, 3):
            for id_ in ("0", "!", "0" * 40, "1"):
                with pytest.raises(StaleTermError, match="has term 2"):
                    await world.desk.acknowledge(stale, id_, name=name)
        with pytest.raises(ConsumerError, match="shard: must be 0 to 0"):
            await world.desk.acknowledge(2, "1", 1, name)
        await world.desk.consumers.delete(name)
        for id_ in ("0", "!", "1"):
            with pytest.raises(ConsumerNotFoundError):
                await world.desk.acknowledge(2, id_, name=name)


async def test_a_known_term_of_a_consumer_with_more_shards_before_is_over(
    world: ConsumerWorld,
) -> None:
    await world.desk.create(ConsumerSettings(OPLOG, shards=4))
    await world.desk.connect(3)
    await world.desk.consumers.delete(NAME)
    await world.desk.create()
    (id_,) = await world.grow(numbered(1))
    for given in (id_, "!"):
        with pytest.raises(ConsumerNotFoundError):
            await world.desk.acknowledge(1, given, 3)


async def test_the_position_of_another_history_gives_way_to_an_older_id(
    world: ConsumerWorld,
) -> None:
    ids = await world.grow(numbered(3))
    beyond = format_id(Mark(10**6, world.clock.ms + 10**6))
    await world.desk.create(start=beyond)
    stream = await world.desk.connect()
    events = await read(stream, 5)
    assert [each.event for each in events] == ["reset", *["insert"] * 3, "live"]
    await world.desk.acknowledge(1, events[2].id)
    assert (await world.desk.shard()).position == beyond, "a new reader copies all of it"
    await world.desk.acknowledge(1, events[-1].id)
    assert (await world.desk.shard()).position == ids[-1] < beyond
    await world.desk.acknowledge(1, ids[0])
    assert (await world.desk.shard()).position == ids[-1]


async def test_a_reader_that_lost_its_shard_meanwhile_does_not_replace_the_position(
    world: ConsumerWorld,
) -> None:
    (id_,) = await world.grow(numbered(1))
    beyond = format_id(Mark(10**6, world.clock.ms + 10**6))
    await world.desk.create(start=beyond)
    await world.desk.connect()
    real = world.store.consumers.acknowledge

    async def take_it_after_the_first(*arguments: object) -> object:
        world.store.consumers.acknowledge = real  # type: ignore[method-assign]
        outcome = await real(*arguments)  # type: ignore[arg-type]
        await world.desk.connect()
        return outcome

    world.store.consumers.acknowledge = take_it_after_the_first  # type: ignore
    with pytest.raises(StaleTermError):
        await world.desk.acknowledge(1, id_)
    assert (await world.desk.shard()).position == beyond


async def test_a_position_that_moved_meanwhile_stays(world: ConsumerWorld) -> None:
    ids = await world.grow(numbered(2))
    beyond = format_id(Mark(10**6, world.clock.ms + 10**6))
    await world.desk.create(start=beyond)
    await world.desk.connect()
    real = world.store.consumers.acknowledge

    async def overtake(*arguments: object) -> object:
        world.store.consumers.acknowledge = real  # type: ignore[method-assign]
        outcome = await real(*arguments)  # type: ignore[arg-type]
        await world.add_desk().acknowledge(1, ids[1])
        return outcome

    world.store.consumers.acknowledge = overtake  # type: ignore
    await world.desk.acknowledge(1, ids[0])
    assert (await world.desk.shard()).position == ids[1]


async def test_another_agent_takes_the_acknowledgements_of_a_term(world: ConsumerWorld) -> None:
    await world.desk.create(ConsumerSettings(OPLOG, shards=2), "copy")
    ids = await world.grow(numbered(2))
    other = world.add_desk()
    for number in (0, 1):
        await world.desk.connect(number)
    await other.acknowledge(1, ids[0], 1)
    assert [each.position for each in (await other.consumers.find(NAME)).shards] == ["0", ids[0]]


async def test_a_failing_store_is_told(
    world: ConsumerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.desk.create()
    (id_,) = await world.grow(numbered(1))
    await world.desk.connect()

    async def away(given: object) -> object:
        raise StoreUnavailableError("away")

    with monkeypatch.context() as patch:
        patch.setattr(world.store.consumers, "acknowledge", away)
        with pytest.raises(StoreUnavailableError, match="away"):
            await world.desk.acknowledge(1, id_)
    await world.desk.acknowledge(1, id_)
    assert (await world.desk.shard()).position == id_


# --- Topics ---


async def test_messages_are_acknowledged_by_their_ids(world: ConsumerWorld) -> None:
    topic = await world.create_topic()
    await world.desk.create(OF_TOPIC, "copy")
    await world.publish(topic, *"abc")
    stream = await world.desk.connect()
    await world.advance_topics()
    ids = [
        str(MessageId(each.ms, each.sequence))
        for each in await world.store.topics.log(topic).read(0, 9)
    ]
    events = await read(stream, 4)
    assert [each for each in ids_of(events) if each in ids] == ids
    await world.desk.acknowledge(1, "0")
    assert (await world.desk.shard()).position == "0"
    assert (await world.desk.shard()).acknowledged_ms == 0
    await world.desk.acknowledge(1, ids[1])
    for wrong in ("1", "!" * 40, "!" * 24, "f" * 40, str(world.clock.ms), "00"):
        with pytest.raises(ConsumerError, match="id: "):
            await world.desk.acknowledge(1, wrong)
    assert (await world.desk.shard()).position == ids[1]
    again = await world.desk.connect()
    assert ids_of(await read(again, 2))[-1] == ids[2]


async def test_a_position_that_has_left_its_topic_gives_way_to_no_older_id(
    world: ConsumerWorld,
) -> None:
    """Its reader gets ``reset``. It has the messages up to the position all the same."""
    topic = await world.store.topics.create(TOPIC, 1)
    await world.desk.create(OF_TOPIC, "copy")
    await world.publish(topic, *"abc")
    ids = [
        str(MessageId(each.ms, each.sequence))
        for each in await world.store.topics.log(topic).read(0, 9)
    ]
    await world.desk.connect()
    await world.desk.acknowledge(1, ids[1])
    world.clock.ms += 60_000
    await world.publish(topic, "d")
    stream = await world.desk.connect()
    assert [each.event for each in await read(stream, 1)] == ["reset"]
    await world.desk.acknowledge(2, ids[0])
    assert (await world.desk.shard()).position == ids[1]


async def test_a_topic_that_was_created_again_begins_anew(world: ConsumerWorld) -> None:
    topic = await world.create_topic()
    await world.desk.create(OF_TOPIC)
    await world.publish(topic, "a")
    stream = await world.desk.connect()
    await world.store.topics.delete(TOPIC)
    assert [each.lag for each in (await world.desk.shown()).shards] == [0]
    with pytest.raises(TopicNotFoundError):
        await world.desk.connect()
    assert (await world.desk.shard()).term == stream.term == 1
    again = await world.create_topic()
    await world.publish(again, "b")
    stream = await world.desk.connect()
    await world.advance_topics()
    events = await read(stream, 2)
    assert [each.event for each in events if each.event] == ["reset", "message"]
    await world.desk.acknowledge(2, events[-1].id)
    assert (await world.desk.shard()).position == events[-1].id

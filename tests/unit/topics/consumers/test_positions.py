"""The positions of named consumers: where they begin, and the ids that they may name."""

import pytest

from oplogd.errors import ConsumerError, PositionError, TopicNotFoundError
from oplogd.model.event_id import Mark, format_id
from oplogd.model.message_id import MessageId, end_id
from oplogd.store import LogBounds
from oplogd.topics.consumers.positions import (
    MessagePositions,
    OplogPositions,
    Positions,
    position_of,
    positions_of,
)
from tests.kits.models.operations import numbered
from tests.kits.stream.worlds import Sizes
from tests.unit.topics.consumers.consumer_worlds import OF_TOPIC, SETTINGS, ConsumerWorld


@pytest.fixture
def sizes() -> Sizes:
    """A log that loses its oldest operations."""
    return Sizes(cap=4_000, ring_entries=4, ring_bytes=10**9, page=4, chunk=10**6)


@pytest.fixture
def oplog(world: ConsumerWorld) -> OplogPositions:
    return OplogPositions(world.store)


async def messages(world: ConsumerWorld) -> MessagePositions:
    return MessagePositions(world.store, await world.create_topic())


async def last_id(positions: MessagePositions) -> MessageId:
    head = (await positions.log.locate()).head
    return MessageId(head.ms, head.sequence)


# --- The oplog ---


async def test_now_is_behind_the_newest_operation(
    world: ConsumerWorld, oplog: OplogPositions
) -> None:
    assert len(await oplog.now()) <= 13, "an empty log has no id"
    ids = await world.grow(numbered(3))
    assert await oplog.now() == ids[-1]


async def test_the_log_knows_its_own_ids_only(world: ConsumerWorld, oplog: OplogPositions) -> None:
    ids = await world.grow(numbered(3))
    for id_ in ids:
        assert await oplog.is_of_log(id_), id_
        assert not await oplog.is_foreign(id_), id_
    head = world.mark(3)
    for foreign in (
        Mark(4, head.ms),
        Mark(4, head.ms + 1),
        Mark(3, head.ms + 1),
        Mark(3, head.ms - 1),
        Mark(0, head.ms),
        Mark((1 << 48) - 1, head.ms + 10**9),
    ):
        assert not await oplog.is_of_log(format_id(foreign)), foreign
        assert await oplog.is_foreign(format_id(foreign)), foreign
    of_the_first_server = "545b55c7cbcc3e3c62eb3d1a"
    assert not await oplog.is_of_log(of_the_first_server)
    assert await oplog.is_foreign(of_the_first_server)


async def test_a_time_is_an_id_of_a_replication(
    world: ConsumerWorld, oplog: OplogPositions
) -> None:
    await world.grow(numbered(1))
    assert await oplog.is_of_log("1"), "the id of reset"
    assert await oplog.is_of_log(str(world.mark(1).ms))
    assert not await oplog.is_of_log(str(world.mark(1).ms + 1))
    assert not await oplog.is_of_log("0")
    assert not await oplog.is_foreign(str(world.mark(1).ms))


@pytest.mark.parametrize(
    "text",
    ["", "x", "-1", "1.0", "1" * 14, "F" * 24, "!" * 24, "0" * 40, "\uff11\uff12", " 1", "1\n"],
)
async def test_rubbish_is_no_position(oplog: OplogPositions, text: str) -> None:
    with pytest.raises(PositionError):
        await oplog.is_of_log(text)


async def test_an_id_that_has_left_the_log_is_still_one_of_it(
    world: ConsumerWorld, oplog: OplogPositions
) -> None:
    ids = [(await world.grow(numbered(1, number)))[0] for number in range(200)]
    assert not await world.is_in_log(1)
    for id_ in (ids[0], ids[50]):
        assert await oplog.is_of_log(id_)
        assert not await oplog.is_foreign(id_)
    later = format_id(Mark(1, world.mark(200).ms))
    assert not await oplog.is_of_log(later), "no operation with this offset had this time"


async def test_an_id_of_the_first_server_is_a_position_and_is_never_sent(
    world: ConsumerWorld, oplog: OplogPositions, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.grow(numbered(3))
    bounds = await world.store.locate()

    async def locate(offset: int = 0) -> LogBounds:
        return bounds._replace(created_ms=0, adopted_ms=bounds.head.ms)

    monkeypatch.setattr(world.store, "locate", locate)
    seconds = f"{bounds.head.ms // 1000 - 9:08x}"
    for id_ in (
        f"{seconds}cbcc3e3c62eb3d1a",
        f"{seconds}03e8000000000002",
        f"{seconds}0001{'0f' * 6}",
    ):
        assert not await oplog.is_foreign(id_), "it is known which operations came later"
        assert not await oplog.is_of_log(id_)


async def test_the_ids_of_a_log_that_was_set_aside_are_foreign(
    world: ConsumerWorld, oplog: OplogPositions
) -> None:
    (before,) = await world.grow(numbered(1))
    await world.new_epoch()
    world.clock.ms += 1000
    for desk in world.desks:
        desk.ring.restart(world.head)
    assert await oplog.is_foreign(before)
    assert not await oplog.is_of_log(before)
    (after,) = await world.grow(numbered(1))
    assert await oplog.is_of_log(after)
    assert not await oplog.is_foreign(after)


# --- Topics ---


async def test_now_is_behind_the_newest_message(world: ConsumerWorld) -> None:
    positions = await messages(world)
    assert positions.topic is not None
    empty = await positions.now()
    await world.publish(positions.topic, "a", "b")
    last = await last_id(positions)
    assert empty < str(last) < await positions.now()
    assert await positions.now() == str(end_id(last.ms, last.sequence))


async def test_a_topic_knows_ids_up_to_its_newest_message(world: ConsumerWorld) -> None:
    positions = await messages(world)
    assert positions.topic is not None
    await world.publish(positions.topic, "a", "b")
    last = await last_id(positions)
    for id_ in (last, last._replace(sequence=0), end_id(last.ms, last.sequence)):
        assert await positions.is_of_log(str(id_))
        assert not await positions.is_foreign(str(id_))
    for beyond in (last._replace(sequence=last.sequence + 1), last._replace(ms=last.ms + 1)):
        assert not await positions.is_of_log(str(beyond))
        assert await positions.is_foreign(str(beyond))
    for time in ("0", "1", str(last.ms)):
        assert not await positions.is_of_log(time), "a topic sends no times"
        assert not await positions.is_foreign(time)


async def test_a_position_in_an_earlier_topic_of_the_name_gives_way_to_newer_ids_only(
    world: ConsumerWorld,
) -> None:
    before = await messages(world)
    assert before.topic is not None
    await world.publish(before.topic, "a")
    last = await last_id(before)
    await world.store.topics.delete(before.topic.name)
    with pytest.raises(TopicNotFoundError):
        await before.now()
    after = await messages(world)
    assert after.topic is not None
    assert not await after.is_foreign(str(last))
    assert await after.now() > str(last)
    await world.publish(after.topic, "b")
    assert str(await last_id(after)) > str(last)


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "1" * 14, "0" * 24, "F" * 40, "!" * 40, "0" * 41, "\uff11\uff12", "1\n"]
)
async def test_rubbish_is_no_position_in_a_topic(world: ConsumerWorld, text: str) -> None:
    positions = await messages(world)
    with pytest.raises(PositionError):
        await positions.is_of_log(text)


# --- Both ---


async def test_a_client_names_now_copy_an_id_or_a_time(world: ConsumerWorld) -> None:
    (id_,) = await world.grow(numbered(1))
    of_topic = await messages(world)
    of_both: list[Positions] = [OplogPositions(world.store), of_topic]
    for positions in of_both:
        assert await position_of("now", positions, "start") == await positions.now()
        assert await position_of("copy", positions, "start") == "0"
        assert await position_of("1796061390687", positions, "start") == "1796061390687"
        for wrong in ("", "Now", "copy ", "yesterday", "-1", "0x1"):
            with pytest.raises(ConsumerError) as raised:
                await position_of(wrong, positions, "start")
            assert raised.value.field == "start"
    assert await position_of(id_, of_both[0], "start") == id_
    with pytest.raises(ConsumerError, match="position: a message id"):
        await position_of(id_, of_topic, "position")


async def test_the_settings_name_the_log(world: ConsumerWorld) -> None:
    with pytest.raises(TopicNotFoundError):
        await positions_of(OF_TOPIC, world.store, world.known)
    topic = await world.create_topic()
    assert (await positions_of(OF_TOPIC, world.store, world.known)).topic == topic
    assert (await positions_of(SETTINGS, world.store, world.known)).topic is None

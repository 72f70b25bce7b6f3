"""The lags of named consumers: exact in memory, estimated beyond it."""

import random
from zlib import crc32

import pytest

from oplogd.model.consumer import ConsumerSettings
from oplogd.model.event_id import EventId, format_id, parse_position
from oplogd.model.message import of_payload
from oplogd.model.message_id import MessageId
from oplogd.model.names import OPLOG
from oplogd.model.operation import decode_data
from oplogd.model.transaction import Isolation
from oplogd.topics.consumers.lags import filter_of
from oplogd.topics.consumers.rules import ShardShown
from tests.kits.models.operations import numbered, operation
from tests.kits.stream.worlds import Sizes
from tests.unit.topics.consumers.consumer_worlds import (
    OF_TOPIC,
    SETTINGS,
    TOPIC,
    ConsumerWorld,
)

RING = 40


@pytest.fixture
def sizes() -> Sizes:
    return Sizes(cap=10**9, ring_entries=RING, ring_bytes=10**9, page=500, chunk=10**6)


async def connected(world: ConsumerWorld, settings: ConsumerSettings) -> None:
    """Create a consumer at the beginning, and let a reader of each shard connect."""
    await world.desk.create(settings, "copy")
    for number in range(settings.shards):
        await world.desk.connect(number)


async def lag_at(world: ConsumerWorld, position: str, shard: int = 0) -> ShardShown:
    await world.store.consumers.seek("search", [shard], position)
    return (await world.desk.shown()).shards[shard]


def behind(world: ConsumerWorld, settings: ConsumerSettings, shard: int, id_: str) -> list[int]:
    """Return the times of the operations of a shard behind an id."""
    at = parse_position(id_)
    assert isinstance(at, EventId)
    filter_ = filter_of(settings, shard)
    return [
        entry.ms
        for entry in world.history[at.offset :]
        if filter_.matches(entry.event, decode_data(entry.data))
    ]


@pytest.mark.parametrize(
    "settings",
    [
        SETTINGS,
        ConsumerSettings(OPLOG, shards=3),
        ConsumerSettings(OPLOG, frozenset({"a", "b"})),
        ConsumerSettings(OPLOG, parents=frozenset({"p", "q"}), shards=2),
        ConsumerSettings(OPLOG, frozenset({"a"}), frozenset({"p"}), shards=4),
    ],
)
async def test_in_memory_the_lag_is_the_number_of_operations_of_the_shard(
    world: ConsumerWorld, settings: ConsumerSettings
) -> None:
    await connected(world, settings)
    draw = random.Random(5)
    made = [
        operation(
            draw.choice(["insert", "delete"]),
            draw.choice("abc"),
            str(draw.randrange(9)),
            draw.sample("pqr", draw.randrange(3)),
        )
        for _ in range(RING)
    ]
    ids = [(await world.grow([each]))[0] for each in made]
    world.clock.ms += 5000
    for id_ in ids:
        for number in range(settings.shards):
            shown = await lag_at(world, id_, number)
            times = behind(world, settings, number, id_)
            assert shown.lag == len(times), (id_, number)
            assert not shown.estimated
            seconds = (world.clock.ms - times[0]) / 1000 if times else 0.0
            assert shown.lag_seconds == round(seconds, 3), (id_, number)


async def test_at_the_head_there_is_no_lag_whoever_asks(world: ConsumerWorld) -> None:
    settings = ConsumerSettings(OPLOG, shards=2)
    await world.desk.create(settings)
    assert [each.lag for each in (await world.desk.shown()).shards] == [0, 0]
    ids = await world.grow(numbered(3 * RING))
    shown = await lag_at(world, ids[-1])
    assert (shown.lag, shown.lag_seconds, shown.estimated) == (0, 0.0, False)


async def test_beyond_memory_a_shard_has_its_share_of_all_operations(world: ConsumerWorld) -> None:
    settings = ConsumerSettings(OPLOG, frozenset({"video"}), shards=3)
    await connected(world, settings)
    ids = await world.grow(numbered(2 * RING))
    world.clock.ms += 5000
    at = 10
    shown = await lag_at(world, ids[at - 1], 1)
    assert (shown.lag, shown.estimated) == ((2 * RING - at + 2) // 3, True)
    assert shown.lag_seconds == (world.clock.ms - world.mark(at).ms) / 1000
    for position in ("0", "1"):
        shown = await lag_at(world, position, 1)
        assert (shown.lag, shown.estimated) == ((2 * RING + 2) // 3, True)


async def test_without_a_reader_of_the_shard_here_the_lag_is_estimated(
    world: ConsumerWorld,
) -> None:
    settings = ConsumerSettings(OPLOG, shards=2)
    await world.desk.create(settings, "copy")
    ids = await world.grow(numbered(9))
    shown = await lag_at(world, ids[3])
    assert (shown.lag, shown.estimated) == (3, True)
    await world.desk.connect()
    await world.grow(numbered(5, 100))
    assert (await lag_at(world, ids[3])).estimated, "the reader came later"
    head = format_id(world.head)
    await world.grow(numbered(6, 200))
    shown = await lag_at(world, head)
    assert (shown.lag, shown.estimated) == (len(behind(world, settings, 0, head)), False)


async def test_an_agent_whose_memory_is_behind_estimates(world: ConsumerWorld) -> None:
    await connected(world, SETTINGS)
    (first, *_) = await world.grow(numbered(3))
    await world.append(numbered(2, 10))  # no agent has read them
    shown = await lag_at(world, first)
    assert (shown.lag, shown.estimated) == (4, True)


async def test_what_has_left_the_log_counts_no_more_for_a_copy(world: ConsumerWorld) -> None:
    world.store.shrink(4_000)
    await world.desk.create(SETTINGS, "copy")
    for number in range(200):
        await world.grow(numbered(1, number))
    bounds = await world.store.locate()
    assert bounds.oldest is not None
    assert bounds.oldest.offset > 1
    shown = await lag_at(world, "0")
    assert shown.lag == 200 - bounds.oldest.offset + 1
    foreign = format_id(world.head._replace(offset=10**9))
    assert (await lag_at(world, foreign)).lag == shown.lag, "it will get all that is there"


async def test_a_log_that_is_full_tells_when_the_next_operation_leaves_it(
    world: ConsumerWorld,
) -> None:
    await world.desk.create(SETTINGS, "copy")
    ids = await world.grow(numbered(1))
    assert (await world.desk.shown()).shards[0].left_seconds is None
    world.store.shrink(4_000)
    for number in range(200):
        world.clock.ms += 999
        ids += await world.grow(numbered(1, number))
    oldest = (await world.store.locate()).oldest
    assert oldest is not None
    for kept in (0, 5, 10):
        shown = await lag_at(world, ids[oldest.offset + kept - 1])
        assert shown.left_seconds == pytest.approx(kept + 1, abs=0.01)
    assert (await lag_at(world, "0")).left_seconds == 0
    assert (await lag_at(world, ids[-1])).left_seconds is None


async def test_a_time_is_a_position_behind_all_before_it(world: ConsumerWorld) -> None:
    await world.desk.create(SETTINGS)
    ids = [(await world.grow(numbered(1, number)))[0] for number in range(9)]
    shown = await lag_at(world, str(world.mark(4).ms))
    assert shown.lag == len(ids) - 3


# --- Topics ---


@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("shards", [1, 3])
async def test_the_lag_in_a_topic_is_the_number_of_messages_of_the_shard(
    world: ConsumerWorld, shards: int, isolation: Isolation
) -> None:
    topic = await world.create_topic()
    settings = ConsumerSettings(TOPIC, shards=shards, isolation=isolation)
    await connected(world, settings)
    await world.advance_topics()
    keys = [f"k{number % 7}" for number in range(20)]
    for key in keys:
        await world.publish(topic, of_payload(b"p", key=key))
    world.clock.ms += 5000
    entries = await world.store.topics.log(topic).read(0, 100)
    assert len({crc32(key.encode()) % shards for key in keys}) == shards
    for at, entry in enumerate(entries, 1):
        position = str(MessageId(entry.ms, entry.sequence))
        lags = [(await lag_at(world, position, number)) for number in range(shards)]
        assert not any(each.estimated for each in lags)
        for number, shown in enumerate(lags):
            rest = [
                later
                for later, key in zip(entries[at:], keys[at:], strict=True)
                if crc32(key.encode()) % shards == number
            ]
            assert shown.lag == len(rest)
            seconds = (world.clock.ms - rest[0].ms) / 1000 if rest else 0.0
            assert shown.lag_seconds == round(seconds, 3)


async def test_without_a_reader_the_lag_in_a_topic_is_estimated(world: ConsumerWorld) -> None:
    topic = await world.create_topic()
    await world.desk.create(OF_TOPIC._replace(shards=2), "copy")
    assert [each.lag for each in (await world.desk.shown()).shards] == [0, 0]
    await world.publish(topic, *"abcde")
    world.clock.ms += 999
    shown = await lag_at(world, "0")
    assert (shown.lag, shown.estimated) == (3, True)
    (second,) = await world.store.topics.log(topic).read(1, 1)
    shown = await lag_at(world, str(MessageId(second.ms, second.sequence)))
    assert (shown.lag, shown.lag_seconds, shown.estimated) == (2, 1.0, True)

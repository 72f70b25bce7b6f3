"""Streams of committed readers: records at their commit, in pages, and the positions within it."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from oplogd.errors import StoreUnavailableError
from oplogd.model.event_id import Mark, Millis
from oplogd.model.message_id import MessageId, end_id, parse_message_id
from oplogd.model.transaction import Isolation
from oplogd.store.topics import Topic, TopicEntry, TopicLog, TopicRecord
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.phases.catch_up import Expansion
from oplogd.stream.phases.record_pages import PAGE
from oplogd.stream.phases.start import TopicPosition
from oplogd.stream.ring.frames import HEARTBEAT, checkpoint_frame
from tests.kits.stream.reading import awaited
from tests.kits.stream.topic_worlds import (
    TTL,
    TopicWorld,
    last_id_of,
    message,
    next_chunk,
    read_all,
    told,
)
from tests.kits.stream.worlds import WatchedConsumer
from tests.kits.topics.memory import MemoryTopics
from tests.unit.stream.transactions.transacted_topics import COMMITTED, UNCOMMITTED, Transacting

# More records than the ring keeps of a commit, and than a page has.
LARGE = 2 * PAGE + 10


class WatchedTopics(MemoryTopics):
    """``limits``: of the calls of ``expand``. ``cannot_expand``: raised by them if set."""

    def __init__(self, clock: Callable[[], int], topic_ttl: int) -> None:
        super().__init__(clock, topic_ttl)
        self.limits: list[int] = []
        self.cannot_expand: StoreUnavailableError | None = None

    def log(self, topic: Topic) -> TopicLog:
        return _WatchedLog(self, super().log(topic))


class _WatchedLog:
    def __init__(self, topics: WatchedTopics, log: TopicLog) -> None:
        self._topics = topics
        self.read = log.read
        self.locate = log.locate
        self.decisions = log.decisions
        self._expand = log.expand

    async def expand(self, commit: TopicEntry, after: int, limit: int) -> list[TopicRecord]:
        self._topics.limits.append(limit)
        if self._topics.cannot_expand is not None:
            raise self._topics.cannot_expand
        return await self._expand(commit, after, limit)


@pytest.fixture
async def topic_world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TopicWorld]:
    monkeypatch.setattr("oplogd.stream.hub.StreamConsumer", WatchedConsumer)
    world = TopicWorld(WatchedTopics)
    yield world
    await world.close()


def watched(world: TopicWorld) -> WatchedTopics:
    assert isinstance(world.topics, WatchedTopics)
    return world.topics


async def follow(
    world: TopicWorld,
    topic: Topic,
    position: TopicPosition | None = None,
    isolation: Isolation = COMMITTED,
    *,
    checkpoints: bool = False,
) -> StreamConsumer:
    return await world.hub.connect_topic(
        topic, position, checkpoints=checkpoints, address="host:1", isolation=isolation
    )


async def commit(world: TopicWorld, topic: Topic, *texts: str) -> Mark:
    """Commit a transaction of these records. Return the mark of its COMMIT entry."""
    transacting = Transacting(world)
    writer = await transacting.begin()
    await writer.write(topic, *texts)
    return (await writer.commit())[topic.log]


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


async def test_records_are_seen_at_their_write_or_at_their_commit(topic_world: TopicWorld) -> None:
    world = topic_world
    one, two = await world.create("one"), await world.create("two")
    transacting = Transacting(world)
    first, second = await transacting.begin(), await transacting.begin()
    gone = await transacting.begin()
    await first.write(one, "a")
    readers = [
        await follow(world, topic, None, isolation)
        for topic in (one, two)
        for isolation in (UNCOMMITTED, COMMITTED)
    ]
    await second.write(one, "b")
    await gone.write(one, "never")
    await first.write(two, "c")
    await second.write(two, "d")
    await world.advance()
    at_write = [told(await read_all(reader)) for reader in readers]
    assert at_write == [["b", "never"], [], ["c", "d"], []]
    await world.publish(one, "plain")
    for writer in (second, first):
        await writer.commit()
    await gone.abort()
    await world.advance()
    at_commit = [told(await read_all(reader)) for reader in readers]
    assert at_commit == [["plain"], ["plain", "b", "a"], [], ["d", "c"]]
    assert [reader.sent for reader in readers] == [3, 3, 2, 2]
    assert {reader.lag() for reader in readers} == {(0, 0)}


@pytest.mark.parametrize("count", [3, LARGE])
@pytest.mark.parametrize("is_live", [True, False])
async def test_a_reader_resumes_at_every_position(
    topic_world: TopicWorld, count: int, is_live: bool
) -> None:
    """``is_live``: the ring holds all entries, otherwise none of them."""
    world = topic_world
    topic = await world.create()
    opener = await follow(world, topic) if is_live else None
    (before,) = await world.publish(topic, "before")
    mark = await commit(world, topic, *numbers(count))
    (after,) = await world.publish(topic, "after")
    await world.advance()
    whole = await read_all(opener or await follow(world, topic, Millis(0)))
    assert told(whole) == ["before", *numbers(count), "after"]
    blocks = whole.split(b"\n\n")[:-1]
    for place in {0, 1, 2, 3, count - 1, count, count + 1, PAGE - 1, PAGE, PAGE + 1}:
        if place < len(blocks):
            last_id = last_id_of(blocks[place])
            reader = await follow(world, topic, parse_message_id(last_id))
            assert (await read_all(reader)).split(b"\n\n")[:-1] == blocks[place + 1 :]
    ends = {
        MessageId(mark.ms, mark.sequence): [*numbers(count), "after"],
        end_id(mark.ms, mark.sequence): ["after"],
        end_id(before.ms, before.sequence): [*numbers(count), "after"],
        end_id(after.ms, after.sequence): [],
    }
    for position, expected in ends.items():
        assert told(await read_all(await follow(world, topic, position))) == expected
    inside = parse_message_id(last_id_of(blocks[1]))
    assert told(await read_all(await follow(world, topic, inside, UNCOMMITTED))) == ["after"]


async def test_a_large_commit_is_read_in_pages_with_checkpoints_and_heartbeats(
    topic_world: TopicWorld,
) -> None:
    world = topic_world
    topic = await world.create()
    reader = await follow(world, topic)
    assert await read_all(reader) == b""
    mark = await commit(world, topic, *numbers(LARGE))
    await world.publish(topic, "after")
    await world.advance()
    assert reader.lag() == (LARGE + 1, mark.ms)
    assert watched(world).limits == []
    got: list[str] = []
    for page in (PAGE, PAGE, 10):
        chunk = await next_chunk(reader)
        assert len(told(chunk)) == page
        got += told(chunk)
        assert reader.sent == len(got)
        assert reader.lag().operations == LARGE + 1 - len(got)
        assert reader.phase.is_behind()
        expected = last_id_of(chunk) if len(got) < LARGE else str(end_id(mark.ms, mark.sequence))
        assert reader.phase.checkpoint() == checkpoint_frame(expected)
    assert got == numbers(LARGE)
    assert watched(world).limits == [PAGE] * 3
    assert told(await read_all(reader)) == ["after"]
    assert world.hub.counters.to_store == 0


async def test_a_heartbeat_comes_while_records_are_read(topic_world: TopicWorld) -> None:
    world = topic_world
    topic = await world.create()
    mark = await commit(world, topic, *numbers(LARGE))
    position = MessageId(mark.ms, mark.sequence)
    reader = await follow(world, topic, position, checkpoints=True)
    assert isinstance(reader.phase, Expansion)
    assert await next_chunk(reader) == checkpoint_frame(str(position))
    reader.heartbeat = 0
    await reader.subscription.read_slots.entries.acquire()
    await reader.subscription.read_slots.entries.acquire()
    assert await _beat(reader) == HEARTBEAT
    reader.heartbeat = 1e9
    for _ in range(2):
        reader.subscription.read_slots.entries.release()
    assert told(await read_all(reader)) == numbers(LARGE)


async def _beat(reader: StreamConsumer) -> bytes:
    """Return the next chunk of a reader whose step cannot go on. Wakes it like a tick."""
    reading = asyncio.ensure_future(awaited(reader))
    while not reading.done():
        await asyncio.sleep(0)
        reader.wake()
    return reading.result()


async def test_a_small_commit_is_read_once_for_all_readers(topic_world: TopicWorld) -> None:
    world = topic_world
    topic = await world.create()
    readers = [await follow(world, topic) for _ in range(3)]
    await commit(world, topic, "a", "b")
    await world.advance()
    assert len(watched(world).limits) == 1
    chunks = [await read_all(reader) for reader in readers]
    assert [told(chunk) for chunk in chunks] == [["a", "b"]] * 3
    assert len(watched(world).limits) == 1
    assert [reader.lag() for reader in readers] == [(0, 0)] * 3


async def test_commits_are_not_read_without_committed_readers(topic_world: TopicWorld) -> None:
    world = topic_world
    topic = await world.create()
    uncommitted = await follow(world, topic, None, UNCOMMITTED)
    before = uncommitted.phase.position
    await commit(world, topic, "a", "b")
    await world.advance()
    assert told(await read_all(uncommitted)) == ["a", "b"]
    assert watched(world).limits == []
    late = await follow(world, topic, parse_message_id(before))
    assert late.lag().operations >= 2
    assert told(await read_all(late)) == ["a", "b"]
    assert watched(world).limits == [PAGE]


async def test_records_with_an_own_time_to_live_leave_after_their_commit(
    topic_world: TopicWorld,
) -> None:
    world = topic_world
    topic = await world.create()
    readers = [await follow(world, topic) for _ in range(2)]
    writer = await Transacting(world).begin()
    await writer.write(topic, message("short", 1), "long")
    world.clock.ms += 5_000
    await writer.commit()
    await world.advance()
    world.clock.ms += 1_000
    assert told(await read_all(readers[0])) == ["short", "long"]
    world.clock.ms += 1
    assert told(await read_all(readers[1])) == ["long"]


async def test_the_time_of_a_record_is_that_of_its_commit(topic_world: TopicWorld) -> None:
    world = topic_world
    topic = await world.create()
    writer = await Transacting(world).begin()
    await writer.write(topic, "a")
    world.clock.ms += 10
    mark = (await writer.commit())[topic.log]
    for ms, expected in ((mark.ms - 10, ["a"]), (mark.ms, ["a"]), (mark.ms + 1, [])):
        assert told(await read_all(await follow(world, topic, Millis(ms)))) == expected


@pytest.mark.parametrize("reached", [0, 1])
async def test_the_rest_of_a_commit_that_has_left_the_log_is_a_gap(
    topic_world: TopicWorld, reached: int
) -> None:
    """``reached``: pages that a stream of the commit has got before."""
    world = topic_world
    topic = await world.create()
    mark = await commit(world, topic, *numbers(LARGE))
    whole = await read_all(await follow(world, topic, Millis(0)))
    last_id, inside = last_id_of(whole), whole.split(b"\n")[0].removeprefix(b"id: ").decode()
    reader = await follow(world, topic, MessageId(mark.ms, mark.sequence))
    for _ in range(reached):
        assert len(told(await next_chunk(reader))) == PAGE
    world.clock.ms += TTL * 1000 + 1
    await world.publish(topic, "next")
    await world.advance()
    assert told(await read_all(reader)) == ["reset", "next"]
    expected = {inside: ["reset", "next"], last_id: ["next"]}
    expected[str(end_id(mark.ms, mark.sequence))] = ["next"]
    for id_, texts in expected.items():
        assert told(await read_all(await follow(world, topic, parse_message_id(id_)))) == texts


async def test_missing_records_are_a_gap_once(topic_world: TopicWorld) -> None:
    world = topic_world
    topic = await world.create()
    await commit(world, topic, *numbers(LARGE))
    await world.publish(topic, "next")
    reader = await follow(world, topic, Millis(0))
    assert len(told(await next_chunk(reader))) == PAGE
    world.topics.records.clear()
    assert told(await read_all(reader)) == ["reset", "next"]


async def test_readers_wait_only_for_records_that_the_store_cannot_read(
    topic_world: TopicWorld,
) -> None:
    world = topic_world
    topic = await world.create()
    committed = await follow(world, topic)
    uncommitted = await follow(world, topic, None, UNCOMMITTED)
    watched(world).cannot_expand = StoreUnavailableError("no transactions")
    await commit(world, topic, "a")
    await world.publish(topic, "plain")
    await world.advance()
    assert told(await read_all(uncommitted)) == ["a", "plain"]
    with pytest.raises(StoreUnavailableError):
        await read_all(committed)
    watched(world).cannot_expand = None
    assert told(await read_all(committed)) == ["a", "plain"]


async def test_a_stream_ends_when_its_topic_is_deleted_within_a_commit(
    topic_world: TopicWorld,
) -> None:
    world = topic_world
    topic = await world.create()
    mark = await commit(world, topic, *numbers(LARGE))
    reader = await follow(world, topic, MessageId(mark.ms, mark.sequence))
    assert len(told(await next_chunk(reader))) == PAGE
    await world.topics.delete(topic.name)
    assert await read_all(reader) == b""
    assert reader.ending


async def test_a_stream_goes_on_within_a_commit_when_its_ring_restarts(
    topic_world: TopicWorld,
) -> None:
    world = topic_world
    topic = await world.create()
    mark = await commit(world, topic, *numbers(LARGE))
    reader = await follow(world, topic, MessageId(mark.ms, mark.sequence))
    assert len(told(await next_chunk(reader))) == PAGE
    reader.subscription.ring.restart(mark)
    assert reader.phase.checkpoint() == b""
    assert told(await read_all(reader)) == numbers(LARGE)[PAGE:]


async def test_many_small_commits_are_caught_up_with_few_reads(topic_world: TopicWorld) -> None:
    world = topic_world
    topic = await world.create()
    transacting = Transacting(world)
    for number in numbers(300):
        writer = await transacting.begin()
        await writer.write(topic, number)
        await writer.commit()
    before = world.topics.reads
    reader = await follow(world, topic, Millis(0))
    assert told(await read_all(reader)) == numbers(300)
    assert world.topics.reads - before <= 3
    assert len(watched(world).limits) == 300

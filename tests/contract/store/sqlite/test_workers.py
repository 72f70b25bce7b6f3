"""Two workers on one file: the stores of both, in one process."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from oplogd.errors import StoreUnavailableError, TopicNotFoundError
from oplogd.shared.turn import Turns
from oplogd.store.sqlite import SqliteStore
from oplogd.store.sqlite.log import hand_over
from oplogd.store.sqlite.topics import news
from oplogd.store.sqlite.upkeep import bounds
from oplogd.store.topics import MIN_MAX_BYTES, Topic
from oplogd.stream.feeds import Feeds
from oplogd.stream.topic_follower import TopicFollower
from oplogd.topics.codec.codec import PollRequest
from oplogd.topics.counters import TopicCounters
from oplogd.topics.known import KnownTopics
from oplogd.topics.poller import Poller
from oplogd.workers.workers import Worker, Workers
from tests.kits.clock.virtual import VirtualClock
from tests.kits.models.operations import numbered
from tests.kits.processes.logged import DEADLINE
from tests.kits.store.kits import contents, wanted
from tests.kits.store.messages import NAME, publish
from tests.kits.store.sqlite_files import opened

Patch = pytest.MonkeyPatch

HOUR = 3600.0
TTL = 100


class Side:
    """The topics of one worker. Its follower looks only when ``follow`` is called."""

    def __init__(self, worker: Worker, store: SqliteStore, clock: VirtualClock) -> None:
        self.store, self.topics = store, store.topics
        self.feeds = Feeds(
            store.topics, lambda _: None, max_bytes=1 << 30, clock=clock.clock,
            shared=worker.heads(),
        )  # fmt: skip
        self.follower = TopicFollower(store.topics, self.feeds)
        known = KnownTopics(store.topics)
        self.poller = Poller(store.topics, known, TopicCounters(), 1000, self.feeds)

    async def publish(self, topic: Topic, *texts: str) -> None:
        placed = await publish(self.topics, topic, *texts)
        self.feeds.acknowledged(topic.log, placed.last.offset)

    async def poll(self) -> list[str]:
        answer = await self.poller.poll(NAME, PollRequest())
        return [each.data for each in answer.messages]

    def peeks(self, topic: Topic) -> bool:
        """Return whether a poll would be answered from memory."""
        return self.feeds.peek(topic, None, 1000, 1 << 20) is not None

    async def follow(self, topic: Topic) -> None:
        """Follow until polls are answered from memory."""
        async with asyncio.timeout(DEADLINE):
            while not self.peeks(topic):
                await self.follower.advance(0.2)


class Pair(NamedTuple):
    """``a`` and ``b`` have followed an empty topic."""

    a: Side
    b: Side
    topic: Topic
    clock: VirtualClock


@pytest.fixture
async def pair(path: Path, no_fsync: None) -> AsyncIterator[Pair]:
    workers, clock = Workers(2), VirtualClock()
    places = [Worker(workers, number) for number in range(2)]
    async with (
        opened(path, clock, worker=places[0]) as first,
        opened(path, clock, worker=places[1]) as second,
    ):
        a, b = Side(places[0], first, clock), Side(places[1], second, clock)
        topic = await a.topics.create(NAME, TTL)
        for side in (a, b):
            await side.poll()
            await side.follow(topic)
        yield Pair(a, b, topic, clock)
        for side in (a, b):
            await side.follower.close()


async def test_a_poll_at_one_worker_has_what_another_acknowledged(pair: Pair) -> None:
    a, b, topic, _ = pair
    for number in range(5):
        await a.publish(topic, f"at a {number}")
        assert not b.peeks(topic)
        assert len(await b.poll()) == 2 * number + 1
        await b.publish(topic, f"at b {number}")
        assert len(await a.poll()) == 2 * number + 2
    for side in (a, b):
        await side.follow(topic)
        assert len(await side.poll()) == 10


async def test_a_poll_waits_for_memory_of_what_another_worker_acknowledged(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, topic, _ = pair
    monkeypatch.setattr("oplogd.stream.topic_feed.REACH_SECONDS", HOUR)
    await a.publish(topic, "at a")
    poll = asyncio.create_task(b.feeds.peek_soon(topic, None, 1000, 1 << 20))
    await asyncio.sleep(0)
    assert not poll.done()
    async with asyncio.timeout(DEADLINE):
        while not poll.done():
            await b.follower.advance(0.2)
    found = poll.result()
    assert found is not None
    assert len(found.messages) == 1


async def test_a_poll_at_one_worker_has_what_another_showed_a_reader(pair: Pair) -> None:
    a, b, topic, _ = pair
    await publish(a.topics, topic, "not acknowledged yet")
    assert len(await a.poll()) in (0, 1)  # by memory, which may lack it
    a.feeds.end(topic.log)
    assert len(await a.poll()) == 1
    assert len(await b.poll()) == 1


async def test_a_poll_at_one_worker_has_what_another_shows_from_memory(pair: Pair) -> None:
    a, b, topic, _ = pair
    await publish(a.topics, topic, "not acknowledged yet")
    while not await a.poll():
        await a.follower.advance(0.2)
    assert a.peeks(topic)
    assert len(await b.poll()) == 1


async def test_a_topic_deleted_at_one_worker_is_gone_at_another(pair: Pair) -> None:
    a, b, topic, _ = pair
    await a.publish(topic, "x")
    await b.follow(topic)
    assert len(await b.poll()) == 1
    await a.topics.delete(NAME)
    a.feeds.deleted()
    with pytest.raises(TopicNotFoundError):
        await b.poll()
    again = await a.topics.create(NAME, TTL)
    assert await b.poll() == []
    await b.publish(again, "y")
    assert len(await b.poll()) == 1


async def test_a_time_to_live_changed_at_one_worker_counts_at_another(pair: Pair) -> None:
    a, b, topic, clock = pair
    await a.publish(topic, "x")
    await b.follow(topic)
    clock.move(5)
    a.feeds.changed(await a.topics.change(NAME, 1))
    assert not b.peeks(topic)
    assert await b.poll() == []
    await b.follow(topic)
    assert await b.poll() == []


async def test_a_log_followed_at_one_worker_is_followed_for_all(pair: Pair) -> None:
    a, b, topic, _ = pair
    b.feeds.end(topic.log)
    assert b.feeds.is_followed(topic.log)
    a.feeds.end(topic.log)
    assert not b.feeds.is_followed(topic.log)


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_the_bell_wakes_the_follower_of_another_worker(
    pair: Pair, monkeypatch: Patch, *, is_deleted: bool
) -> None:
    a, b, topic, _ = pair
    monkeypatch.setattr(hand_over, "POLL_SECONDS", HOUR)
    monkeypatch.setattr(news, "POLL_SECONDS", HOUR)
    await b.store.follow(0, 1, 0.0)
    following = asyncio.create_task(b.store.follow(0, 10, HOUR))
    seen = (await b.topics.news({topic.log: 0}, 0.0)).version
    telling = asyncio.create_task(b.topics.news({topic.log: 0}, HOUR))
    async with asyncio.timeout(DEADLINE):
        await a.store.append(made := numbered(2))
        assert contents(await following) == wanted(made)
        await a.publish(topic, "x")
        assert (await telling).logs == [topic.log]
        telling = asyncio.create_task(b.topics.news({topic.log: 1}, HOUR))
        await a.topics.delete(NAME) if is_deleted else await a.topics.change(NAME, 1)
        assert (await telling).version != seen


async def test_a_bound_set_at_one_worker_counts_for_appends_at_another(
    pair: Pair, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(bounds, "KNOWN_SECONDS", HOUR)
    a, b, topic, _ = pair
    await b.publish(topic, "x")
    await b.topics.shrink()
    a.feeds.changed(await a.topics.change(NAME, TTL, max_bytes=MIN_MAX_BYTES))
    for _ in range(40):
        await b.publish(topic, "x" * 60_000)
    front = (await b.topics.log(topic).locate()).front.offset
    assert 40 - front <= MIN_MAX_BYTES // 60_000


async def test_a_successor_waits_for_a_file_that_is_gone_and_makes_no_new_one(path: Path) -> None:
    workers, made = Workers(2), numbered(2)
    async with opened(path, worker=Worker(workers, 0)) as first:
        await first.append(made[:1])
        workers.began(0, 1)
        moved = await asyncio.to_thread(path.rename, path.with_name("moved"))
        async with opened(path, worker=Worker(workers, 1)) as successor:
            with pytest.raises(StoreUnavailableError, match="is gone"):
                await successor.append(made[1:])
            assert not await asyncio.to_thread(path.exists)
            await asyncio.to_thread(moved.rename, path)
            await successor.append(made[1:])
            assert contents(await successor.read(0, 10)) == wanted(made)


async def test_a_wait_for_the_turn_ends_as_a_wait_for_a_lock(path: Path) -> None:
    workers = Workers(2)
    assert workers.store is not None
    turns = workers.store.turns = Turns(2, 0.05)
    waits: list[float] = []
    turns.each[0].observe = waits.append
    made = numbered(2)
    async with opened(path, worker=Worker(workers, 0)) as store:
        waits.clear()
        refused = pytest.raises(StoreUnavailableError, match="another process holds a lock on it")
        with turns.each[1], refused:
            await store.append(made[:1])
        assert waits == []
        await store.append(made[1:])
        assert len(waits) == 1
        assert contents(await store.read(0, 10)) == wanted(made[1:])

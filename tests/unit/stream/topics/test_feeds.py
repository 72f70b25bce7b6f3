"""The feeds of topics: their life, the bound of all rings, and the task that follows them."""

import asyncio
import gc
import tracemalloc
from collections.abc import Collection, Mapping

import pytest

from oplogd.errors import StoreUnavailableError
from oplogd.model.names import TopicName
from oplogd.store.topics import MessageBatch, News, Topic
from oplogd.stream.feeds import IDLE_SECONDS
from oplogd.stream.recent_polls import POLL_SECONDS
from oplogd.stream.topic_follower import follow_topics
from tests.kits.stream.reading import awaited
from tests.kits.stream.topic_worlds import TopicWorld, message, read_all, told
from tests.kits.stream.worlds import DEADLINE
from tests.unit.stream.topics.peeks import peek, polled

# --- Life ---


async def test_a_feed_lives_while_it_has_a_stream_and_some_time_longer(
    topic_world: TopicWorld,
) -> None:
    topic = await topic_world.create()
    consumer = await topic_world.connect(topic)
    await topic_world.publish(topic, "a")
    topic_world.clock.seconds += 10 * IDLE_SECONDS
    await topic_world.advance()
    assert topic_world.feeds.stats.bytes > 0
    topic_world.hub.disconnect(consumer)
    topic_world.clock.seconds += IDLE_SECONDS - 0.1
    await topic_world.advance()
    assert topic_world.feeds.stats.feeds == 1
    topic_world.clock.seconds += 1
    await topic_world.advance()
    assert topic_world.feeds.stats == (0, 0)


async def test_a_change_of_the_catalogue_is_learnt_for_some_feeds_at_a_time(
    topic_world: TopicWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [await topic_world.create(f"t{number}") for number in range(1_200)]
    for topic in made * 2:
        peek(topic_world, topic)
    await topic_world.advance()
    asked: list[int] = []
    current = topic_world.topics.current

    async def counting(logs: Collection[int]) -> dict[int, Topic]:
        asked.append(len(logs))
        return await current(logs)

    monkeypatch.setattr(topic_world.topics, "current", counting)
    await topic_world.topics.change(made[-1].name, 7)
    await topic_world.topics.delete(made[0].name)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await topic_world.advance()
    task.cancel()
    assert asked == [500, 500, 199]  # the news have told of the deleted one
    assert turns >= 3
    feed = topic_world.feeds.get(made[-1].log)
    assert feed is not None
    assert feed.ring.ttl == 7
    assert topic_world.feeds.get(made[0].log) is None


async def test_the_second_poll_within_some_seconds_creates_a_feed(topic_world: TopicWorld) -> None:
    topic, other = await topic_world.create(), await topic_world.create("other")
    assert peek(topic_world, topic) is None
    assert peek(topic_world, other) is None
    topic_world.clock.seconds += POLL_SECONDS + 0.1
    assert peek(topic_world, topic) is None
    assert topic_world.feeds.stats.feeds == 0
    topic_world.clock.seconds += POLL_SECONDS
    assert peek(topic_world, topic) is None
    assert topic_world.feeds.stats.feeds == 1
    await topic_world.advance()
    assert peek(topic_world, topic) == []


async def test_polls_keep_a_feed(topic_world: TopicWorld) -> None:
    topic = await topic_world.create()
    await polled(topic_world, topic)
    for _ in range(3):
        topic_world.clock.seconds += IDLE_SECONDS - 1
        await topic_world.advance()
        assert peek(topic_world, topic) == []
    topic_world.clock.seconds += IDLE_SECONDS + 1
    await topic_world.advance()
    assert topic_world.feeds.stats.feeds == 0


async def test_a_feed_that_a_poll_created_while_the_store_was_away_starts_later(
    topic_world: TopicWorld,
) -> None:
    topic = await topic_world.create()
    assert peek(topic_world, topic) is None
    topic_world.topics.trouble = StoreUnavailableError("away")
    assert peek(topic_world, topic) is None
    with pytest.raises(StoreUnavailableError):
        await topic_world.advance()
    topic_world.topics.trouble = None
    assert peek(topic_world, topic) is None
    await topic_world.advance()
    assert peek(topic_world, topic) == []


# --- All rings together ---


async def test_all_rings_share_one_bound_and_the_quietest_topic_gives_up_first(
    topic_world: TopicWorld,
) -> None:
    world = topic_world
    world.feeds.max_bytes = 50_000
    quiet, busy = await world.create("quiet"), await world.create("busy")
    consumers = {topic: await world.connect(topic) for topic in (quiet, busy)}
    (busy_mark,) = await world.publish(busy, "b")
    await world.advance()
    (quiet_mark, *_) = await world.publish(quiet, *["q" * 1_000] * 20)
    await world.advance()
    for _ in range(2):
        await world.publish(busy, *["b" * 1_000] * 20)
        await world.advance()
        assert 40_000 < world.feeds.stats.bytes <= 50_000
    assert peek(world, quiet, quiet_mark) is None
    assert len(peek(world, busy, busy_mark) or []) == 40
    assert [len(told(await read_all(each))) for each in consumers.values()] == [20, 41]
    await world.publish(busy, "x" * 60_000)
    await world.advance()
    assert world.feeds.stats.bytes == 0
    assert told(await read_all(consumers[busy])) == ["x" * 60_000]


@pytest.mark.thorough
async def test_a_listened_topic_takes_little_memory(topic_world: TopicWorld) -> None:
    count = 2_000
    made = [Topic(log, TopicName("ns", str(log)), None) for log in range(1, count + 1)]
    for topic in made:
        await topic_world.create(topic.name.topic)
    await topic_world.feeds.open(made[0])
    gc.collect()
    tracemalloc.start()
    try:
        for topic in made[1:]:
            await topic_world.feeds.open(topic)
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    each = taken // (count - 1)
    print(each, "bytes per listened topic")
    assert topic_world.feeds.stats == (count, 0)
    assert each < 3_000


# --- The task ---


async def started(world: TopicWorld) -> asyncio.Task[None]:
    """Return the follower's task, which has begun."""
    task = asyncio.create_task(follow_topics(world.topics, world.feeds, world.health))
    await asyncio.sleep(0)
    return task


async def test_one_task_follows_all_topics_and_sleeps_without_any(
    topic_world: TopicWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Mapping[int, int]] = []
    news = topic_world.topics.news

    async def noted(heads: Mapping[int, int], seconds: float) -> News:
        asked.append(heads)
        return await news(heads, seconds)

    monkeypatch.setattr(topic_world.topics, "news", noted)
    monkeypatch.setattr("oplogd.stream.topic_follower._NEWS_SECONDS", 1e6)
    topic, other = await topic_world.create(), await topic_world.create("other")
    task = await started(topic_world)
    assert not asked
    async with asyncio.timeout(DEADLINE):
        one = await topic_world.connect(topic)
        await topic_world.topics.append([MessageBatch(topic.log, [message("a")])])
        assert told(await awaited(one)) == ["a"]
        while asked[-1] != {topic.log: 1}:
            await asyncio.sleep(0)
        two = await topic_world.connect(other)
        await topic_world.topics.append([MessageBatch(other.log, [message("b")])])
        assert told(await awaited(two)) == ["b"]
        await topic_world.topics.delete(topic.name)
        assert await awaited(one) == b""
        await topic_world.publish(other, "c")
        assert told(await awaited(two)) == ["c"]
    task.cancel()
    await asyncio.wait({task})


async def test_an_acknowledgement_does_not_wait_for_the_news(
    topic_world: TopicWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(heads: object, seconds: float) -> News:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    monkeypatch.setattr(topic_world.topics, "news", never)
    topic = await topic_world.create()
    task = await started(topic_world)
    consumer = await topic_world.connect(topic)
    async with asyncio.timeout(DEADLINE):
        for text in ("a", "b"):
            await topic_world.publish(topic, text)
            assert told(await awaited(consumer)) == [text]
    task.cancel()
    await asyncio.wait({task})


async def test_the_health_tells_that_topics_cannot_be_followed(
    topic_world: TopicWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oplogd.stream.topic_follower._RETRY_SECONDS", 0.001)
    topic = await topic_world.create()
    consumer = await topic_world.connect(topic)
    away = StoreUnavailableError("the store is unreachable")
    topic_world.topics.trouble = away
    feeds, health = topic_world.feeds, topic_world.health
    task = asyncio.create_task(follow_topics(topic_world.topics, feeds, health))
    async with asyncio.timeout(DEADLINE):
        while health.part("topics").trouble != str(away):
            await asyncio.sleep(0)
    assert feeds.is_stale
    topic_world.topics.trouble = None
    await topic_world.publish(topic, "a")
    assert told(await awaited(consumer)) == ["a"]
    async with asyncio.timeout(DEADLINE):
        while health.trouble:
            await asyncio.sleep(0)
    assert not feeds.is_stale
    task.cancel()
    await asyncio.wait({task})

"""News of topics in every store: a follower learns of appends, deletions and changes."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from oplogd.store.topics import Topics
from tests.kits.processes.logged import DEADLINE
from tests.kits.store.kits import KITS, Kit
from tests.kits.store.messages import NAME, named, publish

# The wait depends on the server, not on the kind of the log.
pytestmark = pytest.mark.parametrize("topic_kits", KITS, indirect=True)

# A call that returns only because of its time fails the test.
LONG = 2 * DEADLINE


async def version_of(topics: Topics) -> int:
    return (await topics.news({}, 0)).version


async def test_news_name_the_logs_with_entries_past_their_offsets(topics: Topics) -> None:
    made = [await topics.create(named(str(number)), None) for number in range(3)]
    logs = [topic.log for topic in made]
    version = await version_of(topics)
    for count, topic in enumerate(made):
        await publish(topics, topic, *range(count + 1))
    heads = dict(zip(logs, (1, 1, 3), strict=True))
    news = await topics.news(heads, LONG)
    assert (set(news.logs), news.version) == ({logs[1]}, version)
    heads = dict(zip(logs, (0, 2, 2), strict=True))
    assert set((await topics.news(heads, LONG)).logs) == {logs[0], logs[2]}
    nothing = await topics.news({logs[0]: 1}, 0)
    assert (list(nothing.logs), nothing.version) == ([], version)


async def test_an_append_wakes_the_follower(topics: Topics) -> None:
    topic = await topics.create(NAME, None)
    await version_of(topics)
    for number in range(20):
        waiting = asyncio.create_task(topics.news({topic.log: number}, LONG))
        await asyncio.sleep(0)
        await publish(topics, topic, number)
        async with asyncio.timeout(DEADLINE):
            assert set((await waiting).logs) == {topic.log}


async def test_an_append_of_another_agent_wakes_the_follower(
    topic_kit: Kit, topics: Topics
) -> None:
    other = (await topic_kit.open()).topics
    topic = await topics.create(NAME, None)
    await version_of(topics)
    for number in range(5):
        waiting = asyncio.create_task(topics.news({topic.log: number}, LONG))
        await asyncio.sleep(0)
        await publish(other, topic, number)
        async with asyncio.timeout(DEADLINE):
            assert set((await waiting).logs) == {topic.log}


async def test_every_change_of_the_catalogue_by_any_agent_is_news(
    topic_kit: Kit, topics: Topics
) -> None:
    other = (await topic_kit.open()).topics
    version = await version_of(topics)
    for agent in (topics, other):
        changes: tuple[Callable[[], Awaitable[object]], ...] = (
            partial(agent.create, NAME, None),
            partial(agent.change, NAME, 5),
            partial(agent.delete, NAME),
        )
        for change in changes:
            waiting = asyncio.create_task(topics.news({}, LONG))
            await asyncio.sleep(0)
            await change()
            async with asyncio.timeout(DEADLINE):
                news = await waiting
            assert news.version != version
            version = news.version
            assert await version_of(topics) == version


async def test_a_change_between_two_calls_is_news_for_the_second(topics: Topics) -> None:
    version = await version_of(topics)
    await topics.create(NAME, None)
    async with asyncio.timeout(DEADLINE):
        assert (await topics.news({}, LONG)).version != version


async def test_a_deleted_topic_is_news_for_its_followers(topics: Topics) -> None:
    topic = await topics.create(NAME, None)
    await version_of(topics)
    await topics.delete(NAME)
    await version_of(topics)
    for _ in range(2):
        async with asyncio.timeout(DEADLINE):
            assert set((await topics.news({topic.log: 0}, LONG)).logs) == {topic.log}
        await topics.sweep()


async def test_a_follower_waits_for_many_logs(topics: Topics) -> None:
    made = [await topics.create(named(str(number)), None) for number in range(120)]
    await version_of(topics)
    waiting = asyncio.create_task(topics.news({topic.log: 0 for topic in made}, LONG))
    await asyncio.sleep(0)
    await publish(topics, made[110], "a")
    async with asyncio.timeout(DEADLINE):
        assert set((await waiting).logs) == {made[110].log}


async def test_a_wait_that_was_cancelled_neither_delays_nor_robs_the_next(topics: Topics) -> None:
    topic = await topics.create(NAME, None)
    version = await version_of(topics)
    waiting = asyncio.create_task(topics.news({}, LONG))
    await topics.find(NAME)  # meanwhile the follower begins to wait
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(DEADLINE):
        await publish(topics, topic, "a")
        assert set((await topics.news({topic.log: 0}, LONG)).logs) == {topic.log}
        waiting = asyncio.create_task(topics.news({}, LONG))
        await topics.find(NAME)
        creation = asyncio.create_task(topics.create(named("other"), None))
        waiting.cancel()
        await asyncio.gather(waiting, creation, return_exceptions=True)
        assert (await topics.news({}, LONG)).version != version


async def test_closing_the_store_ends_the_wait(topic_kit: Kit) -> None:
    store = await topic_kit.open()
    await version_of(store.topics)
    waiting = asyncio.create_task(store.topics.news({}, LONG))
    await asyncio.sleep(0)
    async with asyncio.timeout(DEADLINE):
        await store.close()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_the_oplog_is_followed_beside_the_topics(topic_kit: Kit) -> None:
    store = await topic_kit.open()
    topic = await store.topics.create(NAME, None)
    await version_of(store.topics)
    oplog = asyncio.create_task(store.follow(0, 10, 0.2))
    news = asyncio.create_task(store.topics.news({topic.log: 0}, LONG))
    await asyncio.sleep(0)
    await publish(store.topics, topic, "a")
    async with asyncio.timeout(DEADLINE):
        assert set((await news).logs) == {topic.log}
        assert await oplog == []

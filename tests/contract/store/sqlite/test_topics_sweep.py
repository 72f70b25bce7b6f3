"""Sweeps of topics in SQLite files."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from oplogd.clock.ages import Present
from oplogd.store.sqlite.interface import topics
from oplogd.store.sqlite.upkeep import sweep
from oplogd.store.topics import Topic
from tests.kits.clock.virtual import VirtualClock
from tests.kits.models.operations import numbered
from tests.kits.store.messages import (
    NAME,
    message,
    named,
    payloads_of,
    publish,
    publish_all,
)
from tests.kits.store.sqlite_files import count, direct, opened, rows

Patch = pytest.MonkeyPatch

pytestmark = pytest.mark.usefixtures("no_fsync")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


async def test_a_sweep_removes_exactly_what_nobody_can_read(
    path: Path, clock: VirtualClock
) -> None:
    async with opened(path, clock) as store:
        kept = await store.topics.create(named("kept"), None)
        old = await store.topics.create(named("old"), 5)
        gone = await store.topics.create(named("gone"), None)
        for topic in (kept, old, gone):
            await publish(store.topics, topic, *range(1200))
        clock.ms += 5001
        await publish(store.topics, old, "new")
        await store.topics.delete(gone.name)
        assert await store.topics.sweep() == 2400
        bounds = "SELECT min(place), max(place), count(*) FROM entries WHERE place >> 40 = "
        assert rows(path, f"{bounds}{kept.log}") == [
            ((kept.log << 40) + 1, (kept.log << 40) + 1200, 1200)
        ]
        assert rows(path, f"{bounds}{old.log}") == [((old.log << 40) + 1201,) * 2 + (1,)]
        assert count(path, "entries") == 1201
        assert rows(path, "SELECT log FROM topics ORDER BY log") == [(kept.log,), (old.log,)]
        assert await store.topics.sweep() == 0


async def test_a_sweep_removes_messages_that_a_change_made_unreadable(
    path: Path, clock: VirtualClock
) -> None:
    async with opened(path, clock) as store:
        topic = await store.topics.create(NAME, 5)
        await publish(store.topics, topic, "a", "b")
        clock.ms += 5001
        await publish(store.topics, topic, "c")
        await store.topics.change(NAME, 1000)
        assert await store.topics.sweep() == 2
        assert count(path, "entries") == 1


async def test_a_sweep_empties_messages_past_their_own_ttl(path: Path, clock: VirtualClock) -> None:
    async with opened(path, clock) as store:
        topic = await store.topics.create(NAME, None)
        await publish_all(store.topics, topic, [message(n, 5 if n % 2 else None) for n in range(6)])
        clock.ms += 5000
        assert await store.topics.sweep() == 0
        clock.ms += 1
        assert await store.topics.sweep() == 3
        assert rows(path, "SELECT count(*), sum(data = ''), sum(expires) FROM entries") == [
            (6, 3, 0)
        ]
        assert await payloads_of(store.topics, topic) == ["0", None, "2", None, "4", None]
        assert await store.topics.sweep() == 0


async def _old(store_topics: topics.SqliteTopics, clock: VirtualClock) -> Topic:
    topic = await store_topics.create(named("old"), 5)
    await publish(store_topics, topic, *range(400))
    clock.ms += 5001
    return topic


async def test_appends_of_messages_and_operations_pass_a_running_sweep(
    path: Path, clock: VirtualClock, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(sweep, "STEP_ENTRIES", 1)
    async with opened(path, clock) as store:
        topic = await _old(store.topics, clock)
        sweeping = asyncio.create_task(store.topics.sweep())
        for number in range(10):
            await publish(store.topics, topic, number)
            await store.append(numbered(1, first=number))
        assert not sweeping.done()
        assert await sweeping == 400
        assert await payloads_of(store.topics, topic) == [str(number) for number in range(10)]


async def test_a_sweep_that_was_interrupted_hides_what_it_has_not_removed(
    path: Path, clock: VirtualClock, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(sweep, "STEP_ENTRIES", 100)
    async with opened(path, clock) as store:
        topic = await _old(store.topics, clock)
        with direct(path) as db:
            progress = sweep.SweepProgress()
            assert sweep.trim(db, topic.log, Present(clock.ms, clock.ms), progress) == 100
    clock.ms -= 5001
    async with opened(path, clock) as store:
        assert count(path, "entries") == 300
        assert await payloads_of(store.topics, topic) == []
        assert (await store.topics.log(topic).locate()).front.offset == 400
        assert await store.topics.sweep() == 300


async def test_two_sweeps_at_a_time_remove_everything_once(path: Path, clock: VirtualClock) -> None:
    async with opened(path, clock) as store, opened(path, clock) as other:
        topic = await _old(store.topics, clock)
        await publish(store.topics, topic, "new")
        removed = await asyncio.gather(store.topics.sweep(), other.topics.sweep())
        assert sum(removed) == 400
        assert await payloads_of(other.topics, topic) == ["new"]


async def test_a_deletion_during_a_sweep_ends_the_sweep_of_that_topic(
    path: Path, clock: VirtualClock, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(sweep, "STEP_ENTRIES", 1)
    async with opened(path, clock) as store:
        topic = await _old(store.topics, clock)
        sweeping = asyncio.create_task(store.topics.sweep())
        while count(path, "entries") == 400:
            await asyncio.sleep(0)
        await store.topics.delete(topic.name)
        removed = await sweeping
        assert 0 < removed < 400
        assert await store.topics.sweep() == 400 - removed
        assert count(path, "topics") == 0


async def test_a_topic_that_another_agent_has_forgotten_meanwhile_ends_its_step(
    path: Path, clock: VirtualClock
) -> None:
    async with opened(path, clock) as one, opened(path, clock) as other:
        topic = await one.topics.create(NAME, None)
        await publish(one.topics, topic, "a")
        await one.topics.delete(NAME)
        clock.ms += 1
        for store, removed in ((one, 1), (other, 0)):
            progress = sweep.SweepProgress()
            while not progress.has_ended:
                step = partial(sweep.forget, log=topic.log, progress=progress)
                removed -= await store.topics._writer.run(step)
            assert removed == 0

"""The removal of entries and rows of pointers from SQLite files."""

from pathlib import Path

import pytest

from oplogd.model.pointer import Decision
from oplogd.store.sqlite.upkeep import sweep
from oplogd.store.topics import Topic
from tests.kits.clock.virtual import VirtualClock
from tests.kits.store.messages import NAME, named, publish
from tests.kits.store.pointing import (
    committed,
    entry_at,
    kinds_in,
    publish_stored,
    publish_under,
    runs_in,
    store_under,
    uncommitted,
)
from tests.kits.store.sqlite_files import count, opened, pointer_counts
from tests.kits.store.transacting import TWENTY_MINUTES_MS, StoreHandle

Patch = pytest.MonkeyPatch

pytestmark = pytest.mark.usefixtures("no_fsync")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


async def _used(store: StoreHandle, topic: Topic, pointer: int) -> None:
    """Publish three messages under a pointer, with two entries."""
    await publish_under(store, topic, pointer, f"{pointer}a")
    await store_under(store, topic, pointer, f"{pointer}b", f"{pointer}c")
    await publish_stored(store, topic, pointer)


async def test_publishes_and_decisions_leave_the_file_twenty_minutes_after_the_front_passed_them(
    path: Path, clock: VirtualClock
) -> None:
    async with opened(path, clock) as store:
        topic = await store.topics.create(NAME, 5)
        for pointer, decision in ((7, Decision.COMMITTED), (8, Decision.TIMED_OUT)):
            await _used(store, topic, pointer)
            await store.pointers.decide([topic.log], pointer, decision)
        await publish(store.topics, topic, "plain")
        clock.ms += 5001
        assert await store.topics.sweep() == 3
        assert pointer_counts(path) == [2, 4, 4]
        assert (await committed(store, topic)).payloads == []
        await publish(store.topics, topic, "new")
        clock.ms += TWENTY_MINUTES_MS - 1
        assert await store.topics.sweep() == 1
        assert pointer_counts(path) == [2, 4, 4]
        found = await store.topics.log(topic).decisions([7, 8])
        assert found == {7: Decision.COMMITTED, 8: Decision.TIMED_OUT}
        clock.ms += 1
        assert await store.topics.sweep() == 4
        assert pointer_counts(path) == [0, 0, 0]
        assert count(path, "entries") == 0
        assert await store.topics.log(topic).decisions([7, 8]) == {}
        assert await store.topics.sweep() == 0


async def test_a_pointer_stays_as_long_as_its_decision_although_its_entries_have_left(
    path: Path, clock: VirtualClock
) -> None:
    async with opened(path, clock) as store:
        topic = await store.topics.create(NAME, 5)
        await _used(store, topic, 7)
        clock.ms += TWENTY_MINUTES_MS + 5001
        assert await store.topics.sweep() == 2
        assert pointer_counts(path) == [1, 2, 0]
        await publish_under(store, topic, 7, "d")
        await store.pointers.decide([topic.log], 7, Decision.COMMITTED)
        assert (await committed(store, topic)).payloads == ["d"]
        clock.ms += TWENTY_MINUTES_MS
        assert await store.topics.sweep() == 1
        assert await store.topics.log(topic).decisions([7]) == {7: Decision.COMMITTED}
        clock.ms += 5001
        assert await store.topics.sweep() == 1
        assert pointer_counts(path) == [0, 0, 0]


@pytest.mark.parametrize("step", [1, 2, 3, 500])
async def test_a_sweep_in_steps_of_any_size_removes_the_same(
    path: Path, clock: VirtualClock, monkeypatch: Patch, step: int
) -> None:
    monkeypatch.setattr(sweep, "STEP_ENTRIES", step)
    names = 2 if step == 1 else 1  # VOID entries that name the two entries of the aborted pointer
    async with opened(path, clock) as store:
        first, second = [await store.topics.create(named(name), 5) for name in "ab"]
        for pointer, decision in enumerate((*Decision, None)):
            for topic in (first, second):
                await _used(store, topic, pointer)
                await publish(store.topics, topic, "x")
                if decision is not None:
                    await store.pointers.decide([topic.log], pointer, decision)
        await store.topics.change(second.name, 10**6)
        assert pointer_counts(path) == [8, 16, 16]
        assert await store.topics.sweep() == 2 * 2
        assert pointer_counts(path) == [8, 12, 12]
        clock.ms += 5001
        assert await store.topics.sweep() == 3 + 2 + 4 + names
        clock.ms += TWENTY_MINUTES_MS
        assert await store.topics.sweep() == 3 + 3
        assert pointer_counts(path) == [5, 8, 6]
        kinds = ["direct", "publish", "message", "commit", "void", "void", "message", "abort"]
        kinds += ["direct", "publish", "message", "abort", "direct", "publish", "message"]
        kinds += ["void"] * names
        assert [kind for kind, _ in await kinds_in(store, second)] == kinds
        await store.topics.delete(second.name)
        assert await store.topics.sweep() == len(kinds)
        assert pointer_counts(path) == [1, 2, 0], "one pointer of the first topic is open"
        assert await store.topics.sweep() == 0


async def test_a_rollback_names_no_message_that_a_sweep_has_emptied(
    path: Path, clock: VirtualClock
) -> None:
    async with opened(path, clock) as store:
        topic = await store.topics.create(NAME, None)
        await publish_under(store, topic, 7, "short", ttl=5)
        await publish_under(store, topic, 7, "long")
        clock.ms += 5001
        assert await store.topics.sweep() == 1
        assert await store.pointers.rollback(topic.log, 7, None) is not None
        assert await runs_in(store, topic) == [("7", [2])]


@pytest.mark.parametrize("step", [1, 500])
async def test_a_deleted_topic_leaves_no_rows_and_others_theirs(
    path: Path, monkeypatch: Patch, step: int
) -> None:
    monkeypatch.setattr(sweep, "STEP_ENTRIES", step)
    async with opened(path) as store:
        gone, kept = [await store.topics.create(named(name), None) for name in "ab"]
        for pointer in (7, 8, 9):
            for topic in (gone, kept):
                await _used(store, topic, pointer)
                await store_under(store, topic, pointer, "not published")
        await store.pointers.decide([gone.log], 7, Decision.COMMITTED)
        await store.pointers.decide([gone.log], 8, Decision.ABORTED)
        await store.topics.delete(gone.name)
        assert (await store.pointers.stats()).open == 3
        await store.topics.sweep()
        assert pointer_counts(path) == [3, 6, 9]
        assert await uncommitted(store, kept) == [
            "7a",
            "7b",
            "7c",
            "8a",
            "8b",
            "8c",
            "9a",
            "9b",
            "9c",
        ]


async def test_a_sweep_of_an_aborted_pointer_voids_no_entry_twice_and_none_of_others(
    path: Path, clock: VirtualClock
) -> None:
    async with opened(path, clock) as store:
        topic = await store.topics.create(NAME, None)
        (short,) = await publish_under(store, topic, 7, "short", ttl=5)
        await _used(store, topic, 7)
        await _used(store, topic, 8)
        clock.ms += 5001
        assert await store.topics.sweep() == 1
        await store.pointers.decide([topic.log], 7, Decision.ABORTED)
        assert await uncommitted(store, topic) == ["7a", "7b", "7c", "8a", "8b", "8c"]
        assert await store.topics.sweep() == 2
        assert await uncommitted(store, topic) == ["8a", "8b", "8c"]
        assert pointer_counts(path) == [2, 2, 2]
        assert (await entry_at(store, topic, short)).data == ""
        assert await store.topics.sweep() == 0
        assert await store.pointers.rollback(topic.log, 7, None) is None


async def test_a_topic_that_is_deleted_during_the_sweep_does_not_end_it(
    path: Path, clock: VirtualClock, monkeypatch: Patch
) -> None:
    async with opened(path, clock) as store:
        gone, topic = [await store.topics.create(named(each), None) for each in ("gone", "t")]
        for each in (gone, topic):
            await publish_under(store, each, 7, "a")
            await store.pointers.decide([each.log], 7, Decision.ABORTED)
        await store.topics.delete(gone.name)
        with monkeypatch.context() as patch:
            patch.setattr(sweep, "deleted", lambda db: [])  # it looked before the deletion
            assert await store.topics.sweep() == 1
        assert [kind for kind, _ in await kinds_in(store, topic)] == ["void", "abort", "void"]
        await store.topics.sweep()
        assert pointer_counts(path) == [1, 0, 0]

"""Seeking a time in the log of every store."""

import pytest

from oplogd.model.event_id import MAX_MS, Mark
from tests.kits.clock.virtual import START_MS
from tests.kits.models.operations import numbered, operation
from tests.kits.store.kits import TRIMMING, Kit


async def test_an_empty_log_has_no_entry_before_any_time(topic_kit: Kit) -> None:
    store = await topic_kit.open()
    for ms in (0, START_MS, MAX_MS, 1 << 63):
        assert await store.seek(ms) == Mark(0, 0)


async def test_seek_returns_the_last_entry_at_or_before_a_time(topic_kit: Kit) -> None:
    store = await topic_kit.open()
    made: list[Mark] = []
    for count in (3, 1, 2, 5, 1):
        await store.append(numbered(count, first=len(made)))
        made += [Mark(len(made) + k + 1, topic_kit.clock.ms) for k in range(count)]
        topic_kit.clock.ms += 10
    for ms in (0, *range(START_MS - 1, START_MS + 60), MAX_MS, 1 << 63):
        before = [mark for mark in made if mark.ms <= ms]
        assert await store.seek(ms) == (before[-1] if before else Mark(0, 0))


@pytest.mark.parametrize("topic_kits", TRIMMING, indirect=True)
async def test_seek_before_the_oldest_entry_returns_the_offset_before_it(topic_kit: Kit) -> None:
    store = await topic_kit.open(max_bytes=3000)
    for number in range(60):
        await store.append([operation(id_=str(number))])
        topic_kit.clock.ms += 10
    await store.checkpoint()
    oldest = (await store.locate()).oldest
    assert oldest is not None
    assert oldest.offset > 1
    assert await store.seek(oldest.ms) == oldest
    for ms in (0, START_MS, oldest.ms - 1):
        assert await store.seek(ms) == Mark(oldest.offset - 1, 0)


async def test_seek_finds_only_entries_of_the_present_epoch(topic_kit: Kit) -> None:
    store = await topic_kit.open()
    await store.append(numbered(3))
    topic_kit.clock.ms += 10
    await store.new_epoch()
    assert (await store.seek(topic_kit.clock.ms)).ms == 0
    await store.append(numbered(1))
    assert await store.seek(topic_kit.clock.ms) == Mark(4, topic_kit.clock.ms)
    assert await store.seek(START_MS) == Mark(3, 0)

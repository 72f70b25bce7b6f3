"""A new epoch in every store."""

from oplogd.model.event_id import Mark
from oplogd.store import Store
from tests.kits.clock.virtual import START_MS
from tests.kits.models.operations import numbered, operation
from tests.kits.store.kits import (
    Kit,
    known,
    log_of,
    states_of,
)

DEADLINE = 30.0


async def test_a_new_epoch_sets_the_log_aside_and_stamps_the_states_with_the_present(
    kit: Kit, store: Store
) -> None:
    kit.clock.ms = 4_070_908_800_000
    await store.append([operation(id_="a"), operation(id_="b"), operation("delete", id_="b")])
    kit.clock.ms = START_MS + 5
    await store.new_epoch()
    bounds = await store.locate(3)
    assert bounds.head == Mark(3, START_MS + 5)
    assert bounds.oldest is None
    assert bounds.at_ms is None
    assert bounds.first_offset == 4
    assert bounds.created_ms == START_MS + 5
    assert await log_of(store) == []
    assert known(await states_of(store)).keys() == {"video/a", "video/b"}
    assert {s.cursor.ms for s in await states_of(store)} == {START_MS + 5}
    kit.clock.ms += 1
    await store.append([operation(id_="c")])
    assert [(e.offset, e.ms) for e in await log_of(store)] == [(4, START_MS + 6)]
    await store.checkpoint()
    stats = await store.stats()
    assert (stats.operations, stats.states) == (1, 3)


async def test_a_new_epoch_does_not_forget_that_deletions_were_forgotten(
    kit: Kit, store: Store
) -> None:
    await store.append([operation(id_="a"), operation("delete", id_="b")])
    await store.checkpoint()
    await store.new_epoch()
    assert (await store.locate()).purged_ms == 0
    assert await store.purge(START_MS + 1) == 1
    kit.clock.ms += 5
    await store.new_epoch()
    bounds = await store.locate()
    assert bounds.purged_ms == bounds.created_ms == START_MS + 5


async def test_a_new_epoch_may_follow_another_with_nothing_between_them(
    kit: Kit, store: Store
) -> None:
    await store.append(numbered(2))
    await store.new_epoch()
    kit.clock.ms += 1
    await store.new_epoch()
    assert (await store.locate()).head == Mark(2, START_MS + 1)
    await store.append(numbered(1))
    await store.new_epoch()
    assert (await store.locate()).head == Mark(3, START_MS + 1)
    assert (await store.locate()).first_offset == 4


async def test_a_new_epoch_holds_after_the_store_was_opened_again(kit: Kit, store: Store) -> None:
    await store.append(numbered(2))
    await store.new_epoch()
    bounds = await store.locate()
    await store.close()
    again = await kit.open()
    assert await again.locate() == bounds
    await again.append(numbered(1))
    assert [e.offset for e in await log_of(again)] == [3]

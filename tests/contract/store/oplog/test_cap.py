"""The cap of the log of every store."""

from hypothesis import given
from hypothesis import strategies as st

from oplogd.model.event_id import Mark
from oplogd.model.operation import Operation
from tests.kits.clock.virtual import START_MS
from tests.kits.models.operations import entry, fold, numbered, operation, operations
from tests.kits.models.properties import examples
from tests.kits.store.kits import (
    Kit,
    Kits,
    contents,
    expected,
    known,
    log_of,
    states_of,
    wanted,
)

DEADLINE = 30.0


# --- The cap ---

SMALL = 1000


async def test_the_oldest_entries_go_first_and_states_stay(trimming_kit: Kit) -> None:
    store = await trimming_kit.open(SMALL)
    made = numbered(40)
    for op in made:
        await store.append([op])
    entries = await log_of(store)
    assert 1 <= len(entries) < 20
    assert contents(entries) == wanted(made[-len(entries) :])
    assert [e.offset for e in entries] == list(range(41 - len(entries), 41))
    assert (await store.locate()).oldest == Mark(entries[0].offset, START_MS)
    assert len(await states_of(store)) == 40


async def test_a_read_from_a_trimmed_offset_begins_with_the_oldest_entry(trimming_kit: Kit) -> None:
    store = await trimming_kit.open(SMALL)
    await store.append(numbered(100))
    oldest = (await store.locate()).oldest
    assert oldest is not None
    assert (await store.read(0, 1))[0].offset == oldest.offset > 1
    assert (await store.locate(oldest.offset - 1)).at_ms is None


async def test_the_last_entry_stays_however_small_the_cap(trimming_kit: Kit) -> None:
    store = await trimming_kit.open(1)
    await store.append(numbered(5))
    assert [e.offset for e in await log_of(store)] == [5]
    await store.append([operation(parents=["p" * 10_000])])
    assert [e.offset for e in await log_of(store)] == [6]
    assert (await store.stats()).operations == 1


async def test_offsets_do_not_restart_when_the_log_was_trimmed_and_opened_again(
    trimming_kit: Kit,
) -> None:
    store = await trimming_kit.open(1)
    await store.append(numbered(5))
    await store.close()
    again = await trimming_kit.open()
    await again.append(numbered(1))
    assert [e.offset for e in await log_of(again)] == [6]


async def test_a_smaller_cap_trims_when_the_store_is_opened(trimming_kit: Kit) -> None:
    store = await trimming_kit.open(100_000)
    await store.append(numbered(100))
    await store.close()
    again = await trimming_kit.open(SMALL)
    stats = await again.stats()
    assert stats.max_bytes == SMALL
    assert stats.bytes <= SMALL
    assert 1 <= stats.operations < 20
    assert [e.offset for e in await log_of(again)] == list(range(101 - stats.operations, 101))
    assert stats.states == 100


async def test_the_cap_stays_if_none_is_given(trimming_kit: Kit) -> None:
    await (await trimming_kit.open(SMALL)).close()
    again = await trimming_kit.open()
    assert (await again.stats()).max_bytes == SMALL


# Few long examples: a new store costs as much as five batches.
@examples(0.16)
@given(
    cap=st.sampled_from([1, 200, 500, 2000]),
    batches=st.lists(st.lists(operations(), min_size=1, max_size=8), min_size=5, max_size=11),
)
async def test_a_capped_log_is_the_end_of_all_entries_and_its_states_cover_all(
    trimming_kits: Kits, cap: int, batches: list[list[Operation]]
) -> None:
    async with trimming_kits() as kit:
        store = await kit.open(cap)
        made: list[Operation] = []
        for batch in batches:
            await store.append(batch)
            made += batch
            entries = await log_of(store, limit=3)
            assert contents(entries) == wanted(made[-len(entries) :])
            assert entries[-1].offset == len(made)
            stats = await store.stats()
            assert stats.operations == len(entries)
            assert stats.bytes <= cap or len(entries) == 1
        whole = [entry(offset, 0, op) for offset, op in enumerate(made, 1)]
        assert known(await states_of(store)) == expected(fold(whole))

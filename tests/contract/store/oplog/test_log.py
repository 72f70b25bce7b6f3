"""The log of every store: append, read, locate, follow."""

import asyncio

import pytest

from oplogd.errors import LogReplacedError
from oplogd.model.event_id import Mark
from oplogd.store import Store
from tests.kits.clock.virtual import START_MS
from tests.kits.models.operations import entry, key_of, numbered, operation
from tests.kits.processes.logged import DEADLINE
from tests.kits.store.kits import (
    Kit,
    contents,
    log_of,
    states_of,
    wanted,
)

# --- A new store ---


async def test_a_new_store_is_empty_and_begins_now(store: Store) -> None:
    bounds = await store.locate()
    assert bounds.head == Mark(0, START_MS)
    assert bounds.oldest is None
    assert bounds.at_ms is None
    assert bounds.created_ms == START_MS
    assert bounds.first_offset == 1
    assert bounds.purged_ms == 0
    assert bounds.adopted_ms == 0
    assert await store.checkpoint() == Mark(0, START_MS)
    assert await store.read(0, 10) == []
    assert await states_of(store) == []
    stats = await store.stats()
    assert (stats.operations, stats.states, stats.bytes, stats.lag) == (0, 0, 0, 0)
    assert (stats.oldest, stats.newest) == (None, None)


async def test_appending_nothing_changes_nothing(store: Store) -> None:
    await store.append([])
    assert (await store.locate()).head == Mark(0, START_MS)


# --- Append and read ---


async def test_entries_come_out_as_they_went_in_numbered_from_one(kit: Kit, store: Store) -> None:
    made = [
        operation("insert", "video", "a", ["x", "y"]),
        operation("update", "video", "a"),
        operation("delete", "video", "a"),
    ]
    await store.append(made[:1])
    kit.clock.ms += 5
    await store.append(made[1:])
    assert await store.read(0, 10) == [
        entry(1, START_MS, made[0]),
        entry(2, START_MS + 5, made[1]),
        entry(3, START_MS + 5, made[2]),
    ]


async def test_a_read_begins_past_its_offset_and_keeps_its_limit(store: Store) -> None:
    await store.append(numbered(10))
    assert [e.offset for e in await store.read(4, 3)] == [5, 6, 7]
    assert [e.offset for e in await store.read(8, 3)] == [9, 10]
    assert await store.read(10, 3) == []
    assert await store.read(99, 3) == []


async def test_long_operations_are_read_in_shorter_pages_without_a_gap(store: Store) -> None:
    made = [operation(id_=str(number), parents=["p" * 60_000]) for number in range(40)]
    await store.append(made)
    page = await store.read(0, 1000)
    assert 1 <= len(page) <= 40
    assert contents(await log_of(store)) == wanted(made)
    assert len(await states_of(store)) == 40


@pytest.mark.parametrize(
    "name",
    [
        "a b",
        "é€😀",
        "a/b,c",
        "\x01\x1f\x7f",
        '"\\\n\r\t',
        "\x85\u2028\u2029",
        "'; --",
        "$x.y",
        "%s",
        "a\ufffe",
    ],
)
async def test_names_of_any_characters_are_kept(store: Store, name: str) -> None:
    await store.append([operation(id_=name, parents=[name]), operation("delete", id_=name)])
    assert contents(await log_of(store)) == wanted(
        [operation(id_=name, parents=[name]), operation("delete", id_=name)]
    )
    assert [(s.deleted, key_of(s.data)) for s in await states_of(store)] == [
        (True, f"video/{name}")
    ]


async def test_names_that_differ_in_case_or_accent_only_are_different_objects(store: Store) -> None:
    await store.append([operation(id_=name) for name in ["a", "A", "á", "a ", "a\u0301"]])
    assert len(await states_of(store)) == 5


async def test_two_writers_share_one_dense_order(kit: Kit, store: Store) -> None:
    other = await kit.open()
    for round_ in range(10):
        await asyncio.gather(
            store.append(numbered(3, first=round_ * 10)), other.append(numbered(2, first=round_))
        )
    entries = await log_of(other)
    assert [e.offset for e in entries] == list(range(1, 51))
    assert await log_of(store) == entries


# --- Order and time ---


async def test_offsets_and_times_go_on_after_the_store_was_opened_again(
    kit: Kit, store: Store
) -> None:
    await store.append(numbered(3))
    await store.close()
    kit.clock.ms += 10
    again = await kit.open()
    assert (await again.locate()).head == Mark(3, START_MS)
    await again.append(numbered(1))
    assert [(e.offset, e.ms) for e in await log_of(again)] == [
        (1, START_MS),
        (2, START_MS),
        (3, START_MS),
        (4, START_MS + 10),
    ]


async def test_time_stands_still_when_the_clock_runs_backwards(kit: Kit, store: Store) -> None:
    await store.append(numbered(1))
    kit.clock.ms -= 3_600_000
    await store.append(numbered(1))
    again = await kit.open()
    await again.append(numbered(1))
    kit.clock.ms = START_MS + 1
    await store.append(numbered(1))
    assert [e.ms for e in await log_of(store)] == [START_MS, START_MS, START_MS, START_MS + 1]


async def test_the_time_of_an_empty_log_does_not_run_backwards_either(
    kit: Kit, store: Store
) -> None:
    kit.clock.ms -= 1
    await store.append(numbered(1))
    assert (await store.locate()).head == Mark(1, START_MS)


# --- locate ---


async def test_locate_tells_head_oldest_and_the_time_at_an_offset(kit: Kit, store: Store) -> None:
    await store.append(numbered(2))
    kit.clock.ms += 7
    await store.append(numbered(1))
    bounds = await store.locate(3)
    assert (bounds.head, bounds.oldest) == (Mark(3, START_MS + 7), Mark(1, START_MS))
    assert bounds.at_ms == START_MS + 7
    assert (await store.locate(1)).at_ms == START_MS
    for nothing in (0, 4, 2**48 - 1):
        assert (await store.locate(nothing)).at_ms is None


async def test_locate_tells_the_time_by_which_the_next_entry_is_dated(
    kit: Kit, store: Store
) -> None:
    kit.clock.ms += 3_600_000
    assert (await store.locate()).now_ms == kit.clock.ms
    await store.append(numbered(1))
    assert (await store.locate()).head == Mark(1, kit.clock.ms)


# --- follow ---


async def test_follow_returns_existing_entries_at_once(store: Store) -> None:
    await store.append(numbered(5))
    assert [e.offset for e in await store.follow(2, 2, DEADLINE)] == [3, 4]


async def test_follow_gives_up_in_time(store: Store) -> None:
    assert await store.follow(0, 10, 0) == []
    assert await store.follow(0, 10, 0.05) == []


@pytest.mark.parametrize("own", [True, False], ids=["its own append", "another process's append"])
async def test_follow_waits_for(kit: Kit, store: Store, own: bool) -> None:
    writer = store if own else await kit.open()
    async with asyncio.timeout(DEADLINE):
        for number in range(1, 4):
            waiting = asyncio.create_task(store.follow(number - 1, 10, 2 * DEADLINE))
            await store.locate()  # lets the follower run
            await writer.append([operation()])
            assert [e.offset for e in await waiting] == [number]


# --- Figures ---


async def test_stats_count_log_and_states(kit: Kit, store: Store) -> None:
    await store.append([operation(id_="a"), operation(id_="b"), operation("delete", id_="a")])
    kit.clock.ms += 1
    await store.append([operation(id_="b")])
    await store.checkpoint()
    stats = await store.stats()
    assert (stats.operations, stats.states, stats.lag) == (4, 2, 0)
    async with asyncio.timeout(DEADLINE):
        while stats.deleted is None:  # counted in the background
            stats = await store.stats()
    assert stats.deleted == 1
    assert (stats.oldest, stats.newest) == (Mark(1, START_MS), Mark(4, START_MS + 1))
    assert 0 < stats.bytes <= stats.max_bytes


# --- A log that was replaced ---


async def test_a_read_with_an_expected_time_continues_only_the_same_log(
    kit: Kit, store: Store
) -> None:
    begin = (await store.locate()).head
    await store.append(numbered(3))
    kit.clock.ms += 5
    await store.append(numbered(2, first=3))
    entries = await log_of(store)
    assert await store.read(begin.offset, 10, begin.ms) == entries
    for place in entries:
        assert await store.read(place.offset, 10, place.ms) == entries[place.offset :]
        for wrong in (place.ms - 1, place.ms + 1):
            with pytest.raises(LogReplacedError):
                await store.read(place.offset, 10, wrong)
            with pytest.raises(LogReplacedError):
                await store.follow(place.offset, 10, 0, wrong)
    with pytest.raises(LogReplacedError):
        await store.read(6, 10, entries[-1].ms)
    assert await store.follow(5, 10, 0, entries[-1].ms) == []
    assert await store.follow(2, 10, 1, entries[1].ms) == entries[2:]


async def test_a_read_from_behind_an_entry_that_was_trimmed_goes_on(trimming_kit: Kit) -> None:
    store = await trimming_kit.open(1000)
    await store.append(numbered(3))
    await store.append(numbered(20, first=3))
    oldest = (await store.locate()).oldest
    assert oldest is not None
    assert oldest.offset > 1
    gone = Mark(oldest.offset - 1, START_MS)
    assert [entry.offset for entry in await store.read(gone.offset, 1, gone.ms)] == [oldest.offset]


async def test_a_reader_of_an_epoch_that_was_set_aside_does_not_go_on_in_the_next(
    kit: Kit, store: Store
) -> None:
    await store.append(numbered(2))
    last = (await store.locate()).head
    kit.clock.ms += 10
    await store.new_epoch()
    begin = (await store.locate()).head
    await store.append(numbered(1))
    with pytest.raises(LogReplacedError):
        await store.read(last.offset, 10, last.ms)
    with pytest.raises(LogReplacedError):
        await store.read(1, 10, last.ms)
    assert len(await store.read(begin.offset, 10, begin.ms)) == 1


async def test_the_times_that_a_log_ahead_of_the_clock_used_are_known_after_it_was_set_aside(
    kit: Kit, store: Store
) -> None:
    await store.append([operation(id_="a")])
    kit.clock.ms = START_MS + 10_000
    await store.append([operation(id_="b")])
    kit.clock.ms = START_MS + 20_000
    await store.append([operation(id_="c")])
    kit.clock.ms = START_MS + 500
    await store.new_epoch()
    assert (await store.locate()).set_aside == ((START_MS + 9_999, START_MS + 20_001),)
    kit.clock.ms = START_MS + 12_000
    await store.append([operation(id_="d")])
    await store.new_epoch()
    assert (await store.locate()).set_aside == ((START_MS + 12_000, START_MS + 20_001),)
    kit.clock.ms = START_MS + 30_000
    await store.new_epoch()
    assert (await store.locate()).set_aside == ()

"""What every store promises, the same for all of them. A store joins by its kit in ``kits.KITS``.

A store may fold behind its log, so a test that looks at states or at their count waits for the checkpoint.
"""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.errors import LogReplacedError
from oplogd.event_id import Mark
from oplogd.operation import Operation
from oplogd.store import Entry, StateCursor, Store
from tests.operations import entry, fold, key_of, numbered, operation, operations
from tests.properties import examples
from tests.store.kits import (
    START_MS,
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


# --- A store of which nothing is known yet ---


async def test_a_new_store_is_empty_and_begins_now(store: Store) -> None:
    located = await store.locate()
    assert located.head == Mark(0, START_MS)
    assert located.oldest is None
    assert located.at_ms is None
    assert located.created_ms == START_MS
    assert located.first_offset == 1
    assert located.purged_ms == 0
    assert located.adopted_ms == 0
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
    kit.clock_ms += 5
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
    kit.clock_ms += 10
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
    kit.clock_ms -= 3_600_000
    await store.append(numbered(1))
    again = await kit.open()
    await again.append(numbered(1))
    kit.clock_ms = START_MS + 1
    await store.append(numbered(1))
    assert [e.ms for e in await log_of(store)] == [START_MS, START_MS, START_MS, START_MS + 1]


async def test_the_time_of_an_empty_log_does_not_run_backwards_either(
    kit: Kit, store: Store
) -> None:
    kit.clock_ms -= 1
    await store.append(numbered(1))
    assert (await store.locate()).head == Mark(1, START_MS)


# --- locate ---


async def test_locate_tells_head_oldest_and_the_time_at_an_offset(kit: Kit, store: Store) -> None:
    await store.append(numbered(2))
    kit.clock_ms += 7
    await store.append(numbered(1))
    located = await store.locate(3)
    assert (located.head, located.oldest) == (Mark(3, START_MS + 7), Mark(1, START_MS))
    assert located.at_ms == START_MS + 7
    assert (await store.locate(1)).at_ms == START_MS
    for nothing in (0, 4, 2**48 - 1):
        assert (await store.locate(nothing)).at_ms is None


async def test_locate_tells_the_time_by_which_the_next_entry_is_dated(
    kit: Kit, store: Store
) -> None:
    kit.clock_ms += 3_600_000
    assert (await store.locate()).now_ms == kit.clock_ms
    await store.append(numbered(1))
    assert (await store.locate()).head == Mark(1, kit.clock_ms)


# --- States ---


async def test_the_checkpoint_holds_every_entry_that_was_there(store: Store) -> None:
    await store.append(numbered(5))
    assert await store.checkpoint() == Mark(5, START_MS)
    assert len(await states_of(store)) == 5


async def test_states_come_oldest_first_and_the_last_operation_decides(
    kit: Kit, store: Store
) -> None:
    await store.append([operation(id_="a"), operation(id_="b"), operation(id_="c")])
    kit.clock_ms += 1
    await store.append(
        [operation("update", id_="a", parents=["new"]), operation("delete", id_="b")]
    )
    states = await states_of(store)
    assert [(s.cursor.ms - START_MS, s.deleted, key_of(s.data)) for s in states[:1]] == [
        (0, False, "video/c")
    ]
    assert known(states[1:]) == {
        "video/a": (False, operation(id_="a", parents=["new"]).data.decode()),
        "video/b": (True, operation(id_="b").data.decode()),
    }
    assert {s.cursor.ms for s in states[1:]} == {START_MS + 1}


async def test_states_from_a_time_on_include_that_millisecond(kit: Kit, store: Store) -> None:
    for number in range(3):
        kit.clock_ms = START_MS + number
        await store.append(numbered(1, first=number))
    assert [key_of(s.data) for s in await states_of(store, since=START_MS + 1)] == [
        "video/1",
        "video/2",
    ]
    assert await states_of(store, since=START_MS + 3) == []


async def test_states_leave_out_deleted_ones_where_only_live_ones_are_wanted(store: Store) -> None:
    await store.append([operation(id_="a"), operation(id_="b"), operation("delete", id_="a")])
    assert [key_of(s.data) for s in await states_of(store, live_only=True)] == ["video/b"]
    assert set(known(await states_of(store))) == {"video/a", "video/b"}


async def test_states_changed_after_the_mark_are_left_to_the_log(store: Store) -> None:
    await store.append([operation(id_="a"), operation(id_="b")])
    mark = await store.checkpoint()
    await store.append([operation("update", id_="a"), operation(id_="c")])
    await store.checkpoint()
    assert [key_of(s.data) for s in await states_of(store, upto=mark.offset)] == ["video/b"]


async def test_more_states_than_a_page_in_one_millisecond_are_all_read_once(
    kit: Kit, store: Store
) -> None:
    count = min(10_500, kit.bulk)
    await store.append(numbered(count))
    states = await states_of(store, limit=count // 10)
    assert {s.cursor.ms for s in states} == {START_MS}
    assert sorted(int(key_of(s.data).removeprefix("video/")) for s in states) == list(
        range(1, count + 1)
    )


async def test_paging_is_not_disturbed_by_what_is_appended_meanwhile(
    kit: Kit, store: Store
) -> None:
    await store.append(numbered(10))
    mark = await store.checkpoint()
    read: list[str] = []
    cursor: StateCursor | None = StateCursor(0, None)
    touched = 10
    while cursor:
        states, cursor = await store.states(cursor, mark.offset, True, 2)
        read += [key_of(s.data) for s in states]
        kit.clock_ms += 1
        await store.append([operation("update", id_=str(touched))])
        touched -= 1
    untouched = [f"video/{number}" for number in range(1, touched + 1)]
    assert sorted(read) == sorted({*read, *untouched}), (
        "each at most once, and none that was left alone is missing"
    )


@examples(0.4)
@given(
    batches=st.lists(st.lists(operations(), max_size=5), max_size=6),
    ticks=st.lists(st.integers(-5, 5), min_size=6),
)
async def test_states_are_the_fold_of_the_log(
    kits: Kits, batches: list[list[Operation]], ticks: list[int]
) -> None:
    async with kits() as kit:
        store = await kit.open()
        log: list[Entry] = []
        for batch, tick in zip(batches, ticks, strict=False):
            kit.clock_ms += tick
            await store.append(batch)
            log = await log_of(store)
            states = await states_of(store, limit=2)
            assert known(states) == expected(fold(log))
            assert known(await states_of(store, live_only=True, limit=3)) == {
                key: state for key, state in expected(fold(log)).items() if not state[0]
            }
            times = {key_of(e.data): e.ms for e in log}
            assert all(s.cursor.ms == times[key_of(s.data)] for s in states)
            assert [s.cursor.ms for s in states] == sorted(s.cursor.ms for s in states)
        made = [op for batch in batches for op in batch]
        assert contents(log) == wanted(made)
        assert [e.offset for e in log] == list(range(1, len(made) + 1))
        assert [e.ms for e in log] == sorted(e.ms for e in log)


# --- The cap ---

SMALL = 1000


async def test_the_oldest_entries_go_first_and_states_stay(trimming_kit: Kit) -> None:
    store = await trimming_kit.open(SMALL)
    made = numbered(100)
    for op in made:
        await store.append([op])
    entries = await log_of(store)
    assert 1 <= len(entries) < 20
    assert contents(entries) == wanted(made[-len(entries) :])
    assert [e.offset for e in entries] == list(range(101 - len(entries), 101))
    assert (await store.locate()).oldest == Mark(entries[0].offset, START_MS)
    assert len(await states_of(store)) == 100


async def test_a_read_from_what_has_left_begins_with_the_oldest(trimming_kit: Kit) -> None:
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


async def test_the_cap_stays_as_it_is_where_none_is_given(trimming_kit: Kit) -> None:
    await (await trimming_kit.open(SMALL)).close()
    again = await trimming_kit.open()
    assert (await again.stats()).max_bytes == SMALL


@examples(0.4)
@given(
    cap=st.sampled_from([1, 200, 500, 2000]),
    batches=st.lists(st.lists(operations(), min_size=1, max_size=8), min_size=1, max_size=8),
)
async def test_a_capped_log_is_the_end_of_the_whole_and_its_states_are_of_all(
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


# --- follow ---


async def test_follow_returns_at_once_what_is_there(store: Store) -> None:
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
            await store.locate()  # the follower has its turn meanwhile
            await writer.append([operation()])
            assert [e.offset for e in await waiting] == [number]


# --- Forgetting the deleted ---


async def test_a_purge_forgets_deleted_states_of_before_and_records_it(
    kit: Kit, store: Store
) -> None:
    await store.append(
        [operation(id_="a"), operation(id_="b"), operation(id_="c"), operation("delete", id_="a")]
    )
    kit.clock_ms += 10
    await store.append([operation("delete", id_="b")])
    await store.checkpoint()
    assert await store.purge(START_MS + 10) == 1
    assert known(await states_of(store)).keys() == {"video/b", "video/c"}
    assert (await store.locate()).purged_ms == START_MS + 10
    assert await store.purge(START_MS + 11) == 1
    assert known(await states_of(store)).keys() == {"video/c"}
    assert (await store.locate()).purged_ms == START_MS + 11


async def test_a_purge_is_remembered_and_an_earlier_one_does_not_lower_it(
    kit: Kit, store: Store
) -> None:
    await store.append([operation("delete", id_="a")])
    await store.checkpoint()
    assert await store.purge(START_MS + 1) == 1
    assert await store.purge(START_MS) == 0
    await store.close()
    assert (await (await kit.open()).locate()).purged_ms == START_MS + 1


async def test_a_purge_takes_any_number_and_nothing_from_the_log(kit: Kit, store: Store) -> None:
    count = min(6000, kit.bulk)
    await store.append([operation("delete", id_=str(number)) for number in range(count)])
    await store.append(numbered(1, first=9999))
    await store.checkpoint()
    assert await store.purge(START_MS + 1) == count
    assert len(await states_of(store)) == 1
    assert len(await log_of(store)) == count + 1


async def test_an_object_that_was_forgotten_can_come_back(store: Store) -> None:
    await store.append([operation("delete", id_="a")])
    await store.checkpoint()
    assert await store.purge(START_MS + 1) == 1
    await store.append([operation("insert", id_="a")])
    assert known(await states_of(store)) == {"video/a": (False, operation(id_="a").data.decode())}


# --- A new epoch ---


async def test_a_new_epoch_sets_the_log_aside_and_stamps_the_states_with_the_present(
    kit: Kit, store: Store
) -> None:
    kit.clock_ms = 4_070_908_800_000
    await store.append([operation(id_="a"), operation(id_="b"), operation("delete", id_="b")])
    kit.clock_ms = START_MS + 5
    await store.new_epoch()
    located = await store.locate(3)
    assert located.head == Mark(3, START_MS + 5)
    assert located.oldest is None
    assert located.at_ms is None
    assert located.first_offset == 4
    assert located.created_ms == START_MS + 5
    assert await log_of(store) == []
    assert known(await states_of(store)).keys() == {"video/a", "video/b"}
    assert {s.cursor.ms for s in await states_of(store)} == {START_MS + 5}
    kit.clock_ms += 1
    await store.append([operation(id_="c")])
    assert [(e.offset, e.ms) for e in await log_of(store)] == [(4, START_MS + 6)]
    await store.checkpoint()
    stats = await store.stats()
    assert (stats.operations, stats.states) == (1, 3)


async def test_a_new_epoch_may_follow_another_with_nothing_between_them(
    kit: Kit, store: Store
) -> None:
    await store.append(numbered(2))
    await store.new_epoch()
    kit.clock_ms += 1
    await store.new_epoch()
    assert (await store.locate()).head == Mark(2, START_MS + 1)
    await store.append(numbered(1))
    await store.new_epoch()
    assert (await store.locate()).head == Mark(3, START_MS + 1)
    assert (await store.locate()).first_offset == 4


async def test_a_new_epoch_holds_after_the_store_was_opened_again(kit: Kit, store: Store) -> None:
    await store.append(numbered(2))
    await store.new_epoch()
    located = await store.locate()
    await store.close()
    again = await kit.open()
    assert await again.locate() == located
    await again.append(numbered(1))
    assert [e.offset for e in await log_of(again)] == [3]


# --- Figures ---


async def test_stats_tell_what_is_there(kit: Kit, store: Store) -> None:
    await store.append([operation(id_="a"), operation(id_="b"), operation("delete", id_="a")])
    kit.clock_ms += 1
    await store.append([operation(id_="b")])
    await store.checkpoint()
    stats = await store.stats()
    assert (stats.operations, stats.states, stats.lag) == (4, 2, 0)
    async with asyncio.timeout(30):
        while stats.deleted is None:  # counted in the background
            stats = await store.stats()
    assert stats.deleted == 1
    assert (stats.oldest, stats.newest) == (Mark(1, START_MS), Mark(4, START_MS + 1))
    assert 0 < stats.bytes <= stats.max_bytes


# --- Another log in the place of the one that was read ---


async def test_a_read_that_knows_the_entry_it_starts_behind_goes_on_there_only(
    kit: Kit, store: Store
) -> None:
    begin = (await store.locate()).head
    await store.append(numbered(3))
    kit.clock_ms += 5
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
    store = await trimming_kit.open(SMALL)
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
    kit.clock_ms += 10
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
    kit.clock_ms = START_MS + 10_000
    await store.append([operation(id_="b")])
    kit.clock_ms = START_MS + 20_000
    await store.append([operation(id_="c")])
    kit.clock_ms = START_MS + 500
    await store.new_epoch()
    assert (await store.locate()).set_aside == ((START_MS + 9_999, START_MS + 20_001),)
    kit.clock_ms = START_MS + 12_000
    await store.append([operation(id_="d")])
    await store.new_epoch()
    assert (await store.locate()).set_aside == ((START_MS + 12_000, START_MS + 20_001),)
    kit.clock_ms = START_MS + 30_000
    await store.new_epoch()
    assert (await store.locate()).set_aside == ()

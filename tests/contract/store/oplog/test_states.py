"""The states of every store, and the purge of tombstones."""

from hypothesis import given
from hypothesis import strategies as st

from oplogd.model.event_id import Mark
from oplogd.model.operation import Operation
from oplogd.store import Entry, StateCursor, Store
from tests.kits.clock.virtual import START_MS
from tests.kits.models.operations import fold, key_of, numbered, operation, operations
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


# --- States ---


async def test_the_checkpoint_holds_every_entry_that_was_there(store: Store) -> None:
    await store.append(numbered(5))
    assert await store.checkpoint() == Mark(5, START_MS)
    assert len(await states_of(store)) == 5


async def test_states_come_oldest_first_and_the_last_operation_decides(
    kit: Kit, store: Store
) -> None:
    await store.append([operation(id_="a"), operation(id_="b"), operation(id_="c")])
    kit.clock.ms += 1
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
        kit.clock.ms = START_MS + number
        await store.append(numbered(1, first=number))
    assert [key_of(s.data) for s in await states_of(store, since=START_MS + 1)] == [
        "video/1",
        "video/2",
    ]
    assert await states_of(store, since=START_MS + 3) == []


async def test_live_only_leaves_out_tombstones(store: Store) -> None:
    await store.append([operation(id_="a"), operation(id_="b"), operation("delete", id_="a")])
    assert [key_of(s.data) for s in await states_of(store, live_only=True)] == ["video/b"]
    assert set(known(await states_of(store))) == {"video/a", "video/b"}


async def test_deleted_only_leaves_out_live_objects(store: Store) -> None:
    await store.append([operation(id_=id_) for id_ in ("a", "b", "c", "d")])
    await store.append([operation("delete", id_="c"), operation("delete", id_="a")])
    upto = (await store.checkpoint()).offset
    first = await store.states(StateCursor(0, None), upto, 1, live_only=False, deleted_only=True)
    assert first.next is not None
    rest = await store.states(first.next, upto, 5, live_only=False, deleted_only=True)
    found = [*first.states, *rest.states]
    assert [key_of(state.data) for state in found] == ["video/c", "video/a"]
    assert all(state.deleted for state in found)


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


async def test_paging_is_not_disturbed_by_appends_meanwhile(kit: Kit, store: Store) -> None:
    await store.append(numbered(10))
    mark = await store.checkpoint()
    read: list[str] = []
    cursor: StateCursor | None = StateCursor(0, None)
    touched = 10
    while cursor:
        states, cursor = await store.states(cursor, mark.offset, live_only=True, limit=2)
        read += [key_of(s.data) for s in states]
        kit.clock.ms += 1
        await store.append([operation("update", id_=str(touched))])
        touched -= 1
    untouched = [f"video/{number}" for number in range(1, touched + 1)]
    assert sorted(read) == sorted({*read, *untouched}), (
        "each at most once, and none that was left alone is missing"
    )


# Few long examples: a new store costs as much as five batches.
@examples(0.14)
@given(
    batches=st.lists(st.lists(operations(), max_size=5), min_size=3, max_size=9),
    ticks=st.lists(st.integers(-5, 5), min_size=9),
)
async def test_states_are_the_fold_of_the_log(
    kits: Kits, batches: list[list[Operation]], ticks: list[int]
) -> None:
    async with kits() as kit:
        store = await kit.open()
        log: list[Entry] = []
        for batch, tick in zip(batches, ticks, strict=False):
            kit.clock.ms += tick
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


# --- The purge ---


async def test_a_purge_forgets_deleted_states_of_before_and_records_it(
    kit: Kit, store: Store
) -> None:
    await store.append(
        [operation(id_="a"), operation(id_="b"), operation(id_="c"), operation("delete", id_="a")]
    )
    kit.clock.ms += 10
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

"""Look-ups of objects in every store: one, and pages in the order of their keys."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.model.event_id import Mark
from oplogd.model.operation import Operation
from oplogd.store import Store
from oplogd.store.objects import FEW_KEYS, ObjectState
from oplogd.stream.ring.filters import Filter
from tests.kits.clock.virtual import START_MS
from tests.kits.models.operations import key_of, numbered, operation
from tests.kits.models.properties import examples
from tests.kits.store.kits import Kit, Kits

EVERYTHING = Filter()
# Their keys are not in the order of the types: '-' and '.' are before '/', digits behind it.
TYPES = ("a", "a-b", "a.b", "a0", "b", "\N{OCTOPUS}", "\u00e9")
IDS = ("1", "2/3", "2-3", "\N{OCTOPUS}", "\u00e9")


async def paged(
    store: Store, filter_: Filter, limit: int = 3, after: str = ""
) -> list[ObjectState]:
    """Return all objects past a key, read page by page."""
    found: list[ObjectState] = []
    while True:
        page = await store.objects.page(after, limit, filter_)
        assert len(page.states) <= limit
        found += page.states
        if page.next is None:
            return found
        assert page.next > after, "no progress"
        after = page.next


def keys(states: Sequence[ObjectState]) -> list[str]:
    return [state.key for state in states]


async def test_an_object_is_found_with_its_last_operation(kit: Kit, store: Store) -> None:
    await store.append([operation(id_="a/b"), operation(id_="c")])
    kit.clock.ms += 1
    await store.append(
        [operation("update", id_="a/b", parents=["new"]), operation("delete", id_="c")]
    )
    await store.checkpoint()
    assert await store.objects.find("video", "a/b") == ObjectState(
        "video/a/b",
        Mark(3, START_MS + 1),
        False,
        operation(id_="a/b", parents=["new"]).data.decode(),
    )
    assert await store.objects.find("video", "c") == ObjectState(
        "video/c", Mark(4, START_MS + 1), True, operation(id_="c").data.decode()
    )
    for unknown in ("a", "a/", "A/b", "a/b/", ""):
        assert await store.objects.find("video", unknown) is None


async def test_a_store_without_objects_has_one_empty_page(store: Store) -> None:
    await store.checkpoint()
    assert await store.objects.page("", 10, EVERYTHING) == ([], None)
    assert await store.objects.page("", 10, Filter(frozenset({"a", "b"}))) == ([], None)
    assert await store.objects.find("video", "a") is None


async def test_pages_are_sorted_by_key_and_leave_out_deleted_objects(store: Store) -> None:
    made = [operation(type_=type_, id_=id_) for type_ in TYPES for id_ in IDS]
    await store.append([*made, operation("delete", "a", "1"), operation("delete", "b", "\u00e9")])
    await store.checkpoint()
    there = sorted({each.key for each in made} - {"a/1", "b/\u00e9"})
    for limit in (1, 2, 7, 1000):
        assert keys(await paged(store, EVERYTHING, limit)) == there
    for after in ("a", "a/2", "a/2/3", "b/", there[-1]):
        past = [key for key in there if key > after]
        assert keys(await paged(store, EVERYTHING, after=after)) == past


async def test_a_page_looks_at_few_states_and_says_where_the_next_one_begins(
    store: Store,
) -> None:
    await store.append([*numbered(30, type_="a"), operation(type_="b", parents=["x"])])
    await store.checkpoint()
    rare = Filter(parents=frozenset({"x"}))
    first = await store.objects.page("", 10, rare)
    assert (first.states, first.next) == ([], sorted(map(str, range(1, 31)))[9].join(["a/", ""]))
    assert keys(await paged(store, rare, 10)) == ["b/a"]
    many = Filter(frozenset(f"none{number}" for number in range(30)))
    first = await store.objects.page("", 10, many)
    assert first.states == []
    assert first.next is not None
    assert await paged(store, many, 10) == []


async def test_types_and_ids_are_looked_up_by_their_keys(store: Store) -> None:
    await store.append([*numbered(30, type_="a"), *numbered(30, type_="b")])
    await store.checkpoint()
    wanted = Filter(frozenset({"b", "a", "c"}), ids=frozenset({"7", "30", "none"}))
    page = await store.objects.page("", 9, wanted)
    assert (keys(page.states), page.next) == (["a/30", "a/7", "b/30", "b/7"], None)
    page = await store.objects.page("a/30", 2, wanted)
    assert (keys(page.states), page.next) == (["a/7"], "a/none")


async def test_more_keys_than_are_worth_a_look_up_are_searched(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oplogd.store.objects._MAX_KEYS", 1)
    await store.append([*numbered(9, type_="a"), *numbered(9, type_="b")])
    await store.checkpoint()
    wanted = Filter(frozenset({"a", "b"}), ids=frozenset({"7", "none"}))
    assert keys(await paged(store, wanted)) == ["a/7", "b/7"]


@pytest.mark.parametrize("types", [frozenset[str](), frozenset({"a"})])
async def test_a_page_of_long_objects_ends_early(store: Store, types: frozenset[str]) -> None:
    made = [
        operation(type_="a", id_=f"{number:02}", parents=["x" * 60_000]) for number in range(40)
    ]
    await store.append(made)
    await store.checkpoint()
    for filter_ in (Filter(types), Filter(types, ids=frozenset(f"{n:02}" for n in range(40)))):
        page = await store.objects.page("", 1000, filter_)
        assert 15 <= len(page.states) <= 32
        assert page.next == page.states[-1].key
        assert keys(await paged(store, filter_, 1000)) == [each.key for each in made]


async def test_a_few_objects_are_all_found_however_long_they_are(store: Store) -> None:
    made = [operation(id_=f"{number:02}", parents=["x" * 65_000]) for number in range(FEW_KEYS)]
    await store.append([*made, operation("delete", id_="03")])
    await store.checkpoint()
    found = await store.objects.of_keys([each.key for each in made])
    assert [state.key for state in found] == [each.key for each in made]
    assert [state.key for state in found if state.deleted] == ["video/03"]
    assert await store.objects.of_keys(["video/none", "a/00"]) == []


sets = st.tuples(
    st.just([]) | st.lists(st.sampled_from([*TYPES, "none"]), max_size=3),
    st.just([]) | st.lists(st.sampled_from([*IDS, "none"]), max_size=3),
    st.just([]) | st.lists(st.sampled_from(["x", "y"]), max_size=2),
)
made_of = st.builds(
    operation,
    st.sampled_from(["insert", "insert", "update", "delete"]),
    st.sampled_from(TYPES),
    st.sampled_from(IDS),
    st.lists(st.sampled_from(["x", "y", "z"]), max_size=2, unique=True),
)


@examples(0.6)
@given(st.lists(made_of, max_size=30), st.lists(sets, min_size=1, max_size=4), st.integers(1, 9))
async def test_pages_hold_exactly_the_selected_objects(
    kits: Kits,
    made: list[Operation],
    asked: list[tuple[list[str], list[str], list[str]]],
    limit: int,
) -> None:
    async with kits() as kit:
        store = await kit.open()
        await store.append(made)
        await store.checkpoint()
        last = {each.key: (offset, each) for offset, each in enumerate(made, 1)}
        for types, ids, parents in asked:
            wanted = {
                key: (offset, each.data.decode())
                for key, (offset, each) in last.items()
                if each.event != "delete"
                and (not types or key.partition("/")[0] in types)
                and (not ids or key.partition("/")[2] in ids)
                and (not parents or any(f'"{parent}"'.encode() in each.data for parent in parents))
            }
            filter_ = Filter(frozenset(types), frozenset(parents), ids=frozenset(ids))
            found = await paged(store, filter_, limit)
            assert [(key_of(each.data), each.mark.offset, each.data) for each in found] == [
                (key, *wanted[key]) for key in sorted(wanted)
            ]

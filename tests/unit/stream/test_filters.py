"""Filters of a query, and the operations that pass them."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.errors import FilterError
from oplogd.model.operation import Data
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.filters import parse_filter as parse_up_to
from tests.kits.models.properties import examples

ALL: frozenset[str] = frozenset()


def parse_filter(types: Sequence[str], parents: Sequence[str]) -> Filter:
    return parse_up_to(types, parents, 10)


@pytest.mark.parametrize(
    ("given_", "types", "parents"),
    [
        ([], ALL, ALL),
        ([""], ALL, ALL),
        ([","], ALL, ALL),
        (["a"], {"a"}, {"a"}),
        (["a,b"], {"a", "b"}, {"a", "b"}),
        (["a,,b,"], {"a", "b"}, {"a", "b"}),
        (["a,a"], {"a"}, {"a"}),
        (["a", "b"], {"a", "b"}, {"a", "b"}),
        (["a,b", "c"], {"a", "b", "c"}, {"a,b", "c"}),
        (["a,b", ""], {"a", "b"}, {"a,b"}),
        (["a b"], {"a b"}, {"a b"}),
    ],
)
def test_one_value_is_a_list_and_a_repeated_one_of_parents_may_hold_a_comma(
    given_: list[str], types: set[str], parents: set[str]
) -> None:
    assert parse_filter(given_, []) == Filter(frozenset(types), ALL)
    assert parse_filter([], given_) == Filter(ALL, frozenset(parents))


def test_types_are_compared_in_lower_case_and_parents_as_they_are() -> None:
    assert parse_filter(["Video,USER"], ["User/A"]) == Filter(
        frozenset({"video", "user"}), frozenset({"User/A"})
    )


@pytest.mark.parametrize("types", [["x" * 255], ["video,user", "x" * 255], ["\N{OCTOPUS}" * 63]])
def test_a_type_may_have_as_many_bytes_as_that_of_an_operation(types: list[str]) -> None:
    assert parse_filter(types, [])


@pytest.mark.parametrize("types", [["x" * 256], ["video," + "x" * 256], ["\N{OCTOPUS}" * 64]])
def test_a_longer_type_is_refused_by_name(types: list[str]) -> None:
    with pytest.raises(
        FilterError, match=r"^types: a value has \d+ bytes; no type has more than 255"
    ):
        parse_filter(types, ["x"])


@pytest.mark.parametrize("parents", [["x" * 65_536], ["x" * 65_536, "y"], ["\N{OCTOPUS}" * 16_384]])
def test_a_parent_may_have_as_many_bytes_as_an_operation(parents: list[str]) -> None:
    assert parse_filter([], parents)


@pytest.mark.parametrize("parents", [["a," + "x" * 65_537], ["\N{OCTOPUS}" * 16_385]])
def test_a_longer_parent_is_refused_by_name(parents: list[str]) -> None:
    with pytest.raises(FilterError, match=r"^parents: .* bytes; no parent has more than 65,536"):
        parse_filter([], parents)


@pytest.mark.parametrize(
    ("types", "parents", "field"),
    [
        (["a,b,c,d"], [], "types"),
        ([], ["a,b,c,d"], "parents"),
        ([], ["a", "b", "c", "d"], "parents"),
        (["a", "b"], ["a", "b"], "types and parents"),
    ],
)
def test_more_values_than_allowed_are_refused_with_the_flag(
    types: list[str], parents: list[str], field: str
) -> None:
    with pytest.raises(FilterError) as refused:
        parse_up_to(types, parents, 3)
    assert str(refused.value) == f"{field}: are 4 values, more than 3 (--max-filter-values)"
    assert refused.value.field == field
    assert parse_up_to(types, parents, 4)


def test_equal_and_empty_values_count_once_and_not_at_all() -> None:
    assert parse_up_to(["a,A,,a"], ["b", "", "b"], 2)


def test_half_a_surrogate_pair_is_counted() -> None:
    assert parse_filter([], ["\ud800"]).parents == {"\ud800"}


def sets(*names_: str) -> frozenset[str]:
    return frozenset(names_)


@pytest.mark.parametrize(
    ("given_", "events"),
    [
        ([], ALL),
        ([""], ALL),
        (["insert"], {"insert"}),
        (["Insert,DELETE", "delete"], {"insert", "delete"}),
        (["update,", "insert"], {"insert", "update"}),
        (["delete", "insert,update"], ALL),
    ],
)
def test_events_are_a_list_in_any_case_and_all_of_them_are_no_filter(
    given_: list[str], events: set[str]
) -> None:
    assert parse_up_to([], [], 10, events=given_) == Filter(events=frozenset(events))


@pytest.mark.parametrize("events", [["upsert"], ["insert", "insert;delete"], ["live"]])
def test_an_unknown_event_is_refused_by_name(events: list[str]) -> None:
    with pytest.raises(FilterError, match=r"^events: each must be insert, update or delete$"):
        parse_up_to([], [], 10, events=events)


def test_one_value_of_ids_is_a_list_and_a_repeated_one_may_hold_a_comma() -> None:
    assert parse_up_to([], [], 10, ids=["A,b"]) == Filter(ids=sets("A", "b"))
    assert parse_up_to([], [], 10, ids=["A,b", "c/d"]) == Filter(ids=sets("A,b", "c/d"))


def test_an_id_may_have_as_many_bytes_as_that_of_an_object() -> None:
    assert parse_up_to([], [], 10, ids=["x" * 1024])
    with pytest.raises(FilterError, match=r"^ids: .* 1,025 bytes; no id has more than 1,024"):
        parse_up_to([], [], 10, ids=["x" * 1025])


def test_types_parents_and_ids_are_bounded_together() -> None:
    with pytest.raises(FilterError, match=r"^types, parents and ids: are 4 values, more than 3 "):
        parse_up_to(["a"], ["b"], 3, ids=["c", "d"])
    assert parse_up_to(["a"], ["b"], 4, ids=["c", "d"], events=["delete"])


@pytest.mark.parametrize(
    ("before", "types", "parents", "after"),
    [
        (Filter(), None, None, Filter()),
        (Filter(), sets("a"), sets("x"), Filter(sets("a"), sets("x"))),
        (Filter(sets("a", "b")), sets("b", "c"), None, Filter(sets("b"))),
        (Filter(sets("a")), sets("b"), None, Filter(sets("/"))),
        (Filter(), sets(), None, Filter(sets("/"))),
        (Filter(parents=sets("x")), None, sets(), Filter(sets("/"))),
        (Filter(sets("/")), sets("a"), sets("x"), Filter(sets("/"))),
        (Filter(sets("/")), None, sets("x"), Filter(sets("/"))),
        (
            Filter(parents=sets("x", "y")),
            None,
            sets("y", "z"),
            Filter(parents=sets("x", "y"), within=sets("y", "z")),
        ),
        (Filter(committed=True), sets(), None, Filter(sets("/"), committed=True)),
        (Filter(parents=sets("x")), None, sets("x", "y"), Filter(parents=sets("x"))),
        (Filter(parents=sets("x", "y")), None, sets("x"), Filter(parents=sets("x"))),
        (
            Filter(parents=sets("x"), ids=sets("1"), events=sets("delete")),
            None,
            sets("y"),
            Filter(parents=sets("x"), within=sets("y"), ids=sets("1"), events=sets("delete")),
        ),
        (
            Filter(parents=sets("x", "y"), within=sets("y", "z")),
            None,
            sets("y"),
            Filter(parents=sets("y")),
        ),
        (
            Filter(parents=sets("x", "y"), within=sets("z", "w")),
            None,
            sets("z"),
            Filter(parents=sets("x", "y"), within=sets("z")),
        ),
    ],
)
def test_a_narrowed_filter_has_one_form(
    before: Filter,
    types: frozenset[str] | None,
    parents: frozenset[str] | None,
    after: Filter,
) -> None:
    assert before.narrowed(types, parents) == after


def test_a_filter_that_passes_nothing_wants_no_state() -> None:
    nothing = Filter().narrowed(sets(), None)
    assert (nothing.wants_live, nothing.wants_deleted) == (False, False)


def test_a_third_set_of_parents_is_refused() -> None:
    with pytest.raises(ValueError, match="two sets of parents"):
        Filter(parents=sets("x"), within=sets("y")).narrowed(None, sets("z"))


@pytest.mark.parametrize(
    ("events", "live", "deleted"),
    [
        (sets(), True, True),
        (sets("insert"), True, False),
        (sets("update"), True, False),
        (sets("delete"), False, True),
        (sets("update", "delete"), True, True),
    ],
)
def test_a_live_state_stands_for_inserts_and_updates(
    events: frozenset[str], live: bool, deleted: bool
) -> None:
    filter_ = Filter(events=events)
    assert (filter_.wants_live, filter_.wants_deleted) == (live, deleted)
    data = Data("", [], "a", "1")
    assert filter_.matches_state(data, deleted=False) == live
    assert filter_.matches_state(data, deleted=True) == deleted


names = st.sampled_from(["a", "b", "c", "d"])


few = st.frozensets(names, max_size=3)


@examples(4)
@given(few, few, st.none() | few, st.none() | few, names, st.lists(names))
def test_a_narrowed_filter_passes_what_both_the_query_and_the_right_pass(
    types: frozenset[str],
    parents: frozenset[str],
    right_types: frozenset[str] | None,
    right_parents: frozenset[str] | None,
    type_: str,
    its_parents: list[str],
) -> None:
    data = Data("", its_parents, type_, "id")
    allowed = (right_types is None or type_ in right_types) and (
        right_parents is None or any(parent in right_parents for parent in its_parents)
    )
    query = Filter(types, parents)
    narrowed = query.narrowed(right_types, right_parents)
    assert narrowed.matches("insert", data) == (query.matches("insert", data) and allowed)


@examples(2)
@given(st.frozensets(names), st.frozensets(names), names, st.lists(names))
def test_an_operation_passes_by_its_type_and_by_any_parent(
    types: frozenset[str], parents: frozenset[str], type_: str, its_parents: list[str]
) -> None:
    by_type = len(types) == 0 or type_ in types
    by_parent = len(parents) == 0 or any(parent in parents for parent in its_parents)
    data = Data("", its_parents, type_, "id")
    assert Filter(types, parents).matches("insert", data) == (by_type and by_parent)

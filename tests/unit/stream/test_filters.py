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


names = st.sampled_from(["a", "b", "c", "d"])


@examples(2)
@given(st.frozensets(names), st.frozensets(names), names, st.lists(names))
def test_an_operation_passes_by_its_type_and_by_any_parent(
    types: frozenset[str], parents: frozenset[str], type_: str, its_parents: list[str]
) -> None:
    by_type = len(types) == 0 or type_ in types
    by_parent = len(parents) == 0 or any(parent in parents for parent in its_parents)
    data = Data("", its_parents, type_, "id")
    assert Filter(types, parents).matches(data) == (by_type and by_parent)

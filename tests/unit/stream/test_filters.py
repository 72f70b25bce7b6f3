"""Filters of a query, and the operations that pass them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.operation import Data
from oplogd.stream.filters import Filter, parse_filter
from tests.kits.models.properties import examples

ALL: frozenset[str] = frozenset()


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

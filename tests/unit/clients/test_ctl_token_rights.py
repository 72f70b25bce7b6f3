"""The Python client, which comes without the agent, judges rights as the agent does."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from oplogc.ctl.token import rights
from oplogd.errors import RightError
from oplogd.web.access import right_bodies

# fmt: off
TEXTS = st.sampled_from([
    "*", "a/*", "a/b", "a", "a*", ".*", "..", "./a", "a/..", "", "a/b/c", "a,b", "é", "*/a", "a\0",
    "x" * 249, "x" * 250, f"{'x' * 248}*", f"{'x' * 249}*", f"a/{'x' * 250}", "é" * 128, "\udc80",
])
# fmt: on
MEMBERS = st.sampled_from([*rights.MEMBERS, *rights.MEMBERS, "reed"])
LISTS: st.SearchStrategy[Any] = st.one_of(
    st.lists(TEXTS, max_size=3), st.sampled_from([None, "a/b", [1], {}])
)
# More values than a right may have, spread over members.
MANY = st.dictionaries(
    st.sampled_from(rights.MEMBERS),
    st.sampled_from([49, 50, 51, 500, 501]).map(lambda count: ["a"] * count),
)
BODIES = st.one_of(st.dictionaries(MEMBERS, LISTS, max_size=4), MANY, st.sampled_from([None, []]))


@given(BODIES)
def test_a_right_is_taken_or_refused_as_by_an_agent(body: Any) -> None:
    try:
        taken = right_bodies.right_of(body)
    except RightError:
        taken = None
    try:
        found = rights.right_of(body)
    except rights.RightError:
        found = None
    assert (found is None) == (taken is None)
    if found is not None:
        assert right_bodies.right_of(found) == taken


def test_the_bounds_are_those_of_agents() -> None:
    assert rights.MAX_PATTERNS == right_bodies.MAX_PATTERNS
    assert rights.MAX_VALUES == right_bodies.MAX_VALUES
    for count in (100, 101):
        body = {"read": ["a/b"] * (count - 1), "leases": ["a"]}
        for right_of, error in (
            (rights.right_of, rights.RightError),
            (right_bodies.right_of, RightError),
        ):
            try:
                right_of(body)
                refused = False
            except error:
                refused = True
            assert refused == (count > 100)

"""The answer of ``/status`` as lines: any JSON is shown or refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogc.ctl.status.lines import consumer_lines, status_lines
from oplogc.ctl.status.members import unexpected_member
from tests.kits.models.properties import examples

LAG = {"operations": 3, "seconds": 1.5}
CONSUMER = {
    "name": "search", "topic": "shop/orders", "held_by": None, "address": "[::1]:5",
    "filter": {"types": ["video"], "parents": [], "left_out": 0}, "phase": "live", "lag": LAG,
    "sent": 5,
}  # fmt: skip
STATUS = {
    "status": "OK", "version": "1", "uptime_seconds": 5.5,
    "store": {"kind": "sqlite", "ops": 5, "live": None, "deleted": None, "warnings": ["full"]},
    "topics": {"count": 1, "messages_published": 2}, "consumer_lag": LAG, "events_received": 5,
    "queue_size": 1, "queue_max_size": 2, "clients": 1,
    "consumers": [CONSUMER], "consumers_left_out": 0, "ring": None,
}  # fmt: skip


def test_an_answer_of_an_agent_has_no_unexpected_member() -> None:
    assert unexpected_member(STATUS) == ""
    assert unexpected_member({"status": "OK"}) == ""


@pytest.mark.parametrize(
    ("member", "named"),
    [
        ({"store": None}, "store"),
        ({"store": {"warnings": "full"}}, "store.warnings"),
        ({"store": {"warnings": [5]}}, "store.warnings[0]"),
        ({"topics": []}, "topics"),
        ({"consumer_lag": {"seconds": "x"}}, "consumer_lag.seconds"),
        ({"queue_size": "x"}, "queue_size"),
        ({"queue_size": True}, "queue_size"),
        ({"uptime_seconds": float("inf")}, "uptime_seconds"),
        ({"consumer_lag": {"seconds": 10**400}}, "consumer_lag.seconds"),
        ({"consumers": {}}, "consumers"),
        ({"consumers": [CONSUMER, 5]}, "consumers[1]"),
        ({"consumers": [{"filter": None}]}, "consumers[0].filter"),
        ({"consumers": [{"filter": {"left_out": "x"}}]}, "consumers[0].filter.left_out"),
        ({"consumers": [{"sent": None}]}, "consumers[0].sent"),
        ({"consumers_left_out": "x"}, "consumers_left_out"),
    ],
)
def test_an_unexpected_member_is_named(member: dict[str, Any], named: str) -> None:
    assert unexpected_member({**STATUS, **member}) == named


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from([*STATUS, *CONSUMER, *LAG, "kind", "count"]), inner)
    ),
    max_leaves=8,
)


@examples(3)
@given(st.dictionaries(st.sampled_from(list(STATUS)), values))
def test_any_answer_is_shown_or_refused(members: dict[str, Any]) -> None:
    status = {**members, "status": "OK"}
    if not unexpected_member(status):
        assert list(status_lines(status))
        consumer_lines(status.get("consumers", []))


def test_escaped_characters_do_not_shift_the_columns() -> None:
    filtered = {**CONSUMER, "filter": {"types": ["a\x1b\n"]}}
    lines = consumer_lines([filtered, CONSUMER])
    assert r"(a\x1b\n)" in lines[1]
    assert lines[0].index("LAG") == lines[1].index("3 (1.5 s)") == lines[2].index("3 (1.5 s)")

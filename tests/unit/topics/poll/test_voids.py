"""Rows of entries without messages are remembered, several per topic, up to a bound."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.model.transaction import Isolation
from oplogd.topics import poller
from oplogd.topics.counters import TopicCounters
from oplogd.topics.gathering import MAX_ROWS, NO_VOIDS, Void, Voids
from oplogd.topics.known import KnownTopics
from tests.kits.models.properties import examples


def of(*rows: tuple[int, int]) -> Voids:
    found = NO_VOIDS
    for row in rows:
        found = found.adding(Void(*row))
    return found


@pytest.mark.parametrize(
    ("rows", "united"),
    [
        ([(5, 9), (20, 30)], [(5, 9), (20, 30)]),
        ([(20, 30), (5, 9)], [(5, 9), (20, 30)]),
        ([(5, 9), (9, 12)], [(5, 12)]),
        ([(5, 9), (10, 12)], [(5, 9), (10, 12)]),
        ([(5, 9), (7, 12), (11, 30)], [(5, 30)]),
        ([(5, 9), (20, 30), (8, 21)], [(5, 30)]),
        ([(5, 30), (8, 21)], [(5, 30)]),
        ([(5, 9), (5, 9)], [(5, 9)]),
    ],
)
def test_rows_that_touch_are_one(
    rows: list[tuple[int, int]], united: list[tuple[int, int]]
) -> None:
    assert list(of(*rows).rows) == united


small = st.integers(0, 60)


@examples()
@given(st.lists(st.tuples(small, st.integers(1, 15)), max_size=12), small)
def test_a_poll_passes_over_what_is_in_a_row_and_nothing_else(
    rows: list[tuple[int, int]], offset: int
) -> None:
    empty = {each for after, length in rows for each in range(after + 1, after + length + 1)}
    expected = offset
    while expected + 1 in empty:
        expected += 1
    assert of(*((after, after + length) for after, length in rows)).pass_over(offset) == expected


def test_the_shortest_of_too_many_rows_is_forgotten() -> None:
    rows = [(1000 * number, 1000 * number + 100 + number) for number in range(MAX_ROWS)]
    assert list(of(*rows, (999_000, 999_101)).rows) == [*rows[1:], (999_000, 999_101)]
    assert list(of(*rows, (999_000, 999_099)).rows) == rows


def test_the_rows_of_all_topics_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller, "_MAX_ROWS", 5)
    topics: Any = None
    remembering = poller.Poller(topics, KnownTopics(topics), TopicCounters(), 1)
    for log in range(20):
        for row in ((0, 1000), (2000, 3000), (900, 1000)):
            remembering._remember((log, Isolation.READ_COMMITTED), of(row))
        assert 2 <= sum(len(each.rows) for each in remembering._voids.values()) <= 6

"""The limits of consumers hold for all workers together, exactly."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.shared.places import OwnPlaces, SharedPlaces
from tests.kits.models.properties import examples
from tests.unit.workers import rivals

MANY = 1_000
hosts = st.sampled_from(["10.0.0.1", "10.0.0.2", "2001:db8::1", "", "é" * 5_000, "\ud800"])


@examples()
@given(
    steps=st.lists(st.tuples(st.integers(0, 2), hosts, st.booleans()), max_size=80),
    most=st.integers(1, 12),
    most_per_host=st.integers(0, 4),
)
def test_several_workers_decide_as_one(
    steps: list[tuple[int, str, bool]], most: int, most_per_host: int
) -> None:
    """A step: the worker, the host, and whether it takes a place."""
    shared, one = SharedPlaces(3, most), OwnPlaces()
    places = [shared.of(number) for number in range(3)]
    taken: Counter[tuple[int, str]] = Counter()
    for number, host, takes in steps:
        if takes:
            full = one.take(host, most, most_per_host)
            assert places[number].take(host, most, most_per_host) == full
            taken[number, host] += full is None
        elif taken[number, host]:
            taken[number, host] -= 1
            places[number].free(host)
            one.free(host)
    assert sum(table.total for table in shared.tables) == taken.total()


@examples(0.5)
@given(
    keys=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=8, unique=True
    ),
    order=st.randoms(use_true_random=False),
)
def test_a_key_is_found_after_any_removal_of_those_it_collides_with(
    keys: list[tuple[int, int]], order: random.Random
) -> None:
    """A table of 16 slots, whose keys begin at neighbouring slots at its end."""
    [table] = SharedPlaces(1, 8).tables
    left = [((1 << 64) - 2 + first) % (1 << 64) for first, _ in keys]
    todo = list(zip(left, (second for _, second in keys), strict=True))
    for key in todo:
        table.add(key)
    order.shuffle(todo)
    while todo:
        table.remove(todo.pop())
        assert [table.count(key) for key in todo] == [1] * len(todo)
        assert table.total == len(todo)


def test_all_places_can_be_taken_by_as_many_hosts_at_one_worker() -> None:
    places = SharedPlaces(2, MANY).of(1)
    assert [places.take(f"h{n}", MANY, 1) for n in range(MANY)] == [None] * MANY
    assert places.take("one more", MANY, 1) == "max_clients"
    assert places.take("one more", 10**18, 1) == "max_clients"
    for number in range(MANY):
        places.free(f"h{number}")
    assert places.take("one more", 1, 1) is None


def test_any_limit_makes_a_table_of_bounded_size() -> None:
    assert SharedPlaces(1, 10**18 - 1).capacity == 1 << 20


@pytest.mark.process
def test_two_processes_that_connect_at_once_never_exceed_a_limit() -> None:
    assert rivals.result_of(rivals.places_at_once) == [[0, 0], [0, 0]]


@pytest.mark.process
def test_a_killed_worker_gives_back_its_places_when_it_is_settled() -> None:
    """It is killed while it holds the lock."""
    assert rivals.result_of(rivals.places_of_a_killed_worker) == [
        "max_clients",
        "max_clients_per_address",
        None,
        None,
        "max_clients",
    ]

"""When the next worker of a place starts, and when there is none."""

import socket

import pytest

from oplogd.listen import Listeners
from oplogd.supervise.place import MAX_FAILURES, Place, State


@pytest.fixture
def place() -> Place:
    return Place(0, Listeners([], []))


def begin(place: Place) -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours:
        place.began(1, ours)


def test_a_worker_that_never_serves_is_tried_three_times(place: Place) -> None:
    for attempt in range(1, MAX_FAILURES + 1):
        begin(place)
        assert place.has_died(100.0) == (attempt < MAX_FAILURES)


def test_serving_forgives_failed_starts(place: Place) -> None:
    for _ in range(2):
        begin(place)
        place.has_died(100.0)
    begin(place)
    place.serves(100.0)
    assert place.has_died(101.0)
    begin(place)
    assert place.has_died(102.0)


def test_pauses_grow_up_to_five_seconds_and_a_worker_that_lived_resets_them(place: Place) -> None:
    pauses = []
    for _ in range(8):
        begin(place)
        place.serves(100.0)
        place.has_died(100.0)
        pauses.append(place.start_at - 100.0)
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])
    begin(place)
    place.serves(100.0)
    place.has_died(110.0)
    assert place.start_at == pytest.approx(110.1)


def test_a_place_lives_from_its_fork_to_its_end(place: Place) -> None:
    assert not place.lives
    begin(place)
    assert place.lives
    place.serves(1.0)
    assert place.lives
    place.has_died(1.0)
    assert not place.lives
    assert place.state is State.WAITS

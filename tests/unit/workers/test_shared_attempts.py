"""Guesses of passwords are limited for all workers together as for one process."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.shared.journal import Journal
from oplogd.web.access.guesses import attempts
from oplogd.web.access.guesses.attempts import ADDRESS, CELL, AttemptLimiter, MemoryBounds
from oplogd.web.access.guesses.buckets import AttemptLimit
from oplogd.web.access.guesses.shared_attempts import SharedAttempts
from tests.kits.clock.virtual import VirtualClock
from tests.kits.models.properties import examples
from tests.unit.workers import rivals

KEY = b"of the cells"
HERE = "192.0.2.1"
ADDRESSES = ["10.0.0.1", "10.0.0.2", "10.0.1.1", "10.1.0.1", "2a00::1", "2a00:0:0:1::1", "x", ""]
# Few of everything, so that each limit is reached and each table drops its oldest.
SMALL = MemoryBounds(buckets=2, known=3, remembered=4, remembered_per_address=2)


@examples(4)
@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from(ADDRESSES),
            st.sampled_from([b"right", b"a", b"b", b"c", b"new", b"new", b"new"]),
            st.sampled_from([0.0, 0.0, 0.5, 3.0, 60.0]),
            st.sampled_from([False] * 9 + [True]),
        ),
        max_size=80,
    ),
    changes=st.sampled_from([100, 300, 1 << 18]),
)
def test_workers_decide_as_one_limiter_would(
    steps: list[tuple[int, str, bytes, float, bool]], changes: int
) -> None:
    """A step: the worker, the address, the password, the pause before, a restart before.

    ``changes``: a snapshot is made after each change, after few, or never.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attempts, "EVERYBODY", AttemptLimit(12, 1.0))
        patch.setattr(attempts, "CELLS", 2)
        clock = VirtualClock()
        one = AttemptLimiter(clock.monotonic, SMALL, KEY)
        journal = Journal(changes, 1 << 16)

        def worker() -> SharedAttempts:
            return SharedAttempts(journal, KEY, clock.monotonic, SMALL)

        workers = [worker() for _ in range(3)]
        for place, (number, address, password, pause, restarts) in enumerate(steps):
            clock.move(pause)
            if restarts:
                workers[number] = worker()
            attempt = b"%d" % place if password == b"new" else password
            is_right = password == b"right"
            expected = one.judge(address, attempt, is_right=is_right)
            assert workers[number].judge(address, attempt, is_right=is_right) == expected
        successor = worker()
        with successor._copy.turn():
            assert successor._limiter.state == one.state


@pytest.fixture
def pair() -> tuple[SharedAttempts, SharedAttempts]:
    journal = Journal()
    return SharedAttempts(journal, KEY, lambda: 0.0), SharedAttempts(journal, KEY, lambda: 0.0)


def test_the_right_password_of_a_known_address_needs_no_turn(
    pair: tuple[SharedAttempts, SharedAttempts], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    assert one.judge(HERE, b"right", is_right=True) == 0
    assert other.judge(HERE, b"right", is_right=True) == 0  # it learns that the address is known

    def no_turn() -> Any:
        raise AssertionError

    for each in pair:
        monkeypatch.setattr(each._copy, "turn", no_turn)
        assert each.judge(HERE, b"right", is_right=True) == 0


def test_a_state_too_large_for_a_snapshot_forgets_wrong_attempts_but_no_guess() -> None:
    journal = Journal(changes=300, snapshot=6_000)
    one, other = (SharedAttempts(journal, KEY, lambda: 0.0) for _ in range(2))
    addresses = [f"10.{number}.0.1" for number in range(10)]
    for address in addresses:
        for number in range(ADDRESS.burst):
            wrong = f"{address} {number}".encode().ljust(32)
            assert one.judge(address, wrong, is_right=False) == 0
    for worker in (one, other):
        waits = [worker.judge(each, b"new".ljust(32), is_right=False) for each in addresses]
        assert waits == [ADDRESS.seconds] * len(addresses)
    assert one._limiter.state == other._limiter.state


@pytest.mark.process
def test_two_processes_check_together_the_guesses_that_one_would_check() -> None:
    assert rivals.result_of(rivals.guesses_at_once) == rivals.GUESSERS * ADDRESS.burst


@pytest.mark.process
def test_a_killed_worker_takes_no_guess_and_no_known_address_with_it() -> None:
    """It is killed while it holds the lock."""
    known_guesser, known, stranger = rivals.result_of(rivals.guesses_after_a_kill)
    assert (known_guesser, known, stranger) == (ADDRESS.seconds, 0, CELL.burst)

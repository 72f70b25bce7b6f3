"""The rule of the guarded time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.clock.rule import (
    FAR_MS,
    FOLLOW_MS,
    REMOVE_MS,
    STEP_MS,
    ClockReading,
    Guarded,
    Saved,
    begin,
    judge,
    removal_ms,
    save,
)

START = 1_700_000_000_000
HOUR = 3_600_000
DAY = 24 * HOUR


class Clocks:
    """Both clocks, and what the rule makes of them. Times are told from ``START`` on."""

    def __init__(self, saved: Saved | None = None) -> None:
        self.wall, self.boot = START, 5_000
        self.guarded = begin(ClockReading(self.wall, self.boot), saved)

    def move(self, passed: int, step: int = 0) -> tuple[int, int]:
        """Let time pass, then set the wall clock. Return the times of stamps and of removals."""
        self.wall += passed + step
        self.boot += passed
        self.guarded = judge(self.guarded, ClockReading(self.wall, self.boot))
        return self.times, self.removals

    def stand(self, ms: int) -> tuple[int, int]:
        """Let time pass in steps of a second, as a running agent looks."""
        for _ in range(ms // 1000):
            self.move(1000)
        return self.times, self.removals

    @property
    def times(self) -> int:
        return self.guarded.times.ms - START

    @property
    def removals(self) -> int:
        return removal_ms(self.guarded, self.wall) - START

    @property
    def waiting(self) -> tuple[bool, bool]:
        return self.guarded.times.lead is not None, self.guarded.removals.lead is not None


@pytest.mark.parametrize("difference", [1, STEP_MS - 1])
def test_a_small_difference_is_taken_at_once(difference: int) -> None:
    clocks = Clocks()
    assert clocks.move(1000, difference) == (1000 + difference, 1000 + difference)
    assert clocks.waiting == (False, False)


def test_after_a_small_step_back_the_time_stands_until_the_wall_clock_has_caught_up() -> None:
    clocks = Clocks()
    assert clocks.move(0, -3000) == (0, -3000)
    assert clocks.move(2999) == (0, -1)
    assert clocks.move(2) == (1, 1)
    assert clocks.waiting == (False, False)


def test_two_small_steps_back_are_a_step_together() -> None:
    clocks = Clocks()
    clocks.move(0, -3000)
    assert clocks.move(0, -3000) == (0, -6000)
    assert clocks.waiting == (True, True)


@pytest.mark.parametrize("step", [STEP_MS, -STEP_MS, DAY, -DAY, 10 * 365 * DAY])
def test_stamps_follow_a_step_after_one_minute_and_removals_after_ten(step: int) -> None:
    clocks = Clocks()
    earlier = min(step, 0)
    assert clocks.move(0, step) == (0, earlier)
    assert clocks.stand(FOLLOW_MS - 1000) == (FOLLOW_MS - 1000, FOLLOW_MS - 1000 + earlier)
    assert clocks.move(1000) == (FOLLOW_MS + step, FOLLOW_MS + earlier)
    assert clocks.waiting == (False, True)
    clocks.stand(REMOVE_MS - FOLLOW_MS - 1000)
    assert clocks.waiting == (False, True)
    assert clocks.removals == REMOVE_MS - 1000 + earlier
    assert clocks.move(1000) == (REMOVE_MS + step, REMOVE_MS + step)
    assert clocks.waiting == (False, False)


@pytest.mark.parametrize("stood", [1800, FOLLOW_MS + 1000, REMOVE_MS - 1000])
def test_a_clock_that_comes_back_ends_the_pause_at_once(stood: int) -> None:
    clocks = Clocks()
    clocks.move(0, 8 * DAY)
    clocks.stand(stood)
    passed = clocks.boot - 5_000
    assert clocks.move(0, -8 * DAY) == (passed, passed)
    assert clocks.waiting == (False, False)


def test_another_step_begins_the_minute_again() -> None:
    clocks = Clocks()
    clocks.move(0, HOUR)
    clocks.stand(FOLLOW_MS - 1000)
    clocks.move(0, HOUR)
    assert clocks.stand(FOLLOW_MS - 1000) == (2 * (FOLLOW_MS - 1000), 2 * (FOLLOW_MS - 1000))
    assert clocks.move(1000)[0] == 2 * FOLLOW_MS - 1000 + 2 * HOUR


def test_a_paused_process_and_a_machine_that_slept_are_no_step() -> None:
    clocks = Clocks()
    assert clocks.move(DAY) == (DAY, DAY)
    assert clocks.waiting == (False, False)


def test_a_reading_that_another_thread_hands_over_late_moves_nothing_back() -> None:
    clocks = Clocks()
    clocks.move(2000)
    assert judge(clocks.guarded, ClockReading(START + 1999, 6_999)).times.ms == START + 2000


@pytest.mark.parametrize(
    ("ago", "waiting"),
    [(FAR_MS, (False, False)), (FAR_MS + 1, (True, True)), (-DAY, (False, True))],
)
def test_a_start_far_from_the_stored_time_delays_removals(
    ago: int, waiting: tuple[bool, bool]
) -> None:
    then = START - ago
    clocks = Clocks(Saved(then, then, then, 0, 0))
    assert clocks.waiting == waiting
    assert clocks.times == (-ago if waiting[0] else 0)
    assert clocks.removals == (min(-ago, 0) if waiting[1] else 0)
    clocks.stand(REMOVE_MS)
    assert (clocks.removals, clocks.waiting) == (REMOVE_MS, (False, False))


@pytest.mark.parametrize("stood", [0, 30_000, 300_000])
def test_a_start_continues_the_pause_of_another_agent(stood: int) -> None:
    other = Clocks()
    other.move(0, 8 * DAY)
    other.stand(stood)
    clocks = Clocks()
    clocks.wall, clocks.boot = other.wall + 10_000, 77_000
    clocks.guarded = begin(ClockReading(clocks.wall, clocks.boot), save(other.guarded, other.wall))
    other.stand(10_000)
    assert (clocks.times, clocks.removals) == (other.times, other.removals)
    assert clocks.waiting == other.waiting
    for _ in range(700):
        assert clocks.move(1000) == other.move(1000)


def test_a_start_after_the_clock_came_back_does_not_continue_the_pause() -> None:
    other = Clocks()
    other.move(0, 8 * DAY)
    clocks = Clocks(save(other.guarded, other.wall))
    assert clocks.waiting == (False, False)
    assert clocks.times == 0


@pytest.mark.parametrize("away", [0, 300_000, 601_000])
def test_a_start_far_ahead_delays_removals_although_another_pause_was_kept(away: int) -> None:
    other = Clocks()
    other.move(0, 6_000)
    other.stand(61_000)
    clocks = Clocks(save(other.guarded, other.wall))
    clocks.wall = other.wall + away + 8 * DAY
    clocks.guarded = begin(ClockReading(clocks.wall, 5_000), save(other.guarded, other.wall))
    assert clocks.waiting[1]
    assert clocks.removals <= other.removals + away
    clocks.stand(REMOVE_MS - 1000)
    assert clocks.removals <= other.removals + away + REMOVE_MS
    clocks.move(1000)
    assert (clocks.removals, clocks.waiting) == (clocks.wall - START, (False, False))


def test_a_clock_that_is_put_right_by_small_steps_is_followed_at_last() -> None:
    clocks = Clocks()
    for _ in range(20):
        clocks.move(0, 6_000)
        clocks.stand(300_000)
    assert clocks.removals >= clocks.wall - START - 18_000
    clocks.stand(REMOVE_MS)
    assert (clocks.removals, clocks.waiting) == (clocks.wall - START, (False, False))


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2_000_000),
        st.one_of(st.just(0), st.integers(-10_000, 10_000), st.integers(-DAY, DAY)),
    ),
    max_size=40,
)


@given(STEPS)
def test_the_time_never_runs_back_and_never_leads_unless_it_follows(
    steps: list[tuple[int, int]],
) -> None:
    clocks = Clocks()
    before: Guarded
    for passed, step in steps:
        before = clocks.guarded
        clocks.move(passed, step)
        times, wall = clocks.guarded.times, clocks.wall
        has_stood = times.boot - before.times.since >= FOLLOW_MS
        # It may follow the nearer one of two new times while the other one waits.
        is_new = times.lead is None or (has_stood and times.since != before.times.since)
        follows = before.times.lead is not None and is_new
        removals = clocks.guarded.removals
        # The wall clock came back to what removals go by, which may be some seconds ago.
        is_back = removals.lead is None and times == removals
        is_step = abs(wall - before.times.ms - passed) >= STEP_MS
        if not follows and not (is_back and is_step):
            assert times.ms >= before.times.ms
            assert times.ms <= max(before.times.ms + passed, wall)
        if times.lead is None:
            assert 0 <= times.ms - wall < STEP_MS
        elif times.since == before.times.since:
            assert times.ms == before.times.ms + passed
        if follows and is_step and removals.lead is not None:
            assert times.boot - before.times.since >= FOLLOW_MS
        assert removal_ms(clocks.guarded, wall) <= wall

"""Ages over steps of the clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from oplogd.clock.ages import MAX_LEAD_MS, MOST_ERAS, Ages, Present

HOUR = 3_600_000
DAY = 24 * HOUR

STEPS = some.lists(
    some.tuples(some.integers(0, 10 * HOUR), some.integers(-DAY, DAY)), min_size=1, max_size=30
)


def test_what_was_written_before_a_step_ahead_is_not_older() -> None:
    ages = Ages(since=1000).stepped(5000, 5000 + DAY)
    assert [ages.date(ms) for ms in (999, 1000, 5000, 5001)] == [999, 1000 + DAY, 5000 + DAY, 5001]


def test_a_step_back_takes_the_step_ahead_away() -> None:
    ages = Ages(since=1000).stepped(5000, 5000 + DAY).stepped(6000 + DAY, 6000)
    assert ages.date(2000) == 2000
    assert Present(7000, 7000, ages).is_over(2000, 6999)


def test_what_was_written_before_a_stop_is_older_by_the_stop() -> None:
    ages = Ages(since=1000).restarted(5000).stepped(6000, 6000 + DAY)
    assert (ages.date(4000), ages.date(5500)) == (4000, 5500 + DAY)
    present = Present(7000 + DAY, 7000, ages)
    assert not present.is_over(4000, 7000)
    assert present.is_over(4000, 6999)


@pytest.mark.parametrize(
    ("written", "date"), [(0, 90_000), (50_000, 90_000), (99_000, 99_000), (161_000, 90_000)]
)
def test_the_latest_date_that_is_not_ahead_counts(written: int, date: int) -> None:
    assert Present(100_000, 100_000).date(90_000, written) == date


def test_if_all_dates_are_ahead_the_earliest_counts() -> None:
    far = 100_001 + MAX_LEAD_MS
    assert Present(100_000, 100_000).date(far + 5, far) == far


def test_a_new_end_after_a_step_is_of_the_present_era() -> None:
    """A stored message renews the end of its pointer."""
    ages = Ages(since=0).stepped(5000, 5000 + DAY)
    present = Present(7000 + DAY, 7000 + DAY, ages)
    begun = [present.begun(ms) for ms in (4000, 5000 + DAY, 67_001 + DAY)]
    assert begun == [7000 + DAY, 5000 + DAY, 7000 + DAY]
    assert not present.is_over(begun[0], 7000 + DAY)
    assert present.is_over(begun[0], 6999 + DAY)


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "[2, [[1]]]", "[2, [[1, 2, 3, 4, []]]]"])
def test_what_cannot_be_loaded_is_no_step(text: str) -> None:
    assert Ages.load(text, 7) == Ages(since=7)


@given(STEPS)
def test_oldest_is_the_first_time_that_has_not_that_date(steps: list[tuple[int, int]]) -> None:
    ages, now = Ages(since=0), 0
    times = [0]
    for passed, step in steps:
        now += passed
        ages = ages.stepped(now, now + step)
        times += [now, now + 1]
        now += step
    assert len(ages.eras) <= MOST_ERAS
    assert Ages.load(ages.dump(), 0) == ages
    for wanted in times:
        oldest = ages.oldest(wanted)
        assert ages.date(oldest) >= wanted
        assert all(ages.date(ms) < wanted for ms in [*times, oldest - 1] if ms < oldest)


@given(STEPS)
def test_no_age_is_more_than_what_has_passed(steps: list[tuple[int, int]]) -> None:
    ages, now, true = Ages(since=0), 0, 0
    written = [(0, 0)]
    for passed, step in steps:
        now, true = now + passed, true + passed
        ages = ages.stepped(now, now + step)
        written.append((now, true))
        now += step
    assert all(now - ages.date(ms) <= true - at for ms, at in written)


def test_a_step_that_a_start_takes_back_does_not_make_messages_younger() -> None:
    ages = Ages(since=1000).stepped(5000, 5000 + DAY).restarted(6000 + DAY)
    assert ages.date(2000) == 2000 + DAY
    behind = ages.stepped(6000 + DAY, 6000)
    assert behind.date(2000) == 2000
    assert behind.stepped(7000, 7000 + DAY + HOUR).date(2000) == 2000 + DAY

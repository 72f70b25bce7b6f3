"""The guarded clock: the rule with clocks that a test moves, its log, and what it lets be kept."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as some

from oplogd.clock.guard import GuardedClock, text_of
from oplogd.clock.rule import ClockReading, Saved, begin, judge, removal_ms, save
from tests.kits.clock.virtual import START_MS, VirtualClock

DAY = 86_400

# How much time passes, in ms, and by how much the clock is set then.
STEPS = some.lists(
    some.tuples(
        some.integers(0, 700_000),
        some.one_of(
            some.just(0),
            some.integers(-200, 200),
            some.integers(-10_000, 10_000),
            some.integers(-DAY * 1000, DAY * 1000),
        ),
    ),
    max_size=30,
)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(each.levelno, each.getMessage()) for each in caplog.records]


def test_a_step_is_logged_once_and_its_end(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    guarded = GuardedClock(clock.clock)
    assert guarded.step() is None
    clock.jump(8 * DAY)
    for _ in range(5):
        clock.move(1)
        assert guarded.now_ms() == clock.ms - 8 * DAY * 1000
        assert guarded.removal_ms() == clock.ms - 8 * DAY * 1000
    step = guarded.step()
    assert step is not None
    assert (step.from_ms, step.to_ms) == (START_MS + 5000, START_MS + 5000 + 8 * DAY * 1000)
    assert (step.seconds, step.waiting) == (8 * DAY, ("times", "removals"))
    clock.jump(-8 * DAY)
    assert guarded.now_ms() == guarded.removal_ms() == clock.ms
    clock.move(599)
    assert guarded.step() is None
    (begun,) = lines(caplog)
    clock.move(1)
    assert guarded.step() is None
    (_, ended) = lines(caplog)
    assert begun[0] == logging.WARNING
    assert begun[1].startswith(
        "the clock stepped by +691200 s, from 2023-11-14T22:13:21.000Z to 2023-11-22T22:13:21.000Z"
    )
    assert ended == (
        logging.INFO,
        "the clock has stood for ten minutes: nothing waits. Steps since the warning: 1",
    )


def test_a_flapping_clock_is_one_episode(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    guarded = GuardedClock(clock.clock)
    guarded.now_ms()
    for step in [3600, -3600] * 60:
        clock.jump(step)
        for _ in range(30):
            clock.move(1)
            guarded.step()
    assert [level for level, _ in lines(caplog)] == [logging.WARNING]
    for _ in range(600):
        clock.move(1)
        guarded.step()
    assert [text for _, text in lines(caplog)][1:] == [
        "the clock has stood for ten minutes: nothing waits. Steps since the warning: 60"
    ]


def test_an_agent_that_slept_takes_over_the_time_of_one_that_did_not(clock: VirtualClock) -> None:
    other, slept = GuardedClock(clock.clock), GuardedClock(clock.clock, lambda: wall.ms)
    wall = VirtualClock()
    slept.begin(None)
    wall.jump(8 * 3600)
    clock.jump(8 * 3600)
    assert slept.now_ms() == START_MS
    assert slept.is_unsure
    clock_of_other = begin(ClockReading(clock.ms - 60_000, 0))
    slept.compare(save(clock_of_other, clock.ms - 60_000))
    assert slept.now_ms() == slept.removal_ms() == wall.ms == other.now_ms()
    assert not slept.is_unsure


@pytest.mark.parametrize("step", [8 * 3600, 60])
def test_an_agent_that_slept_alone_does_not_take_over_what_it_has_kept(
    clock: VirtualClock, step: int
) -> None:
    guarded = GuardedClock(clock.clock)
    guarded.begin(None)
    saved = guarded.due()
    clock.jump(step)
    assert guarded.now_ms() == START_MS
    guarded.compare(saved)
    assert guarded.now_ms() == START_MS


def begun_a_day_later(clock: VirtualClock) -> GuardedClock:
    """Return a clock that begins a day after the time that was kept."""
    guarded = GuardedClock(clock.clock)
    then = START_MS - DAY * 1000
    guarded.begin(Saved(then, then, then, 0, 0))
    return guarded


def test_a_start_far_past_the_kept_time_is_told_without_a_warning(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    guarded = begun_a_day_later(clock)
    step = guarded.step()
    assert step is not None
    assert (step.waiting, step.seconds, step.is_stop) == (("times", "removals"), DAY, True)
    assert lines(caplog) == [
        (
            logging.INFO,
            "the store was last used 86400 s ago by the clock: nothing is removed because of its"
            " age for ten minutes, in case the clock is wrong",
        )
    ]


def test_a_start_before_the_kept_time_is_a_warning(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    guarded = GuardedClock(clock.clock)
    then = START_MS + DAY * 1000
    guarded.begin(Saved(then, then, then, 0, 0))
    assert guarded.now_ms() == START_MS
    ((level, text),) = lines(caplog)
    assert level == logging.WARNING
    assert "the clock is 86400 s behind the time in the store" in text


def test_the_store_has_to_keep_the_time_each_minute_and_when_a_pause_begins_or_ends(
    clock: VirtualClock,
) -> None:
    guarded = GuardedClock(clock.clock)
    guarded.begin(None)

    def keeps() -> bool:
        saved = guarded.due()
        if saved is None:
            return False
        guarded.was_saved(saved)
        return True

    assert [keeps(), keeps()] == [True, False]
    clock.move(59)
    assert not keeps()
    clock.move(1)
    assert [keeps(), keeps()] == [True, False]
    clock.jump(3600)
    assert [keeps(), keeps()] == [True, False]
    for _ in range(59):
        clock.move(1)
        assert not keeps()
    clock.move(1)
    assert [keeps(), keeps()] == [True, False]  # stamps follow
    for step in (300, -400, 100):  # another step, while removals wait or both do
        clock.jump(step)
        assert [keeps(), keeps()] == [True, False]
    clock.jump(-3600)
    assert [keeps(), keeps()] == [True, False]


@pytest.mark.parametrize(
    ("ms", "text"),
    [(-1, "1970-01-01T00:00:00.000Z"), (1 << 60, "9999-12-31T23:59:59.999Z")],
)
def test_a_time_that_no_text_can_tell_is_told_by_the_nearest_one(ms: int, text: str) -> None:
    assert text_of(ms) == text


def test_a_process_that_was_stopped_between_both_clocks_reads_them_again() -> None:
    clock = VirtualClock()

    def stopped() -> int:
        ms = clock.ms
        if clock.seconds < 1100:
            clock.move(100)
        return ms

    guarded = GuardedClock(clock.clock, stopped)
    assert guarded.step() is None
    assert guarded.now_ms() == clock.ms == START_MS + 100_000


@given(STEPS)
def test_it_tells_what_the_rule_tells_however_often_it_is_asked(
    steps: list[tuple[int, int]],
) -> None:
    """Small differences in a row are the same as in the rule: each is taken at once."""
    clock = VirtualClock()
    guarded, judged = GuardedClock(clock.clock), begin(ClockReading(START_MS, 1_000_000))
    last = guarded.now_ms()
    for passed, step in steps:
        clock.move(passed / 1000)
        clock.jump(step / 1000)
        reading = ClockReading(clock.ms, int(clock.boot() * 1000))
        was_waiting = judged.removals.lead is not None
        judged = judge(judged, reading)
        now = guarded.now_ms()
        assert now == judged.times.ms == guarded.now_ms()
        assert guarded.removal_ms() == removal_ms(judged, clock.ms)
        assert now >= last or was_waiting
        last = now


def test_an_ordinary_stop_stays_one_although_readings_differ_by_a_ms(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    guarded = begun_a_day_later(clock)
    for _ in range(90):
        clock.move(1)
        clock.jump(-0.001)
        step = guarded.step()
        assert step is not None
        assert step.is_stop
    assert [level for level, _ in lines(caplog)] == [logging.INFO]


def test_an_episode_counts_no_step_of_a_ms(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    guarded = GuardedClock(clock.clock)
    guarded.begin(None)
    clock.jump(3600)
    for _ in range(1300):
        clock.move(1)
        clock.jump(-0.001)
        guarded.step()
    assert lines(caplog)[-1][1].endswith("Steps since the warning: 1")


def test_a_start_while_removals_wait_for_a_step_goes_on_with_its_episode(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    guarded = GuardedClock(clock.clock)
    guarded.begin(None)
    clock.jump(3600)
    guarded.step()
    clock.move(61)
    saved = guarded.due()
    again = GuardedClock(clock.clock)
    caplog.clear()
    again.begin(saved)
    for _ in range(1200):
        step = again.step()
        assert step is None or not step.is_stop
        clock.move(1)
    (begun, ended) = lines(caplog)
    assert begun == (
        logging.WARNING,
        "the clock is 3600 s ahead of the time in the store: nothing is removed because of its age"
        " until the clock has stood for ten minutes",
    )
    assert ended[1].startswith("the clock has stood for ten minutes")


def test_a_start_while_removals_wait_after_a_stop_is_still_a_stop(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    then = START_MS - DAY * 1000
    guarded = GuardedClock(clock.clock)
    guarded.begin(Saved(then, then, then, 0, 0))
    clock.move(61)
    guarded.step()
    saved = guarded.due()
    again = GuardedClock(clock.clock)
    again.begin(saved)
    step = again.step()
    assert step is not None
    assert (step.waiting, step.is_stop) == (("removals",), True)
    assert lines(caplog) == []

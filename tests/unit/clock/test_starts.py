"""The log of the guarded clock: what is a step, and what an ordinary stop."""

import logging

import pytest

from oplogd.clock.guard import GuardedClock
from oplogd.clock.rule import Saved
from tests.kits.clock.virtual import START_MS, VirtualClock

DAY = 86_400


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(each.levelno, each.getMessage()) for each in caplog.records]


def test_an_ordinary_stop_stays_one_although_readings_differ_by_a_ms(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    guarded = GuardedClock(clock.clock)
    then = START_MS - DAY * 1000
    guarded.begin(Saved(then, then, then, 0, 0))
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

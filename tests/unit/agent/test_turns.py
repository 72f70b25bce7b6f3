"""The longest turn of the event loop, in CPU time of its thread, as a timer sees it."""

import asyncio
import time

import pytest

from oplogd.watch.turns import BUSY, IDLE, Turns, watch_turns


class Loop:
    """An event loop in virtual time, whose timer ticks behind the turn in which it was due."""

    def __init__(self) -> None:
        self.now = self.cpu = 100.0
        self.turns = Turns()
        self.due = self.now + self.turns.begin(self.now, self.cpu)

    def work(self, cpu: float, *, waits: float = 0.0) -> float:
        """Add a turn of these CPU seconds, of ``waits`` seconds more. Return the longest turn."""
        self.now += cpu + waits
        self.cpu += cpu
        if self.now >= self.due:
            self.due = self.now + self.turns.tick(self.now, self.cpu)
        return self.turns.longest

    def sleep(self, seconds: float) -> None:
        """Let time pass without work, except the ticks."""
        until = self.now + seconds
        while self.due <= until:
            self.now = self.due
            self.work(0.0)
        self.now = until


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_many_short_turns_are_no_long_one(loop: Loop) -> None:
    for _ in range(1_000):
        assert loop.work(0.004) < 0.0041


def test_a_long_turn_is_seen_less_the_work_that_may_have_been_before_it(loop: Loop) -> None:
    assert loop.work(0.3) == pytest.approx(0.3 - IDLE)


def test_it_is_seen_more_exactly_while_the_loop_is_busy(loop: Loop) -> None:
    for _ in range(100):
        loop.work(0.005)
    assert loop.work(0.3) == pytest.approx(0.3 - BUSY, abs=0.02)


def test_a_turn_is_never_told_longer_than_it_was(loop: Loop) -> None:
    for cpu in (0.001, 0.019, 0.03, 0.05, 0.08, 0.02, 0.06, 0.001, 0.07):
        assert loop.work(cpu) <= 0.08
    assert loop.turns.longest > 0


def test_time_in_which_the_thread_did_not_run_does_not_count(loop: Loop) -> None:
    assert loop.work(0.001, waits=10) == 0.0
    assert loop.work(0.2, waits=10) == pytest.approx(0.2 - IDLE)


def test_the_longest_of_the_last_minute_is_forgotten_and_that_since_the_start_is_not(
    loop: Loop,
) -> None:
    loop.work(0.5)
    loop.sleep(30)
    loop.work(0.3)
    loop.sleep(1)
    assert loop.turns.longest_last_minute(loop.now) == pytest.approx(0.5 - IDLE)
    loop.sleep(29.5)
    assert loop.turns.longest_last_minute(loop.now) == pytest.approx(0.3 - IDLE)
    loop.sleep(31)
    assert loop.turns.longest_last_minute(loop.now) == 0.0
    assert loop.turns.longest == pytest.approx(0.5 - IDLE)


def test_what_is_remembered_is_bounded_by_the_ticks_of_a_minute(loop: Loop) -> None:
    for number in range(10_000):
        loop.work(0.2 - number / 100_000)
    assert len(loop.turns.recent) <= 60 / 0.1


def test_the_ticks_are_rarer_while_the_loop_is_idle() -> None:
    turns = Turns()
    turns.begin(0.0, 0.0)
    assert turns.tick(0.05, 0.0001) == IDLE
    assert turns.tick(0.10, 0.0300) == BUSY
    assert turns.tick(0.12, 0.0301) == IDLE


def test_the_cpu_time_is_that_of_the_last_tick(loop: Loop) -> None:
    loop.work(0.3)
    assert loop.turns.cpu == pytest.approx(100.3)


async def test_a_timer_watches_the_running_loop_from_now_on() -> None:
    readings = iter([(7.0, 3.0), (8.0, 3.5)])
    ticked = asyncio.Event()
    now = cpu = 0.0

    def monotonic() -> float:
        nonlocal now, cpu
        now, cpu = next(readings, (9.0, 3.5))
        if now == 9.0:
            ticked.set()
        return now

    turns = Turns()
    watching = asyncio.create_task(watch_turns(turns, monotonic, lambda: cpu))
    await ticked.wait()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert turns.longest == pytest.approx(0.5 - IDLE)


async def test_work_in_the_loop_shows() -> None:
    turns = Turns()
    watching = asyncio.create_task(watch_turns(turns))
    await asyncio.sleep(0)
    until = time.thread_time() + 2 * IDLE
    while time.thread_time() < until:
        pass
    while not turns.longest:  # until the timer fires
        await asyncio.sleep(0)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert turns.longest >= IDLE
    assert turns.longest == turns.longest_last_minute(time.monotonic())

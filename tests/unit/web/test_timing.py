"""The timer of idle connections."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from oplogd.web.connection.timing import IdleTimer

SECONDS = 5.0


class FakeHandle:
    def __init__(self, due: float, call: Callable[[], None]) -> None:
        self.due, self.call, self.is_cancelled = due, call, False

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeLoop:
    """An event loop whose time the test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.handles: list[FakeHandle] = []

    def time(self) -> float:
        return self.now

    def call_at(self, due: float, call: Callable[[], None]) -> FakeHandle:
        self.handles.append(FakeHandle(due, call))
        return self.handles[-1]

    def pass_to(self, now: float) -> None:
        self.now = now
        due = [each for each in self.handles if each.due <= now]
        self.handles = [each for each in self.handles if each.due > now]
        for each in due:
            if not each.is_cancelled:
                each.call()

    @property
    def running(self) -> int:
        return sum(not each.is_cancelled for each in self.handles)


class Bench:
    def __init__(self) -> None:
        self.loop = FakeLoop()
        self.ended: list[float] = []
        loop: Any = self.loop
        self.timer = IdleTimer(
            cast(asyncio.AbstractEventLoop, loop),
            SECONDS,
            lambda: self.ended.append(self.loop.now),
        )


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_connection_ends_when_its_last_answer_is_old_enough(bench: Bench) -> None:
    bench.timer.restart()
    for now in (101.0, 103.0, 104.0):
        bench.loop.pass_to(now)
        bench.timer.cancel()
        bench.timer.restart()
    bench.loop.pass_to(105.0)
    assert (bench.ended, bench.loop.running) == ([], 1)
    bench.loop.pass_to(109.0)
    assert (bench.ended, bench.loop.running) == ([109.0], 0)


def test_a_connection_with_a_request_does_not_end(bench: Bench) -> None:
    bench.timer.restart()
    bench.timer.cancel()
    bench.loop.pass_to(200.0)
    assert (bench.ended, bench.loop.running) == ([], 0)
    bench.timer.restart()
    bench.loop.pass_to(205.0)
    assert bench.ended == [205.0]


def test_many_requests_have_one_timer(bench: Bench) -> None:
    for _ in range(100):
        bench.timer.restart()
        bench.timer.cancel()
    assert bench.loop.running == 1


def test_a_closed_connection_has_no_timer(bench: Bench) -> None:
    bench.timer.restart()
    bench.timer.end()
    assert bench.loop.running == 0
    bench.loop.pass_to(200.0)
    assert bench.ended == []

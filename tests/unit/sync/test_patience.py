"""Attempts that are repeated while no agent and no store answers."""

from collections.abc import Callable

import pytest

from oplog_sync.errors import SyncError, UnreachableError
from oplog_sync.source.patience import Patience, patiently
from oplogd.errors import StoreUnavailableError


class Time:
    def __init__(self) -> None:
        self.now = 50.0
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def clock(self) -> float:
        return self.now


def _failing(times: int, error: Exception) -> Callable[[], str]:
    left = [error] * times

    def call() -> str:
        if left:
            raise left.pop()
        return "done"

    return call


@pytest.mark.parametrize("error", [UnreachableError("away"), StoreUnavailableError("away")])
def test_a_call_is_repeated_with_growing_pauses_until_it_succeeds(error: Exception) -> None:
    time = Time()
    call = _failing(7, error)
    assert patiently(call, 60, sleep=time.sleep, clock=time.clock) == "done"
    assert time.pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_the_last_attempt_is_made_when_the_time_is_over(capfd: pytest.CaptureFixture[str]) -> None:
    time = Time()
    with pytest.raises(UnreachableError, match=r"^away; asked again for 10\.0 s \(option retryFor"):
        patiently(_failing(99, UnreachableError("away")), 10, sleep=time.sleep, clock=time.clock)
    assert time.now == 60.0
    assert capfd.readouterr().err == ("oplog: away; asking again for 10.0 s (option retryFor)\n")


def test_an_error_that_time_does_not_heal_is_raised_at_once() -> None:
    time = Time()
    with pytest.raises(SyncError, match="refused"):
        patiently(_failing(1, SyncError("refused")), 60, sleep=time.sleep, clock=time.clock)
    assert time.pauses == []


def test_each_success_starts_the_time_anew() -> None:
    time = Time()
    patience = Patience(8, sleep=time.sleep, clock=time.clock)
    for _ in range(3):
        for _ in range(5):
            patience.wait(UnreachableError("away"))
        patience.succeed()
    assert time.pauses == [0.2, 0.4, 0.8, 1.6, 3.2] * 3

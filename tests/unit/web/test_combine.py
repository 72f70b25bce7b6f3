"""Figures of several workers, combined: sums, the largest, and lists with a bound."""

from typing import Any

from oplogd.stream.lags import MeasuredLag, Named
from oplogd.web.figures.combine import (
    combined,
    combined_clock,
    combined_names,
    combined_troubles,
    private_members,
)
from oplogd.web.figures.consumers import MAX_CONSUMERS
from oplogd.web.figures.worker import Told


def told(**members: Any) -> Told:
    usual: dict[str, Any] = {
        "tallies": b"",
        "gauges": {},
        "troubles": [],
        "clock": {},
        "clock_warnings": [],
        "head": 0,
        "leases": [],
        "streams": {},
        "named": {},
    }
    return Told(**usual | members)


def test_gauges_are_summed_except_for_lags_and_turns() -> None:
    gauges = [
        {
            "queue_size": 2,
            "rates": {"sent": 0.1},
            "ring": {"bytes": 10},
            "consumer_lag": {"operations": 7, "seconds": 0.5},
            "longest_turn_seconds_last_minute": 0.2,
            "descriptors": {"open": 20, "limit": None},
        },
        {
            "queue_size": 3,
            "rates": {"sent": 0.2},
            "ring": {"bytes": 5},
            "consumer_lag": {"operations": 4, "seconds": 1.5},
            "longest_turn_seconds_last_minute": 0.1,
            "descriptors": {"open": 30, "limit": 100},
        },
    ]
    assert combined(gauges) == {
        "queue_size": 5,
        "rates": {"sent": 0.3},
        "ring": {"bytes": 15},
        "consumer_lag": {"operations": 7, "seconds": 1.5},
        "longest_turn_seconds_last_minute": 0.2,
        "descriptors": {"open": 50, "limit": None},
    }
    assert combined(gauges[:1]) is gauges[0]


def test_a_paused_clock_is_told_whichever_worker_has_it() -> None:
    well = {"paused": 0, "step_seconds": 5.0, "ahead_seconds": 9}
    paused = {"paused": 1, "step_seconds": -3.0, "ahead_seconds": 2}
    expected = {"paused": 1, "step_seconds": -3.0, "ahead_seconds": 9}
    assert combined_clock([well, paused]) == combined_clock([paused, well]) == expected


def test_troubles_of_some_workers_name_them_all() -> None:
    found = {0: told(troubles=["a", "b"]), 1: told(troubles=["b"]), 3: told(troubles=["b", "a"])}
    assert combined_troubles(found) == ["a (worker 0, 3)", "b"]
    assert combined_troubles({1: told(troubles=["a"])}) == ["a"]


def test_names_are_counted_together_and_have_the_largest_lag() -> None:
    one = told(named={"a": Named(2, MeasuredLag(5, 1.0)), "b": Named(1, MeasuredLag(0, 0.0))})
    other = told(named={"a": Named(1, MeasuredLag(3, 4.0))})
    assert combined_names([one, other]) == {
        "a": Named(3, MeasuredLag(5, 4.0)),
        "b": Named(1, MeasuredLag(0, 0.0)),
    }
    assert one.named["a"].consumers == 2


def test_of_all_consumers_those_with_the_largest_lags_are_listed() -> None:
    def consumers(lags: range) -> list[dict[str, Any]]:
        return [{"lag": {"operations": lag, "seconds": 0.0}} for lag in lags]

    half = MAX_CONSUMERS // 2 + 50
    found = {
        number: told(consumers=consumers(range(number, 2 * half, 2)), gauges={"clients": half + 7})
        for number in range(2)
    }
    members = private_members(found, many=True)
    listed = [(each["lag"]["operations"], each["worker"]) for each in members["consumers"]]
    assert listed == [(lag, lag % 2) for lag in range(2 * half - 1, 99, -1)]
    assert members["consumers_left_out"] == 2 * (half + 7) - MAX_CONSUMERS

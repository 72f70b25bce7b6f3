"""Durations for metrics, and the operations that are timed between arrival and consumers."""

from pathlib import Path

import pytest

from oplogd.watch.histogram import Histogram
from oplogd.watch.latency import LatencyProbe
from tests.kits.agents.agent import Agent
from tests.kits.clock.virtual import VirtualClock
from tests.kits.models.operations import entry, numbered


def test_a_duration_is_counted_in_every_bucket_that_it_does_not_exceed() -> None:
    histogram = Histogram()
    for seconds in (0.1, 0.2, 1.5, 31.0):
        histogram.observe(seconds)
    buckets = histogram.buckets()
    assert {label: buckets[label] for label in ("0.05", "0.1", "0.25", "1.0", "30.0", "+Inf")} == {
        "0.05": 0,
        "0.1": 1,
        "0.25": 2,
        "1.0": 2,
        "30.0": 3,
        "+Inf": 4,
    }
    assert (histogram.count, round(histogram.sum, 6)) == (4, 32.8)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(seconds=100.0)


@pytest.fixture
def probe(clock: VirtualClock) -> LatencyProbe:
    return LatencyProbe(clock.monotonic)


ONE, TWO, THREE = numbered(3)


def test_an_operation_is_timed_from_its_arrival_until_the_follower_has_it(
    clock: VirtualClock, probe: LatencyProbe
) -> None:
    probe.begin(TWO.data, 99.0)
    clock.seconds += 2
    probe.end([entry(1, 1, ONE)])
    assert probe.seconds.count == 0
    clock.seconds += 1
    probe.end([entry(2, 1, THREE), entry(3, 1, TWO)])
    probe.end([entry(4, 1, TWO)])
    assert (probe.seconds.count, probe.seconds.sum) == (1, 4.0)


def test_one_operation_is_timed_at_a_time(clock: VirtualClock, probe: LatencyProbe) -> None:
    probe.begin(ONE.data, 100.0)
    probe.begin(TWO.data, 100.0)
    probe.end([entry(1, 1, TWO)])
    assert probe.seconds.count == 0
    clock.seconds += 700
    probe.begin(TWO.data, clock.seconds)
    probe.end([entry(2, 1, ONE)])
    assert probe.seconds.count == 0, "a lost operation is given up for the next"
    probe.end([entry(3, 1, TWO)])
    assert (probe.seconds.count, probe.seconds.sum) == (1, 0.0)


def test_an_operation_that_is_given_up_is_not_timed(probe: LatencyProbe) -> None:
    probe.begin(ONE.data, 0.0)
    probe.give_up()
    probe.end([entry(1, 1, ONE)])
    assert probe.seconds.count == 0


def test_an_agent_times_commits_and_the_latency_of_operations(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent, agent.follow() as stream:
        for number in range(5):
            assert agent.post({"event": "insert", "type": "video", "id": str(number)}) == 204
            stream.take(1)
        status = agent.status()
    for name in ("commit_seconds", "ingest_to_send_seconds"):
        figures = status[name]
        assert figures["count"] == figures["buckets"]["+Inf"] == 5, name
        assert figures["sum"] > 0

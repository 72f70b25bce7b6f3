"""Durations for metrics: how they are counted, and which operations are timed on their way through the agent."""

from pathlib import Path

import pytest

from oplogd.histogram import Histogram
from oplogd.passage import Passage
from tests.agents import Agent
from tests.operations import entry, numbered


def test_a_duration_is_counted_in_every_bucket_that_it_does_not_exceed() -> None:
    histogram = Histogram((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 1.5):
        histogram.observe(seconds)
    assert histogram.buckets() == {"0.1": 2, "1.0": 3, "+Inf": 4}
    assert (histogram.count, round(histogram.sum, 6)) == (4, 2.15)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def passage(clock: Clock) -> Passage:
    return Passage(clock)


ONE, TWO, THREE = numbered(3)


def test_an_operation_is_timed_from_its_arrival_until_the_follower_has_it(
    clock: Clock, passage: Passage
) -> None:
    passage.begin(TWO.data, 99.0)
    clock.now += 2
    passage.end([entry(1, 1, ONE)])
    assert passage.seconds.count == 0
    clock.now += 1
    passage.end([entry(2, 1, THREE), entry(3, 1, TWO)])
    passage.end([entry(4, 1, TWO)])
    assert (passage.seconds.count, passage.seconds.sum) == (1, 4.0)


def test_one_operation_is_timed_at_a_time(clock: Clock, passage: Passage) -> None:
    passage.begin(ONE.data, 100.0)
    passage.begin(TWO.data, 100.0)
    passage.end([entry(1, 1, TWO)])
    assert passage.seconds.count == 0
    clock.now += 700
    passage.begin(TWO.data, clock.now)
    passage.end([entry(2, 1, ONE)])
    assert passage.seconds.count == 0, "one that does not come is given up for the next"
    passage.end([entry(3, 1, TWO)])
    assert (passage.seconds.count, passage.seconds.sum) == (1, 0.0)


def test_an_operation_that_went_another_way_is_not_timed(passage: Passage) -> None:
    passage.begin(ONE.data, 0.0)
    passage.give_up()
    passage.end([entry(1, 1, ONE)])
    assert passage.seconds.count == 0


def test_an_agent_times_commits_and_the_way_to_its_consumers(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent, agent.follow() as stream:
        for number in range(5):
            assert agent.post({"event": "insert", "type": "video", "id": str(number)}) == 204
            stream.take(1)
        status = agent.status()
    for name in ("commit_seconds", "ingest_to_send_seconds"):
        figures = status[name]
        assert figures["count"] == figures["buckets"]["+Inf"] == 5, name
        assert figures["sum"] > 0

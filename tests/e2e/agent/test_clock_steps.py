"""The clock of a machine that steps under a running agent."""

import sys
from pathlib import Path

from oplogd.clock import now_ms
from tests.kits.agents.agent import DEADLINE, NewAgent
from tests.kits.agents.topics import Topic, received
from tests.kits.clock.faketime import FakeTime
from tests.kits.clock.moved import MovedAgent, MovedClock
from tests.kits.processes.forked import run

DAY = 86_400
MINUTE_MS = 60_000


def test_a_machine_eight_days_ahead_for_a_moment_dates_and_removes_nothing(tmp_path: Path) -> None:
    clock = FakeTime(tmp_path)
    with NewAgent(tmp_path, "--topic-cleanup", "100ms", environ=clock.environ) as agent:
        topic = Topic(agent).create(ttl=7 * DAY)
        topic.publish("a")
        assert agent.status()["clock"] == {
            "paused": 0,
            "waiting": [],
            "step_seconds": 0,
            "from": None,
            "to": None,
            "ahead_seconds": 0,
        }
        clock.set(8 * DAY)
        topic.publish("b")
        status = agent.status()
        assert (status["clock"]["paused"], status["clock"]["waiting"]) == (1, ["times", "removals"])
        assert abs(status["clock"]["step_seconds"] - 8 * DAY) < 60
        assert "the clock stepped by +6912" in status["store"]["warnings"][0]
        metrics = agent.request("GET", "/metrics").body.decode()
        assert "\noplog_clock_paused 1.0\n" in metrics
        assert "\noplog_clock_step_seconds 6" in metrics
        clock.set(0)
        messages = topic.poll_all()
        assert [each.payload for each in messages] == ["a", "b"]
        assert all(abs(each.ms - now_ms()) < MINUTE_MS for each in messages)
        assert agent.status()["clock"]["paused"] == 0
        assert agent.count("the clock stepped by") == 1


def test_a_store_that_is_ahead_says_so_until_a_new_epoch(tmp_path: Path) -> None:
    clock = MovedClock(tmp_path)
    clock.set(400 * DAY)
    with MovedAgent(tmp_path, environ=clock.environ) as agent:
        topic = Topic(agent).create()
        topic.publish("a", "b")
        old = [each.id for each in topic.poll_all()]
        assert agent.stop() == 0
    clock.set(0)
    with MovedAgent(tmp_path, environ=clock.environ) as agent:
        assert agent.status()["clock"]["ahead_seconds"] > 399 * DAY
        stepped, ahead = agent.status()["store"]["warnings"]
        assert "the clock stepped by -345" in stepped
        assert "the store is ahead by" in ahead
        assert agent.stop() == 0
    command = [sys.executable, "-m", "oplogd", "--new-epoch", "--store", tmp_path / "oplog.db"]
    run([str(each) for each in command], check=True, timeout=DEADLINE, capture_output=True)
    with MovedAgent(tmp_path, environ=clock.environ) as agent:
        assert agent.status()["clock"]["ahead_seconds"] == 0
        assert "warnings" not in agent.status()["store"]
        topic = Topic(agent)
        topic.publish("c")
        messages = topic.poll_all()
        assert [each.payload for each in messages] == ["a", "b", "c"]
        assert all(abs(each.ms - now_ms()) < MINUTE_MS for each in messages)
        assert topic.has_gap(old[1])
        with topic.stream(old[1]) as stream:
            assert stream.take(1)[0].event == "reset"
            assert received(stream.take(3)) == messages

"""The clock of a machine that steps under a running agent."""

from pathlib import Path

from oplogd.clock import now_ms
from tests.kits.agents.agent import NewAgent
from tests.kits.agents.topics import Topic
from tests.kits.clock.faketime import FakeTime
from tests.kits.clock.moved import MovedAgent, MovedClock

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
        agent.wait_log("the clock is trusted again")
        assert agent.count("the clock stepped by") == 1


def test_a_store_that_is_ahead_says_so_until_a_new_epoch(tmp_path: Path) -> None:
    clock = MovedClock(tmp_path)
    clock.set(400 * DAY)
    with MovedAgent(tmp_path, environ=clock.environ) as agent:
        Topic(agent).create().publish("a")
        assert agent.stop() == 0
    clock.set(0)
    with MovedAgent(tmp_path, environ=clock.environ) as agent:
        assert agent.status()["clock"]["ahead_seconds"] > 399 * DAY
        assert "the store is ahead by" in agent.status()["store"]["warnings"][0]

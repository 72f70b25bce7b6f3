"""A disk that hangs: the agent says so, answers those that wait, and stores everything later."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from oplogd.ingest.appends import ANSWER_SECONDS, HANGING_SECONDS
from tests.kits.agents.agent import Agent
from tests.kits.agents.topics import Topic
from tests.kits.clock.moved import MovedClock
from tests.kits.clock.waiting import attempts

OPERATION = {"event": "insert", "type": "video", "id": "1"}


class HangingAgent(Agent):
    program = ("-m", "tests.e2e.oplog.hanging_agent")


def test_a_hanging_disk_degrades_the_agent_and_ends_the_wait_of_every_writer(
    tmp_path: Path,
) -> None:
    clock, hang = MovedClock(tmp_path), tmp_path / "hang"
    environ = {**clock.environ, "OPLOG_TEST_HANG": str(hang)}
    with HangingAgent(tmp_path, environ=environ) as agent, ThreadPoolExecutor(3) as senders:
        topic = Topic(agent).create()
        hang.touch()
        began = threading.Barrier(4)

        def send(path: str, body: object) -> tuple[int, str]:
            began.wait()
            answer = agent.request("POST", path, body, {"Content-Type": "application/json"})
            return answer.status, answer.json["detail"]

        answers = [
            senders.submit(send, "/ops", OPERATION),
            senders.submit(send, f"{topic.path}/publish", {"messages": [{"payload": "a"}]}),
            senders.submit(send, "/v1/txns", {}),
        ]
        began.wait()
        agent.wait_status(queue_size=1)
        for _ in attempts(30):
            if agent.status()["topics"]["queue_size"] == 1:
                break
        clock.move(HANGING_SECONDS)
        reason = "the store has not confirmed an append for 8 s"
        assert agent.wait_status(status="DEGRADED")["reason"] == reason
        ready = agent.request("GET", "/ready")
        assert (ready.status, ready.json["detail"]) == (503, reason)
        assert not any(answer.done() for answer in answers)
        for _ in attempts(30):  # a request may have begun after the first move
            clock.move(ANSWER_SECONDS)
            if all(answer.done() for answer in answers):
                break
        for answer in answers:
            status, detail = answer.result()
            assert status == 503
            assert detail.startswith("not confirmed")
        hang.unlink()
        agent.wait_status(status="OK", queue_size=0, events_ingested=1)
        assert [message.payload for message in topic.poll_all()] == ["a"]
        assert agent.text().count(reason) == 1

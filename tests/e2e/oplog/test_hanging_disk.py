"""A disk that hangs: the agent says so, answers those that wait, and stores everything later."""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from oplogd.ingest.appends import ANSWER_SECONDS, HANGING_SECONDS
from tests.kits.agents.agent import Agent
from tests.kits.agents.topics import Topic
from tests.kits.clock.moved import MovedClock
from tests.kits.clock.waiting import attempts
from tests.kits.processes.logged import DEADLINE
from tests.kits.web.connection import NDJSON, RawConnection

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
        for _ in attempts(DEADLINE):
            if agent.status()["topics"]["queue_size"] == 1:
                break
        clock.move(HANGING_SECONDS)
        reason = "the store has not confirmed an append for 8 s"
        assert agent.wait_status(status="DEGRADED")["reason"] == reason
        ready = agent.request("GET", "/ready")
        assert (ready.status, ready.json["detail"]) == (503, reason)
        assert not any(answer.done() for answer in answers)
        for _ in attempts(DEADLINE):  # a request may have begun after the first move
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


def test_a_stop_answers_everybody_although_the_disk_hangs_and_stores_the_queue_later(
    tmp_path: Path,
) -> None:
    clock, hang = MovedClock(tmp_path), tmp_path / "hang"
    environ = {**clock.environ, "OPLOG_TEST_HANG": str(hang)}
    with (
        HangingAgent(tmp_path, "--shutdown-timeout", "300s", environ=environ) as agent,
        agent.follow() as stream,
        RawConnection(agent) as upload,
        ThreadPoolExecutor(1) as sender,
    ):
        hang.touch()
        upload.send(NDJSON, b"Content-Length: 9\r\nExpect: 100-continue\r\n\r\n")
        assert upload.socket.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        post = sender.submit(agent.request, "POST", "/ops", OPERATION)
        agent.wait_status(queue_size=1)
        agent.process.send_signal(signal.SIGTERM)
        agent.wait_log("stopping: storing 1 queued")
        for _ in attempts(DEADLINE):  # the stop may not have begun to wait at the first move
            clock.move(300)
            if agent.count("the store has not taken the queue"):
                break
        assert upload.reply().problem().startswith("the agent is stopping")
        assert post.result().status == 503
        assert post.result().json["detail"].startswith("not confirmed")
        assert stream.rest() == []
        hang.unlink()
        assert agent.wait() == 0
    with Agent(tmp_path) as next_agent:
        assert next_agent.status()["store"]["ops"] == 1

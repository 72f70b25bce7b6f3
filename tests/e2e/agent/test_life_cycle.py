"""The end of the agent; its log and its answers."""

import base64
import json
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kits.agents.agent import DEADLINE, Agent, TellingAgent, write_lock
from tests.kits.agents.runs import (
    a_folder,
    another_program,
    refusal,
    udp_is_free,
)
from tests.kits.contract.wire import RawStream, Target, data_of, operation, said


@pytest.mark.parametrize(
    ("prepare", "words", "relative"),
    [
        (None, "the file is gone", False),
        (None, "the file is gone", True),
        (a_folder, "cannot be opened", False),
        (another_program, "not an oplog store", True),
    ],
)
def test_answers_of_a_running_agent_hide_the_folder_of_its_store_and_the_log_names_it(
    tmp_path: Path, prepare: Callable[[Path], None] | None, words: str, relative: bool
) -> None:
    folder = tmp_path / "in here"
    (folder / "aside").mkdir(parents=True)
    store = folder / "oplog.db"
    with Agent(
        tmp_path, "--store", "in here/oplog.db" if relative else str(store), cwd=tmp_path
    ) as agent:
        target = Target.of(agent)
        target.store(operation("insert", "a", "thing"))
        for path in list(folder.glob("oplog.db*")):
            path.rename(folder / "aside" / path.name)
        if prepare is not None:
            prepare(folder / "new")
            (folder / "new").rename(store)
        answers = [
            target.request("GET", "/ready"),
            target.request("GET", "/status"),
            target.post(operation("insert", "b", "thing")),
            target.post([operation("insert", "b", "thing")]),
            target.request(
                "GET", "/ops", headers={"Accept": "text/event-stream", "Last-Event-ID": "0"}
            ),
        ]
        for answer in answers:
            assert answer.status == 503
            told = answer.json.get("reason") or answer.problem()
            assert "store oplog.db: " in told
            assert words in told
            assert "in here" not in answer.body.decode()
        agent.wait_log(f"in here/oplog.db: {answers[0].problem().partition(': ')[2]}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_agent_after_the_queue_is_stored_and_sent_and_the_streams_have_ended(
    tmp_path: Path, number: signal.Signals
) -> None:
    answers: list[int] = []
    with Agent(tmp_path) as agent, Target.of(agent).follow() as stream:
        with write_lock(tmp_path):
            agent.send_udp(*(operation("insert", str(n), "thing") for n in range(100)))
            agent.wait_status(queue_size=100)
            post = threading.Thread(
                target=lambda: answers.append(agent.post(operation("insert", "100", "thing")))
            )
            post.start()
            agent.wait_status(queue_size=101)
            agent.process.send_signal(number)
            agent.wait_log("stopping")
        assert [said(block) for block in stream.rest()] == [("insert", str(n)) for n in range(101)]
        assert agent.wait() == 0
        post.join(DEADLINE)
        assert answers == [204]
    with Agent(tmp_path) as agent:
        assert list(agent.replicate()) == [f"thing/{n}" for n in range(101)]


def test_while_the_agent_stops_it_refuses_new_operations_and_says_so(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        target = Target.of(agent)
        with write_lock(tmp_path):
            agent.send_udp(operation("insert", "a", "thing"))
            agent.wait_status(queue_size=1)
            agent.process.send_signal(signal.SIGTERM)
            agent.wait_log("stopping")
            reply = target.post(operation("insert", "b", "thing"))
            assert reply.status == 503
            assert "stopping" in reply.problem()
            assert int(reply.header("Retry-After") or 0) > 0
            # A browser's EventSource gives up after an error but reconnects after an end.
            stream = agent.request("GET", "/ops", headers={"Accept": "text/event-stream"})
            assert (stream.status, stream.body) == (200, b"")
            assert stream.headers["connection"] == "close"
            assert target.request("GET", "/ready").status == 503
            assert target.request("GET", "/live").status == 200
            assert udp_is_free("127.0.0.1", agent.udp_port)
        assert agent.wait() == 0


def test_a_second_signal_ends_the_agent_at_once(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent, write_lock(tmp_path):
        agent.send_udp(operation("insert", "a", "thing"))
        agent.wait_status(queue_size=1)
        agent.process.send_signal(signal.SIGTERM)
        agent.wait_log("stopping: storing 1 queued")
        agent.process.send_signal(signal.SIGINT)
        assert agent.wait() == 3
        assert "a second signal: 1 operations are not confirmed as stored" in "".join(agent.log)


def test_the_deadline_ends_the_agent_with_code_3_when_operations_cannot_be_stored(
    tmp_path: Path,
) -> None:
    with TellingAgent(tmp_path, "--shutdown-timeout", "300ms") as agent, write_lock(tmp_path):
        agent.send_udp(operation("insert", "a", "thing"), operation("insert", "b", "thing"))
        agent.wait_status(queue_size=2)
        assert agent.stop() == 3
        assert (
            "--shutdown-timeout of 0.3 s is over: 2 operations are not confirmed as stored"
            in "".join(agent.log)
        )


def test_a_consumer_that_does_not_read_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    """The stop would otherwise take a minute and end with code 3."""
    with Agent(tmp_path, "--shutdown-timeout", f"{DEADLINE}s") as agent:
        target = Target.of(agent)
        with target.follow() as reads, RawStream(
            target, "/ops", {"Accept": "text/event-stream"}, receive_buffer=8192
        ) as stalled:  # fmt: skip
            for batch in range(10):
                target.store(
                    *(operation("insert", f"{batch}-{n}", "thing", "p" * 60_000) for n in range(20))
                )
            assert [data_of(block)["id"] for block in reads.take(200)][-1] == "9-19"
            assert agent.status()["events_sent"] < 400
            agent.process.send_signal(signal.SIGTERM)
            assert reads.rest() == []
            assert agent.wait() == 0
            assert stalled.status == 200
        assert any("1 consumers did not read" in line for line in agent.log)
        assert not any("Traceback" in line for line in agent.log)


def test_json_logs_have_one_object_per_line(tmp_path: Path) -> None:
    with Agent(tmp_path, "--log-format", "json", "--debug") as agent:
        agent.send_udp(b"no operation\nbut two lines")
        agent.wait_status(events_error=1)
        assert agent.post(b"{") == 400
        with agent.follow():
            pass
        assert agent.stop() == 0
        lines = [json.loads(line) for line in agent.log]
    assert len(lines) >= 4
    for line in lines:
        assert line.keys() == {"time", "level", "logger", "message"}
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    assert "stopped" in [line["message"] for line in lines]


def test_no_secret_appears_in_logs_or_answers(tmp_path: Path) -> None:
    reader, writer = "correct-horse", "battery-staple"
    environ = {"OPLOGD_INGEST_PASSWORD": writer}
    with Agent(tmp_path, "--debug", "--password", reader, environ=environ) as agent:
        target = Target.of(agent)
        secrets = {reader, writer, "wrong-guess"}
        for password in (reader, writer, "wrong-guess"):
            encoded = base64.b64encode(f"user:{password}".encode()).decode()
            secrets.add(encoded)
            headers = {"Authorization": f"Basic {encoded}"}
            status = agent.post(operation("insert", "a", "thing"), headers)
            assert status == (204 if password == writer else 401)
            answer = target.request(
                "HEAD", "/ops", headers={**headers, "Accept": "text/event-stream"}
            )
            assert answer.status == (200 if password == reader else 401)
        told = [
            target.request("GET", path).body.decode()
            for path in ("/status", "/metrics", "/openapi.json")
        ]
        assert agent.stop() == 0
        told += agent.log
    assert agent.log
    assert not [text for text in told for secret in secrets if secret in text]


def test_a_refusal_hides_the_secret_in_a_url() -> None:
    sentence = refusal(
        "--mongo-url", "mongodb://user:correct-horse@localhost:1/db?bad-option=1", code=2
    )
    assert "--mongo-url" in sentence
    assert "correct-horse" not in sentence

"""The life of the process: how it starts, what it says when it cannot, and how it ends."""

import base64
import contextlib
import json
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.agents import DEADLINE, Agent, write_lock
from tests.contract.wire import RESET, RawStream, Target, data_of, id_of, operation, said


def run(*flags: str | Path) -> subprocess.CompletedProcess[str]:
    """``oplogd`` where it is expected to end by itself."""
    command = [sys.executable, "-m", "oplogd", "--listen", "127.0.0.1:0", *map(str, flags)]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)


def refusal(*flags: str | Path, code: int = 1) -> str:
    """The one sentence with which it ends."""
    ended = run(*flags)
    assert (ended.returncode, ended.stdout) == (code, "")
    (sentence,) = ended.stderr.splitlines()
    assert sentence.startswith("oplogd: ")
    return sentence


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """An agent for tests that do not end it."""
    with Agent(tmp_path_factory.mktemp("agent"), "--listen", ":0") as agent:
        yield agent


def test_a_port_in_use_is_named_with_its_flag(running: Agent, tmp_path: Path) -> None:
    sentence = refusal("--listen", f"127.0.0.1:{running.port}", "--store", tmp_path / "oplog.db")
    assert f"127.0.0.1:{running.port}" in sentence
    assert "--listen" in sentence
    assert "in use" in sentence
    assert not (tmp_path / "oplog.db").exists()


def test_a_udp_port_in_use_is_named_with_its_flag(running: Agent, tmp_path: Path) -> None:
    address = f"127.0.0.1:{running.udp_port}"
    sentence = refusal("--udp-listen", address, "--store", tmp_path / "oplog.db")
    assert address in sentence
    assert "--udp-listen" in sentence
    assert "in use" in sentence


def nothing(path: Path) -> None:
    path.parent.rmdir()


def a_folder(path: Path) -> None:
    path.mkdir()


def no_sqlite(path: Path) -> None:
    path.write_text("my shopping list\n" * 100)


def another_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE recipes (name TEXT)")


def a_newer_schema(path: Path) -> None:
    with Agent(path.parent):
        pass
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    ("prepare", "words", "code"),
    [
        (nothing, "cannot be opened", 2),
        (a_folder, "cannot be opened", 2),
        (no_sqlite, "no SQLite file", 1),
        (another_program, "not an oplog store", 2),
        (a_newer_schema, "version 99", 2),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_store_that_cannot_be_used_is_named_with_what_to_do_and_left_as_it_is(
    tmp_path: Path, prepare: Callable[[Path], None], words: str, code: int
) -> None:
    path = tmp_path / "folder" / "oplog.db"
    path.parent.mkdir()
    prepare(path)
    before = path.read_bytes() if path.is_file() else None
    sentence = refusal("--store", path, code=code)
    assert str(path) in sentence
    assert "--store" in sentence
    assert words in sentence
    assert (path.read_bytes() if path.is_file() else None) == before


@pytest.mark.parametrize(
    ("prepare", "words", "relative"),
    [
        (None, "the file is gone", False),
        (None, "the file is gone", True),
        (a_folder, "cannot be opened", False),
        (another_program, "not an oplog store", True),
    ],
)
def test_no_answer_of_a_running_agent_tells_the_folder_of_its_store_and_the_log_does(
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


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (["--heartbeat", "26s"], "--heartbeat"),
        (["--no-such-flag=secret"], "--no-such-flag"),
    ],
)
def test_a_bad_flag_ends_with_code_2_and_its_name(flags: list[str], names: str) -> None:
    sentence = refusal(*flags, code=2)
    assert names in sentence
    assert "secret" not in sentence


def test_a_certificate_that_is_none_is_named_with_its_flag(tmp_path: Path) -> None:
    no_certificate = tmp_path / "no-certificate"
    no_certificate.write_text("this is none")
    flags = ("--tls-certificate", no_certificate, "--tls-key", no_certificate)
    assert "--tls-certificate" in refusal("--store", tmp_path / "oplog.db", *flags, code=2)


def test_a_spool_that_cannot_be_opened_ends_with_code_2_and_its_flag(tmp_path: Path) -> None:
    mongo = ("--mongo-url", "mongodb://127.0.0.1:9/?serverSelectionTimeoutMS=1")
    for path in (tmp_path, tmp_path / "missing" / "spool.db"):
        sentence = refusal(*mongo, "--spool", path, code=2)
        assert sentence.startswith(f"oplogd: --spool: {path} cannot be opened: ")


def test_port_0_takes_a_free_port_the_same_for_udp(running: Agent) -> None:
    assert running.port == running.udp_port > 0


def test_an_ipv6_address_is_served(tmp_path: Path) -> None:
    with Agent(tmp_path, "--listen", "[::1]:0") as agent:
        assert agent.url == f"http://[::1]:{agent.port}"
        target = Target(agent.url)
        with target.follow() as stream:
            target.send_udp(b'{"event":"insert","type":"thing","id":"udp"}')
            assert said(stream.block()) == ("insert", "udp")
            target.store(operation("insert", "http", "thing"))
            assert said(stream.block()) == ("insert", "http")


def udp_is_free(host: str, port: int) -> bool:
    """Whether a socket can take the port there: not where another one has it, or has it for all addresses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, contextlib.suppress(OSError):
        sock.bind((host, port))
        return True
    return False


def test_an_ingest_password_keeps_udp_on_the_loopback_address(
    running: Agent, tmp_path: Path
) -> None:
    assert not udp_is_free("127.0.0.2", running.udp_port), "without one it is bound to all"
    with Agent(tmp_path, "--listen", "0.0.0.0:0", "--ingest-password", "secret") as agent:
        assert agent.udp_port == agent.port
        assert udp_is_free("127.0.0.2", agent.udp_port)
        assert not udp_is_free("127.0.0.1", agent.udp_port)
        agent.send_udp(operation("insert", "a", "thing"))
        agent.wait_status(events_ingested=1)
        assert agent.post(operation("insert", "a", "thing")) == 401


def test_with_udp_off_no_port_is_taken(tmp_path: Path) -> None:
    with Agent(tmp_path, "--udp-listen", "off") as agent:
        assert udp_is_free("127.0.0.1", agent.port)
        assert agent.post(operation("insert", "a", "thing")) == 204


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_after_the_queue_is_stored_and_sent_and_the_streams_are_ended(
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


def test_while_it_stops_it_takes_nothing_new_and_says_so(tmp_path: Path) -> None:
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
            # At an error a browser's EventSource gives up; after a stream that has ended it comes back.
            stream = agent.request("GET", "/ops", headers={"Accept": "text/event-stream"})
            assert (stream.status, stream.body) == (200, b"")
            assert stream.headers["connection"] == "close"
            assert target.request("GET", "/ready").status == 503
            assert target.request("GET", "/live").status == 200
            assert udp_is_free("127.0.0.1", agent.udp_port)
        assert agent.wait() == 0


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent, write_lock(tmp_path):
        agent.send_udp(operation("insert", "a", "thing"))
        agent.wait_status(queue_size=1)
        agent.process.send_signal(signal.SIGTERM)
        agent.wait_log("stopping: storing 1 queued")
        agent.process.send_signal(signal.SIGINT)
        assert agent.wait() == 3
        assert "a second signal: 1 operations are not confirmed as stored" in "".join(agent.log)


def test_the_deadline_ends_it_with_code_3_when_operations_cannot_be_stored(tmp_path: Path) -> None:
    with Agent(tmp_path, "--shutdown-timeout", "300ms") as agent, write_lock(tmp_path):
        agent.send_udp(operation("insert", "a", "thing"), operation("insert", "b", "thing"))
        agent.wait_status(queue_size=2)
        assert agent.stop() == 3
        assert (
            "--shutdown-timeout of 0.3 s is over: 2 operations are not confirmed as stored"
            in "".join(agent.log)
        )


def test_a_consumer_that_does_not_read_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    """Its deadline would be over in 20 s, and then the code would be 3."""
    with Agent(tmp_path, "--shutdown-timeout", "20s") as agent:
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


def test_it_tells_systemd_when_it_is_ready_and_when_it_stops(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(path)
        listening.settimeout(DEADLINE)
        with Agent(tmp_path, environ={"NOTIFY_SOCKET": path}) as agent:
            assert listening.recv(100) == b"READY=1"
            assert agent.post(operation("insert", "a", "thing")) == 204
            agent.process.send_signal(signal.SIGTERM)
            assert listening.recv(100) == b"STOPPING=1"
            assert agent.wait() == 0


def test_json_logs_are_one_object_a_line(tmp_path: Path) -> None:
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


def test_no_secret_is_told(tmp_path: Path) -> None:
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


def test_a_refusal_does_not_tell_the_secret_in_a_url() -> None:
    sentence = refusal(
        "--mongo-url", "mongodb://user:correct-horse@localhost:1/db?bad-option=1", code=2
    )
    assert "--mongo-url" in sentence
    assert "correct-horse" not in sentence


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda path: None, "there is no store at"),
        (nothing, "there is no store at"),
        (Path.touch, "holds no log"),
        (a_folder, "cannot be opened"),
        (no_sqlite, "no SQLite file"),
        (another_program, "not an oplog store"),
        (a_newer_schema, "version 99"),
    ],
)
def test_a_new_epoch_needs_a_log_and_creates_none(
    tmp_path: Path, prepare: Callable[[Path], None], words: str
) -> None:
    path = tmp_path / "folder" / "oplog.db"
    path.parent.mkdir()
    prepare(path)
    before = path.read_bytes() if path.is_file() else None
    sentence = refusal("--new-epoch", "--store", path)
    assert str(path) in sentence
    assert "--store" in sentence
    assert words in sentence
    assert (path.read_bytes() if path.is_file() else None) == before
    assert before is not None or not path.is_file()


def test_a_new_epoch_while_an_agent_runs_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        target = Target.of(agent)
        with target.follow() as stream:
            target.store(operation("insert", "a", "thing"))
            sentence = refusal("--new-epoch", "--store", tmp_path / "oplog.db")
            assert "stop the agent" in sentence
            assert str(tmp_path / "oplog.db") in sentence
            target.store(operation("insert", "b", "thing"))
            assert [said(block) for block in stream.take(2)] == [("insert", "a"), ("insert", "b")]
        assert target.status()["status"] == "OK"
        agent.kill()
    assert (
        run("--new-epoch", "--store", tmp_path / "oplog.db").returncode == 0
    )  # its -wal and -shm are left behind
    with Agent(tmp_path) as agent, Target.of(agent).follow("0") as stream:
        assert [said(block)[1] for block in stream.until("live")] == ["", "a", "b", ""]


def test_a_new_epoch_of_an_empty_log_sets_nothing_aside_and_says_so(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        assert agent.stop() == 0
    for _ in range(2):
        ended = run("--new-epoch", "--store", tmp_path / "oplog.db")
        assert (ended.returncode, ended.stderr) == (0, "")
        assert "after offset 0; the old one was empty" in ended.stdout
        assert "set aside" not in ended.stdout


def test_a_new_epoch_sets_the_log_aside_and_every_consumer_starts_anew(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        target = Target.of(agent)
        with target.follow() as stream:
            target.store(operation("insert", "a", "thing"), operation("insert", "b", "thing"))
            target.store(operation("delete", "b", "thing"))
            old = [id_of(block) for block in stream.take(3)]
        with target.follow("0") as stream:
            *_, state, live = [id_of(block) for block in stream.until("live")]
        assert agent.stop() == 0

    ended = run("--store", tmp_path / "oplog.db", "--new-epoch")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "set aside" in ended.stdout

    with Agent(tmp_path) as agent:
        target = Target.of(agent)
        for start in (*old, live, state):
            with target.follow(start) as stream:
                assert stream.block() == RESET
                assert [said(block) for block in stream.take(2)] == [("insert", "a"), ("live", "")]
        with target.follow("0") as stream:
            resume = id_of(stream.until("live")[-1])
            target.store(operation("insert", "c", "thing"), operation("insert", "d", "thing"))
            new = [id_of(block) for block in stream.take(2)]
        assert [int(id_[12:], 16) for id_ in (*old, *new)] == [1, 2, 3, 4, 5]
        assert new[0] > old[-1]
        with target.follow(new[0]) as stream:
            assert said(stream.block()) == ("insert", "d")
        with target.follow(resume) as stream:
            assert {said(block)[1] for block in stream.until("live")} >= {"c", "d", ""}
        with target.follow(old[-1]) as stream:
            assert stream.block() == RESET

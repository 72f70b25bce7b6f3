"""The programs of the documents and of deploy/compose: they report a missing agent, and Ctrl-C ends
them without a traceback.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clients.restart import agent_on
from tests.kits.contract.wire import wait_until
from tests.kits.documents.snippets import documents, name_of, snippets
from tests.kits.paths import ROOT
from tests.kits.processes.forked import Forked
from tests.kits.servers.ports import free_port

DEPLOY = "deploy/compose"


class Program(NamedTuple):
    """``document`` shows the program, or is the folder of its file."""

    document: str
    name: str
    arguments: tuple[str, ...] = ()

    def code(self) -> str:
        if self.document == DEPLOY:
            return (ROOT / DEPLOY / self.name).read_text()
        (code,) = [each.code for each in snippets(ROOT / self.document) if each.word == self.name]
        return code


FOLLOW = (
    Program("docs/start/quickstart.md", "consumer.py"),
    Program("docs/concepts/lag.md", "lag.py"),
    Program("docs/howto/search-index.md", "index.py"),
    Program(
        "docs/howto/regions.md",
        "relay.py",
        ("http://localhost:8042", "http://localhost:8042", "west"),
    ),
    Program(DEPLOY, "consumer.py"),
)
SEND = (
    Program("docs/start/quickstart.md", "producer.py"),
    Program("docs/howto/search-index.md", "service.py", ("insert", "x1", "title")),
)
ASK_NO_AGENT = {("docs/howto/search-index.md", "search.py")}
# test_howto_outbox.py, test_howto_pipe.py, test_cluster_docs.py and test_user_pages.py run them:
# they need a database, a pipe, Spark or a browser.
SERVICES = {
    ("docs/howto/outbox.md", "embedded.py"),
    ("docs/howto/outbox.md", "service.py"),
    ("docs/howto/postgres.md", "service.py"),
    ("docs/howto/regions.md", "regions.py"),
    ("docs/howto/search-index.md", "api.py"),
    ("docs/howto/search-index.md", "titles.py"),
    ("docs/howto/user-pages.md", "app.py"),
    ("docs/howto/user-pages.md", "grant.py"),
    ("docs/operate/spark.md", "job.py"),
    ("docs/reference/pipe.md", "printing.py"),
    ("docs/reference/pipe.md", "shape.py"),
}


class Running:
    """A running program and its standard error."""

    def __init__(self, process: "subprocess.Popen[bytes]", errors: int) -> None:
        self.process = process
        self._errors = errors

    @property
    def errors(self) -> str:
        return os.pread(self._errors, 1 << 20, 0).decode()

    def wait_for(self, words: str) -> None:
        assert wait_until(lambda: words in self.errors), self.errors

    def ends_within(self, seconds: float, number: int) -> bool:
        """Send a signal, and return True if the program ends within these seconds."""
        self.process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.poll() is not None

    def end(self, number: int | None = None) -> int:
        """Return its exit code. ``number`` is a signal to send before."""
        if number is not None:
            self.process.send_signal(number)
        code = self.process.wait(DEADLINE)
        assert "Traceback" not in self.errors, self.errors
        return code


@contextmanager
def started(program: Program, folder: Path, port: int) -> Iterator[Running]:
    def here(text: str) -> str:
        return text.replace("localhost:8042", f"127.0.0.1:{port}")

    (folder / program.name).write_text(here(program.code()))
    with (
        tempfile.TemporaryFile() as errors,
        Forked[bytes](
            [sys.executable, program.name, *map(here, program.arguments)],
            cwd=folder,
            env={**os.environ, "OPLOG_URL": f"http://127.0.0.1:{port}"},
            stdout=subprocess.DEVNULL,
            stderr=errors,
        ) as process,
    ):
        try:
            yield Running(process, errors.fileno())
        finally:
            process.kill()


def test_every_program_of_the_documents_is_tried_here() -> None:
    shown = {
        (name_of(path), each.word)
        for path in documents()
        for each in snippets(path)
        if each.word.endswith(".py")
    } | {(DEPLOY, path.name) for path in (ROOT / DEPLOY).glob("*.py")}
    tried = {(program.document, program.name) for program in (*FOLLOW, *SEND)} | {
        (DEPLOY, "producer.py")
    }
    assert shown == tried | ASK_NO_AGENT | SERVICES


@pytest.mark.parametrize(
    "program", FOLLOW, ids=lambda program: f"{program.document}/{program.name}"
)
def test_a_program_that_follows_waits_for_an_agent_that_is_not_there_and_says_so(
    program: Program, tmp_path: Path
) -> None:
    with started(program, tmp_path, free_port()) as running:
        running.wait_for("trying again in")
        assert running.end(signal.SIGINT) == 0


def test_a_program_that_sends_gives_up_without_an_agent_and_says_so(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
    with (
        started(SEND[0], tmp_path / "a", free_port()) as one,
        started(SEND[1], tmp_path / "b", free_port()) as other,
        started(Program(DEPLOY, "producer.py"), tmp_path / "c", free_port()) as endless,
    ):
        endless.wait_for("operations wait")
        assert endless.end(signal.SIGTERM) == 1
        assert endless.errors.splitlines()[-1].startswith("operations are lost. ")
        for running in (one, other):
            assert running.end() == 1
            assert "has not confirmed" in running.errors.splitlines()[-1]


@pytest.mark.parametrize("program", SEND, ids=lambda program: program.name)
def test_a_program_that_sends_ends_quietly_with_ctrl_c(program: Program, tmp_path: Path) -> None:
    with started(program, tmp_path, free_port()) as running:
        running.wait_for("operations wait")
        assert running.end(signal.SIGINT) == 1
        assert "has not confirmed" in running.errors.splitlines()[-1]


def test_a_relay_whose_target_is_away_ends_with_another_ctrl_c_and_sends_everything_later(
    tmp_path: Path,
) -> None:
    near, far = free_port(), free_port()
    addresses = (f"http://127.0.0.1:{near}", f"http://127.0.0.1:{far}")
    relay = Program("docs/howto/regions.md", "relay.py", (*addresses, "west"))
    (tmp_path / "far").mkdir()
    with agent_on(near, tmp_path) as agent:
        with agent_on(far, tmp_path / "far") as target, started(relay, tmp_path, near) as running:
            agent.post({"event": "insert", "type": "video", "id": "w1", "parents": ["region/west"]})
            target.wait_status(events_ingested=1)
            assert target.stop() == 0
            agent.post({"event": "insert", "type": "video", "id": "w2", "parents": ["region/west"]})
            running.wait_for("operations wait")
            presses = 1
            while not running.ends_within(1, signal.SIGINT):
                presses += 1
            assert presses <= 3  # one more if the second comes while the first is being dealt with
            assert running.end() == 0
        with agent_on(far, tmp_path / "far") as target, started(relay, tmp_path, near):
            assert wait_until(lambda: target.replicate().keys() == {"video/w1", "video/w2"})


def has_sent(agent: Agent) -> bool:
    return bool(agent.status()["events_sent"] >= 1)


def test_the_programs_of_compose_run_twice_with_the_agent_restarted_in_between(
    tmp_path: Path,
) -> None:
    port = free_port()
    producer, consumer = Program(DEPLOY, "producer.py"), Program(DEPLOY, "consumer.py")
    for number in (signal.SIGINT, signal.SIGTERM):
        with (
            agent_on(port, tmp_path) as agent,
            started(producer, tmp_path, port) as sending,
            started(consumer, tmp_path, port) as following,
        ):
            agent.wait_status(clients=1)
            assert wait_until(partial(has_sent, agent))
            assert [sending.end(number), following.end(number)] == [0, 0]
            assert agent.stop() == 0

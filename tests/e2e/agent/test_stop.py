"""A stop ends by its deadline, whatever floods the agent or hangs in it."""

import contextlib
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.kits.agents.agent import (
    DEADLINE,
    TELLING,
    Agent,
    NewAgent,
    TellingAgent,
    write_lock,
)
from tests.kits.clock.waiting import attempts
from tests.kits.processes import forked
from tests.kits.web.connection import NDJSON, RawConnection

FLOOD = """
import itertools, socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
address = ("127.0.0.1", int(sys.argv[1]))
raws = [b'{"event":"update","type":"t","id":"%d"}' % number for number in range(100)]
print(flush=True)
for raw in itertools.cycle(raws):
    sock.sendto(raw, address)
"""
# The threads of the store wait for a lock far longer than a test waits for the end of an agent.
PATIENT_STORE = """
from oplogd.store.sqlite.file import connection
connection.BUSY_SECONDS = 3600.0
"""
# A request that begins a transaction does not end.
HANGING_COMMIT = """
import asyncio, sys
from oplogd.topics.transactions.service import TransactionService
async def begin(*_):
    print("hanging", file=sys.stderr, flush=True)
    await asyncio.Event().wait()
TransactionService.begin = begin
"""
TOTALS = re.compile(
    r"received (\d+) operations: stored (\d+), refused (\d+) as invalid,"
    r" discarded (\d+), left (\d+)"
)


@contextmanager
def flood(agent: Agent) -> Iterator[None]:
    """Run two processes that send as fast as they can, with or without an agent."""
    command = [sys.executable, "-c", FLOOD, str(agent.udp_port)]
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            process = stack.enter_context(forked.start(command, stdout=subprocess.PIPE))
            stack.callback(process.kill)
            assert process.stdout is not None
            process.stdout.readline()
        yield


def totals(agent: Agent) -> list[int]:
    """Return the totals in the log: received, stored, refused, discarded, left."""
    [found] = [match for line in agent.log if (match := TOTALS.search(line))]
    return list(map(int, found.groups()))


def changed(folder: Path, script: str) -> str:
    """Return the path of a program that runs this script, then an agent."""
    path = folder / "changed.py"
    path.write_text(f"{script}\nfrom oplogd.cli import main\nmain()\n")
    return str(path)


class ChangedAgent(Agent):
    def __init__(self, folder: Path, script: str, *flags: str) -> None:
        self.program = (changed(folder, script),)
        super().__init__(folder, *flags)


def wait_received(agent: Agent, more: int) -> None:
    enough = agent.status()["events_received"] + more
    arrives = any(agent.status()["events_received"] >= enough for _ in attempts(DEADLINE))
    assert arrives, "the flood does not arrive"


def test_a_flood_does_not_hold_up_the_stop_and_all_that_was_received_is_counted(
    tmp_path: Path,
) -> None:
    with Agent(tmp_path, "--shutdown-timeout", f"{DEADLINE}s") as agent:
        with flood(agent):
            wait_received(agent, 1_000)
            assert agent.stop() == 0
        received, stored, refused, discarded, left = totals(agent)
        assert (refused, left) == (0, 0)
        assert received == stored + discarded
        with closing(sqlite3.connect(tmp_path / "oplog.db")) as db:
            assert db.execute("SELECT head FROM logs").fetchone() == (stored,)


def test_a_second_signal_ends_the_agent_in_a_flood(tmp_path: Path) -> None:
    with (
        Agent(tmp_path, "--shutdown-timeout", f"{2 * DEADLINE}s") as agent,
        write_lock(tmp_path),
        flood(agent),
    ):
        wait_received(agent, 1_000)
        agent.process.send_signal(signal.SIGTERM)
        agent.wait_log("stopping: storing")
        agent.process.send_signal(signal.SIGTERM)
        assert agent.wait() == 3
        agent.wait_log("a second signal")


def test_the_deadline_ends_the_agent_in_a_flood(tmp_path: Path) -> None:
    with (
        TellingAgent(tmp_path, "--shutdown-timeout", "500ms") as agent,
        write_lock(tmp_path),
        flood(agent),
    ):
        wait_received(agent, 1_000)
        assert agent.stop() == 3
        agent.wait_log("--shutdown-timeout of 0.5 s is over")


def test_a_thread_that_waits_for_a_lock_does_not_hold_up_the_exit(tmp_path: Path) -> None:
    operations = [{"event": "insert", "type": "t", "id": str(number)} for number in range(3)]
    with (
        ChangedAgent(tmp_path, PATIENT_STORE + TELLING, "--shutdown-timeout", "500ms") as agent,
        write_lock(tmp_path),
    ):
        agent.send_udp(*operations)
        agent.wait_status(queue_size=3)
        assert agent.stop() == 3
        assert "3 operations are not confirmed as stored" in "".join(agent.log)


# The body of the close, the deadline and the exit code. The rest of a stop takes less than 5 s.
HANGS = {
    "a thread": ("await asyncio.to_thread(time.sleep, 3600)", "500ms", 3),
    "the event loop": ("time.sleep(3600)", "500ms", 3),
    "a thread that nothing waits for": (
        "asyncio.get_running_loop().run_in_executor(None, time.sleep, 3600)",
        "5s",
        0,
    ),
}


@pytest.mark.parametrize(("body", "timeout", "code"), HANGS.values(), ids=HANGS)
def test_the_deadline_ends_the_agent_whatever_hangs(
    tmp_path: Path, body: str, timeout: str, code: int
) -> None:
    """The store hangs when it is closed."""
    script = (
        "import asyncio, time\n"
        "from oplogd.store.sqlite import SqliteStore\n"
        "async def close(store):\n"
        f"    {body}\n"
        "SqliteStore.close = close\n"
    )
    tells = body.startswith("await")
    script += TELLING if tells else ""
    with ChangedAgent(tmp_path, script, "--shutdown-timeout", timeout) as agent:
        assert agent.post({"event": "insert", "type": "t", "id": "a"}) == 204
        assert agent.stop() == code
    assert ("stopped\n" in "".join(agent.log)) == (code == 0)
    if tells:
        assert (
            "0 operations are not confirmed as stored, 0 streams open;"
            " the store or the spool does not close" in agent.log[-1]
        )


def test_the_deadline_ends_the_agent_if_the_event_loop_hung_before_the_signal(
    tmp_path: Path,
) -> None:
    script = (
        "import sys, time\n"
        "from oplogd.stream.hub import Hub\n"
        "def look(*_):\n"
        "    print('hanging', file=sys.stderr, flush=True)\n"
        "    time.sleep(3600)\n"
        "Hub.look = look\n"
    )
    with ChangedAgent(tmp_path, script, "--shutdown-timeout", "500ms") as agent:
        agent.wait_log("hanging")
        assert agent.stop() == 3


def test_a_writer_that_dies_ends_the_agent_without_a_wait_for_the_queue(tmp_path: Path) -> None:
    script = (
        "from oplogd.ingest.queue import IngestQueue\n"
        "take = IngestQueue.take\n"
        "async def take_and_die(*args):\n"
        "    await take(*args)\n"
        "    raise RuntimeError('no more')\n"
        "IngestQueue.take = take_and_die\n"
    )
    with ChangedAgent(tmp_path, script, "--shutdown-timeout", f"{2 * DEADLINE}s") as agent:
        agent.send_udp({"event": "insert", "type": "t", "id": "a"})
        assert agent.wait() == 1
        assert totals(agent) == [1, 0, 0, 0, 1]


def test_a_part_that_dies_during_the_stop_shows_in_the_exit_code(tmp_path: Path) -> None:
    script = (
        "from oplogd.stream.hub import Hub\n"
        "async def end_all(hub):\n"
        "    raise RuntimeError('no more')\n"
        "Hub.end_all = end_all\n"
    )
    with ChangedAgent(tmp_path, script) as agent:
        assert agent.stop() == 1
        assert "the stop failed" in "".join(agent.log)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_before_the_agent_is_ready_ends_it_in_order(
    tmp_path: Path, number: signal.Signals
) -> None:
    with Agent(tmp_path):
        pass
    flags = ["--listen", "127.0.0.1:0", "--debug", "--shutdown-timeout", "500ms", "--store"]
    # A test run under nohup ignores SIGHUP, and its children inherit that.
    notice = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
    command = [sys.executable, changed(tmp_path, notice + PATIENT_STORE), *flags]
    with (
        write_lock(tmp_path),
        forked.Forked[str](
            [*command, str(tmp_path / "oplog.db")], stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        timer = threading.Timer(DEADLINE, process.kill)
        timer.start()
        assert process.stderr is not None
        assert "opening the store" in process.stderr.readline()
        process.send_signal(number)
        rest = process.stderr.read()
        assert process.wait(DEADLINE) == 0
        timer.cancel()
    assert "stopping before the agent was ready" in rest
    assert "Traceback" not in rest


def test_a_stop_answers_unfinished_uploads_and_requests_that_wait_for_the_store(
    tmp_path: Path,
) -> None:
    heads = (b"Content-Length: 9\r\n", b"Transfer-Encoding: chunked\r\n")
    with ChangedAgent(tmp_path, HANGING_COMMIT) as agent, contextlib.ExitStack() as stack:
        uploads = [stack.enter_context(RawConnection(agent)) for _ in range(50)]
        for number, upload in enumerate(uploads):
            upload.send(NDJSON, heads[number % 2], b"Expect: 100-continue\r\n\r\n")
        for upload in uploads:
            assert upload.socket.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        begin = stack.enter_context(RawConnection(agent))
        begin.send(b"POST /v1/txns HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
        agent.wait_log("hanging")
        agent.process.send_signal(signal.SIGTERM)
        for upload in uploads:
            reply = upload.reply()
            assert (reply.status, reply.headers["retry-after"]) == (503, "1")
            assert reply.problem().startswith("the agent is stopping")
            upload.close()
        reply = begin.reply()
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        assert reply.problem().startswith("not confirmed, it may still be stored")
        assert agent.wait() == 0
        assert "Traceback" not in agent.text()


# Stops the import of a module until a signal comes.
STOPPED_IMPORT = """
import runpy, signal, sys
class Stopping:
    def find_spec(self, name, path=None, target=None):
        if name == stopped:
            print(flush=True)
            signal.pause()
stopped = sys.argv.pop(1)
sys.meta_path.insert(0, Stopping())
runpy.run_module("oplogd", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("module", ["click", "fastapi"])
def test_a_signal_while_the_agent_imports_its_modules_ends_it_quietly(
    tmp_path: Path, module: str, number: signal.Signals
) -> None:
    flags = ["--listen", "127.0.0.1:0", "--store", str(tmp_path / "oplog.db")]
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED_IMPORT, module, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    ) as process:
        timer = threading.Timer(DEADLINE, process.kill)
        timer.start()
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        _, errors = process.communicate()
        timer.cancel()
    assert (process.returncode, errors) == (0, b"")


def test_a_closed_terminal_ends_the_agent_in_order(tmp_path: Path) -> None:
    # A test run under nohup ignores SIGHUP, and its children inherit that.
    notice = lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)  # noqa: E731
    with NewAgent(tmp_path, preexec_fn=notice) as agent:
        with write_lock(tmp_path):
            agent.send_udp({"event": "insert", "type": "t", "id": "a"})
            agent.wait_status(queue_size=1)
            agent.process.send_signal(signal.SIGHUP)
            agent.wait_log("stopping: storing 1 queued")
        assert agent.wait() == 0
    with closing(sqlite3.connect(tmp_path / "oplog.db")) as db:
        assert db.execute("SELECT head FROM logs").fetchone() == (1,)


def test_a_hangup_that_its_parent_ignores_is_ignored(tmp_path: Path) -> None:
    ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # noqa: E731
    with NewAgent(tmp_path, preexec_fn=ignore) as agent:
        agent.process.send_signal(signal.SIGHUP)
        assert agent.post({"event": "insert", "type": "t", "id": "a"}) == 204
        assert agent.stop() == 0

"""Workers start, die, are replaced and stop as one agent."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kits.agents.agent import DEADLINE, Agent, NewAgent, ask, write_lock
from tests.kits.agents.workers import wait_for_end, wait_for_workers, worker_pids
from tests.kits.clock.waiting import attempts
from tests.kits.processes.suspend import suspend

TWO = ("--workers", "2")


def operation(number: int) -> dict[str, str]:
    return {"event": "insert", "type": "t", "id": str(number)}


# Worker 1 ends with code 7 at its start, in each process but the first LIVES.
DYING = """
import os
from oplogd import server
run = server.run
def dying(*args, joined, **others):
    if joined.worker.number == 1:
        with open("FOLDER/starts", "a") as file:
            file.write("x")
        if os.path.getsize("FOLDER/starts") > LIVES:
            os._exit(7)
    return run(*args, joined=joined, **others)
server.run = dying
"""

# Worker 1 takes operations during a stop until there is a file.
LATE = """
import asyncio, os, sys
from oplogd.agent import Agent
def told(work):
    async def tell(self, **given):
        if self.worker.number == 1 and work.__name__ == "shut":
            while not os.path.exists("FOLDER/shut"):
                await asyncio.sleep(0.01)
        if work.__name__ == "drain":
            print(f"drain {self.worker.number}", file=sys.stderr, flush=True)
        await work(self, **given)
        if work.__name__ == "shut":
            print(f"shut {self.worker.number}", file=sys.stderr, flush=True)
    return tell
Agent.shut, Agent.drain = told(Agent.shut), told(Agent.drain)
"""


# A task of worker N dies when there is a file "die N".
FRAGILE = """
import asyncio, os
from oplogd.agent import Agent
start = Agent.start
async def fragile(self):
    async def doomed():
        path = f"FOLDER/die {self.worker.number}"
        while not os.path.exists(path):
            await asyncio.sleep(0.01)
        os.remove(path)
        raise ValueError
    await start(self)
    self.run("doomed task", doomed())
Agent.start = fragile
"""

# From its second process on, worker 1 does nothing until there is a file.
HANGING = """
import os, sys, time
from oplogd import server
run = server.run
def hanging(*args, joined, **others):
    if joined.worker.number == 1:
        if os.path.exists("FOLDER/began"):
            print("hangs", file=sys.stderr, flush=True)
            while not os.path.exists("FOLDER/leave"):
                time.sleep(0.01)
            os._exit(0)
        open("FOLDER/began", "x").close()
    return run(*args, joined=joined, **others)
server.run = hanging
"""


class Changed(Agent):
    """An agent of two workers after a script, with its folder in place of FOLDER."""

    def __init__(self, folder: Path, script: str) -> None:
        path = folder / "changed.py"
        script = script.replace("FOLDER", str(folder))
        path.write_text(f"{script}\nfrom oplogd.cli import main\nmain()\n")
        self.program = (str(path),)
        super().__init__(folder, *TWO)


def dying(lives: int) -> str:
    return DYING.replace("LIVES", str(lives))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with Agent(tmp_path_factory.mktemp("agent"), *TWO) as agent:
        yield agent


def test_the_first_line_tells_the_number_and_comes_when_all_serve(running: Agent) -> None:
    assert running.log[0].endswith("oplog.db, 2 workers\n")
    assert len(worker_pids(running)) == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_another_agent_does_not_get_the_port(running: Agent, tmp_path: Path, workers: int) -> None:
    flags = ("--listen", f"127.0.0.1:{running.port}", "--workers", str(workers))
    with pytest.raises(AssertionError, match="give another address with --listen"):
        Agent(tmp_path, *flags)


def test_all_that_was_answered_is_there_after_each_worker_was_killed(tmp_path: Path) -> None:
    numbers = iter(range(1_000_000))
    sent: list[str] = []
    stored: list[str] = []
    ended = threading.Event()

    def send() -> None:
        while not ended.is_set():
            number = next(numbers)
            sent.append(str(number))
            try:
                if agent.post(operation(number)) == 204:
                    stored.append(str(number))
            except OSError:  # its worker was killed
                pass
            number = next(numbers)
            sent.append(str(number))
            agent.send_udp(operation(number))

    with Agent(tmp_path, *TWO) as agent:
        senders = [threading.Thread(target=send) for _ in range(4)]
        for sender in senders:
            sender.start()
        for kills in range(1, 5):
            enough = len(stored) + 20
            assert any(len(stored) >= enough for _ in attempts(DEADLINE))
            oldest = worker_pids(agent)[0]
            os.kill(oldest, signal.SIGKILL)
            agent.wait_log("was killed by signal 9: another starts", kills)
            wait_for_workers(agent, 2, without=oldest)
        ended.set()
        for sender in senders:
            sender.join()
        status = agent.wait_status(queue_size=0)
        found = {event.operation["id"] for event in agent.replicate().values()}
        assert set(stored) <= found <= set(sent)
        assert [each["restarts"] for each in status["workers"]] == [2, 2]
        # The last datagrams may come after both answers.
        assert any(
            agent.status()["store"]["ops"] == len(agent.replicate()) for _ in attempts(DEADLINE)
        )
        counted = ("events_ingested", "events_discarded")
        assert status["events_received"] == sum(status[name] for name in counted)
        assert agent.stop() == 0


def test_what_waits_for_a_killed_worker_is_done_by_the_next_one(tmp_path: Path) -> None:
    with Agent(tmp_path, *TWO) as agent:
        # The kernel chooses the worker for each socket, so some of them wait for this one.
        waiting = worker_pids(agent)[0]
        suspend(waiting)
        where = ("127.0.0.1", agent.port)
        streams = [socket.create_connection(where, DEADLINE) for _ in range(40)]
        for stream in streams:
            stream.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        for number in range(40):
            agent.send_udp(operation(number))
        os.kill(waiting, signal.SIGKILL)
        for stream in streams:
            with stream:
                assert stream.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")
        assert any(len(agent.replicate()) == 40 for _ in attempts(DEADLINE))


def test_when_the_supervisor_is_killed_the_workers_end_and_the_port_is_free(tmp_path: Path) -> None:
    with Agent(tmp_path, *TWO) as agent:
        assert agent.post(operation(1)) == 204
        pids = worker_pids(agent)
        with agent.follow() as stream:
            agent.process.kill()
            assert stream.rest() == []  # it ends properly
        wait_for_end(pids)
        with Agent(tmp_path, *TWO, "--listen", f"127.0.0.1:{agent.port}") as next_one:
            assert list(next_one.replicate()) == ["t/1"]


def test_a_worker_that_dies_at_its_start_three_times_ends_the_agent_with_its_code(
    tmp_path: Path,
) -> None:
    with pytest.raises(AssertionError, match="worker 1 ended with code 7 again before it served"):
        Changed(tmp_path, dying(0))
    assert (tmp_path / "starts").read_text() == "xxx"


def test_a_worker_that_served_before_has_three_starts_again(tmp_path: Path) -> None:
    with Changed(tmp_path, dying(1)) as agent:
        os.kill(worker_pids(agent)[1], signal.SIGKILL)
        assert agent.wait() == 7
        assert (tmp_path / "starts").read_text() == "xxxx"
        assert agent.count("another starts") == 3
        assert agent.count("worker 0: stopped") == 1


def test_a_worker_that_fails_leaves_its_sockets_to_the_next_one(tmp_path: Path) -> None:
    with Changed(tmp_path, FRAGILE) as agent:
        for number in range(2):
            (tmp_path / f"die {number}").touch()
            agent.wait_log("ended with code 1: another starts", number + 1)
        agent.wait_status(status="OK")
        assert any(
            all(each["restarts"] == 1 for each in agent.status()["workers"])
            for _ in attempts(DEADLINE)
        )
        for number in range(40):
            agent.send_udp(operation(number))  # each from a socket of its own
        agent.wait_status(events_ingested=40)


def test_datagrams_for_a_worker_that_does_not_serve_are_stored_at_a_stop(tmp_path: Path) -> None:
    with Changed(tmp_path, HANGING) as agent:
        os.kill(worker_pids(agent)[1], signal.SIGKILL)
        agent.wait_log("hangs")
        for number in range(40):
            agent.send_udp(operation(number))
        agent.process.send_signal(signal.SIGTERM)
        agent.wait_log("stopping: storing")
        (tmp_path / "leave").touch()
        assert agent.wait() == 0
        agent.wait_log("received 40 operations: stored 40,")


def test_each_worker_has_only_its_own_sockets_for_http(running: Agent) -> None:
    listening = {
        line.split()[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[3] == "0A" and int(line.split()[1].split(":")[1], 16) == running.port
    }
    assert len(listening) == 2
    for pid in worker_pids(running):
        files = {os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()}
        assert sum(f"socket:[{inode}]" in files for inode in listening) == 1


def test_a_store_that_cannot_be_opened_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "oplog.db").write_bytes(b"no SQLite" * 1000)
    with pytest.raises(AssertionError) as raised:
        Agent(tmp_path, *TWO)
    assert str(raised.value).count("is damaged or no SQLite file") == 1


def test_signals_to_a_worker_do_nothing(running: Agent) -> None:
    pids = worker_pids(running)
    for pid in pids:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(pid, number)
    assert ask(running.port, "GET", "/live").status == 200
    assert worker_pids(running) == pids
    assert not running.count("stopping")


def test_no_stream_ends_before_all_intake_has(tmp_path: Path) -> None:
    numbers = iter(range(1_000_000))
    stored: list[str] = []

    def send() -> None:
        while True:
            number = next(numbers)
            try:
                status = agent.post(operation(number))
            except OSError:
                return
            if status != 204:
                return
            stored.append(f"t/{number}")

    with Agent(tmp_path, *TWO) as agent:
        streams = [agent.follow() for _ in range(8)]  # some at each worker
        senders = [threading.Thread(target=send) for _ in range(4)]
        for sender in senders:
            sender.start()
        assert any(len(stored) >= 100 for _ in attempts(DEADLINE))
        agent.process.send_signal(signal.SIGTERM)
        for stream in streams:
            with stream:
                got = [event.key for event in stream.rest() if event.event == "insert"]
            assert set(stored) <= set(got)
            assert len(got) == len(set(got))
        for sender in senders:
            sender.join()
        assert agent.wait() == 0


def test_streams_of_a_worker_get_what_another_takes_during_the_stop(tmp_path: Path) -> None:
    with Changed(tmp_path, LATE) as agent:
        streams = [agent.follow() for _ in range(8)]
        agent.process.send_signal(signal.SIGTERM)
        agent.wait_log("shut 0")
        assert any(agent.post(operation(1)) == 204 for _ in attempts(DEADLINE))  # else 503
        (tmp_path / "shut").touch()
        for stream in streams:
            with stream:
                assert [event.operation["id"] for event in stream.rest()] == ["1"]
        assert agent.wait() == 0
        order = [line.split()[0] for line in agent.log if line.startswith(("shut", "drain"))]
        assert order == ["shut", "shut", "drain", "drain"]


def test_a_second_signal_ends_all_at_once(tmp_path: Path) -> None:
    with (
        Agent(tmp_path, *TWO, "--shutdown-timeout", f"{2 * DEADLINE}s") as agent,
        write_lock(tmp_path),
    ):
        agent.send_udp(*map(operation, range(3)))
        agent.process.send_signal(signal.SIGTERM)
        agent.wait_log("stopping: storing", 2)
        agent.process.send_signal(signal.SIGTERM)
        assert agent.wait() == 3
        assert agent.count("stopping at once, a second signal") == 2


def test_a_suspended_worker_is_killed_at_the_end_of_the_stop(tmp_path: Path) -> None:
    with NewAgent(tmp_path, *TWO, "--shutdown-timeout", "100ms") as agent:
        suspend(worker_pids(agent)[1])
        assert agent.stop() == 3
        agent.wait_log("a worker does not end: killing it")
        agent.wait_log("worker 1 was killed by signal 9 while it stopped")


def test_systemd_hears_of_the_agent_and_not_of_its_workers(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(DEADLINE)
        with Agent(tmp_path, *TWO, environ={"NOTIFY_SOCKET": str(tmp_path / "notify")}) as agent:
            assert sock.recv(100) == b"READY=1"
            assert agent.stop() == 0
            assert sock.recv(100) == b"STOPPING=1"
            sock.setblocking(False)
            with pytest.raises(BlockingIOError):
                sock.recv(100)

"""The servers of a run: each starts once and ends with the run."""

import os
import queue
import select
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from tests.kits.paths import ROOT
from tests.kits.processes.logged import DEADLINE
from tests.kits.servers.room import VARIABLE, ServerRoom, UnavailableError, address_of

pytestmark = pytest.mark.process


class Sleeper:
    """A server that is a process which sleeps."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.starts: queue.SimpleQueue[int] = queue.SimpleQueue()

    def reached_at(self) -> dict[str, Any]:
        return {"pid": self.end_signal()[1], "folder": str(self._folder)}

    def end_signal(self) -> tuple[int, int]:
        assert self._process is not None
        return signal.SIGKILL, self._process.pid

    def start(self) -> None:
        self._process = subprocess.Popen(["sleep", "3600"])
        self.starts.put(self._process.pid)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


@pytest.fixture(autouse=True)
def variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo what a room writes into the environment: the run has a room of its own."""
    monkeypatch.setenv(VARIABLE, os.environ[VARIABLE])


def test_all_askers_get_one_server_that_ends_with_the_room() -> None:
    room = ServerRoom({"sleeper": Sleeper})
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(address_of("sleeper")["pid"]))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    (pid,) = set(found)
    program = os.pidfd_open(pid)
    room.close()
    with pytest.raises(ProcessLookupError):
        signal.pidfd_send_signal(program, 0)
    os.close(program)


def test_a_start_that_failed_is_tried_again_and_a_missing_program_is_not() -> None:
    calls: list[str] = []

    def make(error: Exception, name: str) -> Callable[[Path], Sleeper]:
        def made(folder: Path) -> Sleeper:
            calls.append(name)
            if calls.count(name) == 1:
                raise error
            return Sleeper(folder)

        return made

    room = ServerRoom(
        {
            "slow": make(AssertionError("too slow"), "slow"),
            "missing": make(UnavailableError("no Java"), "missing"),
        }
    )
    with pytest.raises(AssertionError, match="slow did not start:\ntoo slow"):
        address_of("slow")
    assert address_of("slow")["pid"]
    for _ in range(2):
        with pytest.raises(UnavailableError, match="no Java"):
            address_of("missing")
    assert calls == ["slow", "slow", "missing"]
    room.close()


def test_a_server_that_ends_before_the_run_is_started_again_each_time_and_told() -> None:
    made: list[Sleeper] = []

    def make(folder: Path) -> Sleeper:
        made.append(Sleeper(folder))
        return made[0]

    room = ServerRoom({"sleeper": make})
    folder = Path(address_of("sleeper")["folder"])
    for _ in range(2):
        process = made[0].starts.get(timeout=DEADLINE)
        folder.mkdir(exist_ok=True)
        (folder / "server.log").write_text("panic: " + "x" * 10_000 + " in cursor")
        (folder / "data").touch()
        os.kill(process, signal.SIGKILL)
    last = made[0].starts.get(timeout=DEADLINE)
    assert not (folder / "data").exists()
    room.close()
    with pytest.raises(ProcessLookupError):
        os.kill(last, 0)
    assert [text.splitlines()[0] for text in room.ended] == [
        "sleeper ended before the run, and was started again."
    ] * 2
    assert all(text.endswith("x in cursor") and len(text) < 5_000 for text in room.ended)


def test_the_end_of_the_room_waits_for_a_start_under_way() -> None:
    starting, go_on = threading.Event(), threading.Event()
    made: list[Sleeper] = []

    def make(folder: Path) -> Sleeper:
        starting.set()
        go_on.wait()
        made.append(Sleeper(folder))
        return made[0]

    room = ServerRoom({"sleeper": make})
    asker = threading.Thread(target=lambda: address_of("sleeper"))
    asker.start()
    starting.wait()
    closing = threading.Thread(target=room.close)
    closing.start()
    go_on.set()
    closing.join()
    asker.join()
    with pytest.raises(ProcessLookupError):
        os.kill(made[0].end_signal()[1], 0)


def test_the_servers_of_a_run_that_is_killed_end() -> None:
    code = """
        import sys
        from tests.kits.servers.room import ServerRoom, address_of
        from tests.unit.kits.test_room import Sleeper
        ServerRoom({"sleeper": Sleeper})
        address = address_of("sleeper")
        print(address["pid"], address["folder"], flush=True)
        sys.stdin.readline()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as run:  # fmt: skip
        assert run.stdout is not None
        pid, folder = run.stdout.readline().split()
        program = os.pidfd_open(int(pid))
        run.kill()
        assert run.stdout.read() == ""  # the watch has inherited this output, and ends last
    poll = select.poll()
    poll.register(program, select.POLLIN)
    assert poll.poll(DEADLINE * 1_000)
    os.close(program)
    assert not Path(folder).parent.exists()

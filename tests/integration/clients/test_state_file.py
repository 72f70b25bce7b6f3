"""The state file: its content, its lock, and failures to write it."""

import asyncio
import errno
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from oplogc import Consumer, StateFileError
from oplogc.follow.state_file import Saver, StateFile
from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clients.following import Following
from tests.kits.contract.wire import wait_until
from tests.kits.processes import forked
from tests.kits.processes.forked import Forked

_FOLLOW = """
import sys
from oplogc import Consumer, OplogError
try:
    with Consumer(sys.argv[1], start="0", state_file=sys.argv[2]) as consumer:
        for event in consumer:
            consumer.ack(event)
            print(event.event, flush=True)
except OplogError as error:
    print(error, flush=True)
"""


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateFile]:
    file = StateFile(tmp_path / "state")
    yield file
    file.unlock()


@pytest.mark.parametrize("content", ["0", "1415271879041", "545b55c7f095528dd0f3863c", "1\n"])
def test_a_state_file_holds_an_id(tmp_path: Path, content: str) -> None:
    path = tmp_path / "state"
    path.write_text(content)
    assert StateFile(path).position == content.strip()


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"12345678901234", b"545b", b"\xff", b" 1", b"1\n\n"]
)
def test_a_state_file_with_something_else_is_refused_and_left_alone(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "state"
    path.write_bytes(content)
    with pytest.raises(StateFileError, match="Move it away"):
        Consumer("http://127.0.0.1:9", state_file=path)
    assert path.read_bytes() == content


def test_a_missing_state_file_is_not_made_before_there_is_a_position(tmp_path: Path) -> None:
    with Consumer("http://127.0.0.1:9", state_file=tmp_path / "state", start="5") as consumer:
        assert consumer.position == "5"
    assert not (tmp_path / "state").exists()


def test_a_place_that_cannot_be_read_or_written_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for wrong in ("folder", "file/state", "missing/state", "loop"):
        with pytest.raises(StateFileError, match=r"cannot (read|write) the state file"):
            Consumer("http://127.0.0.1:9", state_file=tmp_path / wrong)
    assert (tmp_path / "folder").is_dir()


def test_a_folder_that_takes_no_new_file_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behave like a read-only folder with an old lock file. Root can write to any folder."""

    def refuse(path: Path, mode: str = "r") -> IO[bytes]:
        if mode == "x":
            raise PermissionError(errno.EACCES, "Permission denied")
        return io.open(path, mode)  # noqa: UP020

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(StateFileError, match=r"cannot write .*Permission denied"):
        StateFile(tmp_path / "state")
    monkeypatch.undo()
    StateFile(tmp_path / "state").unlock()  # the refusal did not keep the lock


def test_a_state_file_is_replaced_in_one_step_and_a_link_to_it_stays(tmp_path: Path) -> None:
    path, link = tmp_path / "state", tmp_path / "link"
    link.symlink_to(path)
    file = StateFile(link)
    assert file.position == ""
    file.write("5")
    before = path.stat().st_ino
    file.write("6")
    assert (path.read_text(), link.is_symlink(), path.stat().st_ino != before) == ("6", True, True)
    assert sorted(os.listdir(tmp_path)) == ["link", "state", "state.lock"]
    file.unlock()


def test_a_relative_path_is_resolved_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    file = StateFile("state")
    monkeypatch.chdir("elsewhere")
    file.write("5")
    assert (tmp_path / "state").read_text() == "5"
    assert os.listdir() == []
    file.unlock()


def test_a_position_that_cannot_be_saved_is_told_once_and_at_the_end(
    state: StateFile, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keep the old position whole when the disk is full."""
    state.write("4")
    attempts = 0

    def full(descriptor: int) -> None:
        nonlocal attempts
        attempts += 1
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    saver = Saver(state, lambda: "5", 0.001)
    saver.changed()
    assert wait_until(lambda: attempts >= 5)
    with pytest.raises(StateFileError, match=r"cannot write.*No space left"):
        saver.close()
    assert len(caplog.records) == 1
    assert state.path.read_text() == "4"
    assert sorted(os.listdir(state.path.parent)) == ["state", "state.lock"]
    monkeypatch.undo()
    saver.close()
    assert state.path.read_text() == "5"


def test_a_second_consumer_of_a_file_is_refused_until_the_first_is_closed(tmp_path: Path) -> None:
    url, state = "http://127.0.0.1:9", tmp_path / "state"
    with Consumer(url, state_file=state):
        for path in (state, str(state)):
            with pytest.raises(StateFileError, match="in use by another consumer"):
                Consumer(url, state_file=path)
        with Consumer(url, state_file=tmp_path / "other"):
            pass
    first = Consumer(url, state_file=state)
    first.close()
    first.close()
    second = Consumer(url, state_file=state)
    asyncio.run(second.aclose())
    Consumer(url, state_file=state)  # without a reference it holds no lock
    Consumer(url, state_file=state).close()


def test_a_second_process_is_refused_and_the_lock_ends_with_the_first(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        command = [sys.executable, "-c", _FOLLOW, agent.url, str(tmp_path / "state")]
        first = Following(command)
        assert first.take(2) == ["reset", "live"]
        second = Following(command)
        code, text = second.rest()
        assert code == 0
        assert "in use by another consumer" in text
        first.kill()
        with Consumer(agent.url, state_file=tmp_path / "state", start="0"):
            pass


def test_a_child_does_not_hold_the_lock_of_its_parent(tmp_path: Path) -> None:
    code = f"""
import os, sys
from oplogc import Consumer
consumer = Consumer("http://127.0.0.1:9", state_file={str(tmp_path / "state")!r})
if os.fork() == 0:
    print("child", flush=True)
    sys.stdin.read()  # as a worker that outlives its parent
    os._exit(0)
os._exit(0)
"""
    with Forked[bytes](
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"child\n"
        assert process.wait(DEADLINE) == 0
        Consumer(
            "http://127.0.0.1:9", state_file=tmp_path / "state"
        ).close()  # the child still lives


def test_a_child_does_not_end_the_lock_of_its_parent(tmp_path: Path) -> None:
    code = f"""
import os
from oplogc import Consumer, StateFileError
consumer = Consumer("http://127.0.0.1:9", state_file={str(tmp_path / "state")!r})
child = os.fork()
if child == 0:
    consumer.close()
    os._exit(0)
os.waitpid(child, 0)
try:
    Consumer("http://127.0.0.1:9", state_file={str(tmp_path / "state")!r})
except StateFileError:
    print("still held")
"""
    done = forked.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE
    )
    assert (done.stdout, done.stderr) == ("still held\n", "")


def test_what_a_killed_process_left_beside_the_file_is_in_nobodys_way(tmp_path: Path) -> None:
    # In a container every process has the same id.
    code = """
import os, sys
from pathlib import Path
from oplogc.follow.state_file import StateFile
state = Path(sys.argv[1])
for number in range(100):
    state.with_name(f"{state.name}.{os.getpid()}-{number}.new").touch()
StateFile(state).write("5")
"""
    forked.run([sys.executable, "-c", code, str(tmp_path / "state")], check=True, timeout=DEADLINE)
    assert (tmp_path / "state").read_text() == "5"

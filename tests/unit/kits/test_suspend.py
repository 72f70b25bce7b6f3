"""A suspended process: no thread of it runs any more."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kits.clock.waiting import attempts
from tests.kits.processes.logged import DEADLINE
from tests.kits.processes.suspend import suspend

pytestmark = pytest.mark.process

# The kernel cannot suspend a process that starts another one. Here that waits for a pipe's writer.
STARTS_ANOTHER = """
import os, sys
pipe = (os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)
os.posix_spawn("/bin/true", ["true"], {}, file_actions=[pipe])
"""


def test_a_process_that_cannot_stand_yet_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def later(seconds: float) -> Iterator[None]:
        yield
        os.close(os.open(pipe, os.O_RDWR))
        yield from attempts(seconds)

    monkeypatch.setattr("tests.kits.processes.suspend.attempts", later)
    with subprocess.Popen([sys.executable, "-c", STARTS_ANOTHER, str(pipe)]) as process:
        try:
            assert any(starts_another(process.pid) for _ in attempts(DEADLINE))
            assert any(state(process.pid) == "D" for _ in attempts(DEADLINE))
            suspend(process.pid)
            assert state(process.pid) == "T"
        finally:
            process.kill()
            os.close(os.open(pipe, os.O_RDWR))  # the other process ends, too


def starts_another(pid: int) -> bool:
    """Return whether the process has a child, which waits for the pipe's writer.

    The state alone does not tell: a process that reads a file from a busy disk has the same.
    """
    return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text())


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]

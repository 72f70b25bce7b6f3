"""The end of a process by a second signal."""

import subprocess
import sys
from pathlib import Path

from tests.kits.processes.forked import run
from tests.kits.processes.logged import DEADLINE

# The second signal comes in the middle of a write to the log.
PROGRAM = """
import asyncio, io, logging, os, signal, sys
from oplog_kit.ending import Ending

class Stream(io.TextIOBase):
    is_writing = False

    def write(self, text):
        if self.is_writing:
            raise RuntimeError("reentrant call")
        self.is_writing = True
        if "stopping" in text:
            os.kill(os.getpid(), signal.SIGTERM)
        sys.stderr.write(text)
        self.is_writing = False

logging.basicConfig(stream=Stream(), level=logging.INFO, format="%(message)s")

async def main():
    ending = Ending(logging.getLogger("test"), "the last words")
    ending.listen(asyncio.get_running_loop())
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


def test_a_second_signal_within_a_write_to_the_log_is_told_and_ends_the_process(
    tmp_path: Path,
) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    done: subprocess.CompletedProcess[str] = run(
        [sys.executable, script], capture_output=True, text=True, timeout=DEADLINE
    )
    assert (done.returncode, done.stderr) == (1, "stopping: SIGTERM\nthe last words\n")

"""A command of the documents that runs until it is stopped, and its output."""

import os
import queue
import re
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from tests.kits.agents.agent import DEADLINE

# Exit codes after Ctrl-C.
_QUIET_ENDS = (0, 128 + signal.SIGINT, -signal.SIGINT)
_VARYING = (
    (re.compile(r"\b[0-9a-f]{24}\b"), "<event id>"),
    (re.compile(r"\b[0-9a-f]{40}\b"), "<message id>"),
    (re.compile(r"\b[0-9]{13}\b"), "<milliseconds>"),
    (re.compile(r"\b[4-9][0-9]{18}\b"), "<transaction id>"),
    (re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d\d\dZ"), "<time>"),
)


class Staying:
    """A command that runs until it is stopped. Its output is read line by line."""

    def __init__(self, code: str, folder: Path, environ: dict[str, str]) -> None:
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - close() closes it
        # If the agent ends the stream, everything but curl connects again.
        self.reconnects = not code.startswith("exec curl")
        self._process = subprocess.Popen(
            ["bash", "-c", code], cwd=folder, env=environ, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=self._errors,
            # A shell starts background processes with SIGINT ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def ports(self) -> set[int]:
        """Return the ports of its own TCP connections over IPv4."""
        folder = Path(f"/proc/{self._process.pid}")
        links = {os.readlink(each) for each in (folder / "fd").iterdir()}
        rows = [line.split() for line in (folder / "net/tcp").read_text().splitlines()[1:]]
        return {int(row[1].partition(":")[2], 16) for row in rows if f"socket:[{row[9]}]" in links}

    def expect(self, text: str) -> None:
        """Read the next lines and compare them with these. Heartbeats do not count."""
        wanted = shape(text)
        got: list[str] = []
        end = time.monotonic() + DEADLINE
        while len(got) < len(wanted):
            try:
                line = self._lines.get(timeout=max(0, end - time.monotonic()))
            except queue.Empty:
                line = None
            assert line is not None, f"wanted {wanted}, came {got}"
            if line.strip() != ":" and (got or line.strip()):
                got += shape(line, blank=True)
        assert got == wanted, f"wanted {wanted}, came {got}"

    @property
    def errors(self) -> str:
        """Return its standard error until now."""
        return os.pread(self._errors.fileno(), 1 << 20, 0).decode()

    def press_ctrl_c(self) -> None:
        """Send SIGINT. It must end before the deadline and without a traceback."""
        self._signal(signal.SIGINT)
        code = self.wait()
        assert code in _QUIET_ENDS, f"exit code {code} after Ctrl-C: {self.errors}"
        assert "Traceback" not in self.errors, self.errors

    def wait(self) -> int:
        return self._process.wait(DEADLINE)

    def close(self) -> None:
        self._signal(signal.SIGKILL)
        self.wait()
        self._reader.join(DEADLINE)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)


def shape(text: str, blank: bool = False) -> list[str]:
    """Return the lines with a name for each part that differs from run to run.

    Empty lines at both ends are left out, except with ``blank``.
    """
    for pattern, name in _VARYING:
        text = pattern.sub(name, text)
    lines = [line.rstrip() for line in text.splitlines()]
    if not blank:
        while lines and not lines[-1]:
            lines.pop()
        while lines and not lines[0]:
            lines.pop(0)
    return lines

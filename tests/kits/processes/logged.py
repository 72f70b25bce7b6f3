"""A program whose log lines a test waits for."""

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tests.kits.processes.forked import start
from tests.kits.processes.suspend import suspend

# Seconds that a single wait of a test may take, even on a busy machine.
DEADLINE = 60.0


class LoggedProcess:
    """A Python program that logs to stderr."""

    start: Callable[..., "subprocess.Popen[str]"] = staticmethod(start)

    def __init__(
        self,
        arguments: Sequence[str],
        environ: Mapping[str, str] | None = None,
        **popen: Any,
    ) -> None:
        self._lines: list[str] = []
        self._part = b""  # of a line
        self._logged = threading.Condition()
        self._ended = False
        self.process = self.start(
            [sys.executable, *arguments],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environ or {})},
            **{"stdin": subprocess.DEVNULL, **popen},
        )
        assert self.process.stderr is not None
        self._stderr = self.process.stderr
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> list[str]:
        """The lines of the log. Those that the process has written until now are in it."""
        with self._logged:
            while not self._ended and self._has_more(0):
                self._read()
            return list(self._lines)

    def count(self, words: str) -> int:
        """Return the number of log lines with these words."""
        return sum(words in line for line in self.log)

    def wait_log(self, words: str, times: int = 1) -> str:
        """Wait until so many log lines contain these words, and return the last of them."""
        found: list[str] = []
        read = 0

        def is_complete() -> bool:
            nonlocal read
            found.extend(line for line in self._lines[read:] if words in line)
            read = len(self._lines)
            return self._ended or len(found) >= times

        with self._logged:
            self._logged.wait_for(is_complete, DEADLINE)
            has = len(found) >= times
            assert has, f"{len(found)} of {times} lines with {words!r} in the log:\n{self.text()}"
        return found[-1]

    def text(self) -> str:
        return "".join(self.log)

    def freeze(self) -> None:
        """Suspend the process: it keeps its connections and does nothing."""
        if self.process.poll() is None:
            suspend(self.process.pid)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()  # also ends a process that is stopped
        self.wait()

    def wait(self) -> int:
        code = self.process.wait(2 * DEADLINE)
        self._reader.join(DEADLINE)
        with self._logged:
            self._ended = True
            self._stderr.close()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        if error is not None:  # pytest prints it with the failure
            print(f"the log of process {self.pid}:\n{self.text()}", file=sys.stderr)

    def _read_log(self) -> None:
        while not self._ended:
            self._has_more(None)  # without the lock: others look at the log meanwhile
            with self._logged:
                if not self._ended and self._has_more(0):
                    self._read()

    def _has_more(self, milliseconds: float | None) -> bool:
        """Return whether there is more to read, or the end, within this time. None: wait for it."""
        poll = select.poll()
        poll.register(self._stderr, select.POLLIN)
        return bool(poll.poll(milliseconds))

    def _read(self) -> None:
        """Read what is there. The caller has the lock."""
        received = os.read(self._stderr.fileno(), 1 << 16)
        *lines, self._part = (self._part + received).split(b"\n")
        for line in lines:
            self._add(f"{line.decode()}\n")
        self._ended = not received
        if self._ended and self._part:
            self._add(self._part.decode())
        self._logged.notify_all()

    def _add(self, line: str) -> None:
        """Add a line to the log. The caller has the lock."""
        self._lines.append(line)

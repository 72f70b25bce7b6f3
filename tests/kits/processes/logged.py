"""A program whose log lines a test waits for."""

import os
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
    """A Python program that logs to stderr. ``log``: its lines."""

    start: Callable[..., "subprocess.Popen[str]"] = staticmethod(start)

    def __init__(
        self,
        arguments: Sequence[str],
        environ: Mapping[str, str] | None = None,
        **popen: Any,
    ) -> None:
        self.log: list[str] = []
        self._logged = threading.Condition()
        self._ended = False
        self.process = self.start(
            [sys.executable, *arguments],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environ or {})},
            **{"stdin": subprocess.DEVNULL, **popen},
        )
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def count(self, words: str) -> int:
        """Return the number of log lines with these words."""
        with self._logged:
            return sum(words in line for line in self.log)

    def wait_log(self, words: str, times: int = 1) -> str:
        """Wait until so many log lines contain these words, and return the last of them."""
        found: list[str] = []
        read = 0

        def is_complete() -> bool:
            nonlocal read
            found.extend(line for line in self.log[read:] if words in line)
            read = len(self.log)
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
        assert self.process.stderr is not None
        self.process.stderr.close()
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
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._add(line)
        with self._logged:
            self._ended = True
            self._logged.notify_all()

    def _add(self, line: str) -> None:
        """Add a line to the log."""
        with self._logged:
            self.log.append(line)
            self._logged.notify_all()

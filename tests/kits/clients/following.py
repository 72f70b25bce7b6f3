"""A consumer as a process. It prints a line for each event."""

import subprocess
import threading
from typing import Any

from tests.kits.agents.agent import DEADLINE
from tests.kits.processes.forked import start


class Following:
    """Reads the lines of a consumer, and kills it after some deadlines."""

    def __init__(self, command: list[str], **popen: Any) -> None:
        self._process = start(command, stdout=subprocess.PIPE, text=True, **popen)
        self._watchdog = threading.Timer(4 * DEADLINE, self._process.kill)
        self._watchdog.start()

    def take(self, count: int) -> list[str]:
        assert self._process.stdout is not None
        lines = [self._process.stdout.readline().strip() for _ in range(count)]
        assert all(lines), f"the consumer ended: {lines}"
        return lines

    def rest(self) -> tuple[int, str]:
        """Wait for its end. Return the exit code and the rest of its output."""
        assert self._process.stdout is not None
        text = self._process.stdout.read()
        code = self._process.wait(DEADLINE)
        self.kill()
        return code, text

    def kill(self) -> None:
        self._watchdog.cancel()
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

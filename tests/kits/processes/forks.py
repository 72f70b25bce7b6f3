"""Forks of the test's own process, as the workers of an agent are forks of their supervisor."""

import json
import os
import select
import signal
from collections.abc import Callable
from typing import Any

from tests.kits.processes.logged import DEADLINE


class Fork:
    """A child that calls ``work`` with a function that tells its parent something.

    It ends with the call, whatever it raises. Leave the block: the child is killed if it still
    runs.
    """

    def __init__(self, work: Callable[[Callable[[Any], None]], None]) -> None:
        self._told, tell = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            try:
                work(lambda told: _send(tell, told))
            finally:
                os._exit(1)
        os.close(tell)

    def __enter__(self) -> "Fork":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        os.close(self._told)

    def told(self) -> Any:
        """Return the next thing that the child tells."""
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._told], [], [], DEADLINE)
            assert ready, f"the child tells nothing for {DEADLINE} s"
            byte = os.read(self._told, 1)
            assert byte, "the child has ended"
            line += byte
        return json.loads(line)

    def has_told(self) -> bool:
        """Return whether the child has told something that was not returned yet."""
        return bool(select.select([self._told], [], [], 0)[0])

    def kill(self) -> None:
        """Kill the child with SIGKILL, and wait for its end."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


def _send(pipe: int, told: Any) -> None:
    os.write(pipe, json.dumps(told).encode() + b"\n")

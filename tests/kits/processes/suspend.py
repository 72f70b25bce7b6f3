"""Processes that are suspended."""

import os
import signal
from pathlib import Path

from tests.kits.clock.waiting import attempts

# Seconds. A thread that waits for a busy disk stops after it.
_LONGEST_STOP = 60.0
# States of threads that run no more: stopped, traced, ended.
_STANDS = frozenset("TtXZ")


def suspend(pid: int) -> None:
    """Suspend a process, and wait until all its threads stand.

    Until then a thread may go on, and take a lock that the process keeps while it is suspended.
    """
    os.kill(pid, signal.SIGSTOP)
    assert any(_stands(pid) for _ in attempts(_LONGEST_STOP)), f"process {pid} does not stop"


def _stands(pid: int) -> bool:
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            fields = thread.read_text()
        except (FileNotFoundError, ProcessLookupError):  # the thread has ended
            continue
        if fields.rpartition(") ")[2][0] not in _STANDS:
            return False
    return True

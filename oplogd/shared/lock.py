"""A lock of several processes on Linux. The system frees it when its holder dies."""

import os
import sys
from typing import Self

if sys.platform != "win32":
    from fcntl import LOCK_EX, LOCK_UN, lockf


class ProcessLock:
    """Make it before the fork, and use it in a ``with`` block without an ``await``.

    It excludes other processes, not other threads of this one. It does not nest. Each lock has a
    file of its own in memory. The lock belongs to a process: its children do not inherit it.
    """

    def __init__(self, name: str) -> None:
        self._file = os.memfd_create(name)

    def __enter__(self) -> Self:
        lockf(self._file, LOCK_EX)
        return self

    def __exit__(self, *_: object) -> None:
        lockf(self._file, LOCK_UN)

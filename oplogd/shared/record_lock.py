"""A lock of processes. The kernel frees it when its holder ends, whatever ends it."""

import os
import weakref
from typing import Self


class RecordLock:
    """A POSIX record lock. It is no lock between the threads of a process. Needs Linux.

    Make it before the fork: children share its file, but do not inherit the lock. In a ``with``
    block the process waits for it, so the block has no ``await``. It does not nest.
    """

    def __init__(self) -> None:
        import fcntl

        self._fcntl = fcntl
        # A process that closes a descriptor of this file loses the lock.
        self._file = os.memfd_create("oplog-lock")
        weakref.finalize(self, os.close, self._file).atexit = False

    def __enter__(self) -> Self:
        self._fcntl.lockf(self._file, self._fcntl.LOCK_EX, 1)
        return self

    def __exit__(self, *_: object) -> None:
        self.free()

    def take(self) -> bool:
        """Take the lock if it is free. Return whether this process has it."""
        try:
            self._fcntl.lockf(self._file, self._fcntl.LOCK_EX | self._fcntl.LOCK_NB, 1)
        except OSError:  # another process has it, or the kernel has no memory for it
            return False
        return True

    def free(self) -> None:
        self._fcntl.lockf(self._file, self._fcntl.LOCK_UN, 1)

"""A lock on a path, against other processes and against a second use in this one."""

import errno
import logging
import os
import sys
from pathlib import Path

from oplogc.process.forks import after_fork
from oplogc.wire.errors import StateFileError

if sys.platform != "win32":
    import fcntl

_UNSUPPORTED = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
logger = logging.getLogger("oplogc")


class FileLock:
    """Holds ``<path>.lock`` by flock until ``release`` or the end of the process. On Windows it
    holds nothing.

    The file stays: after a removal two processes could lock two files of this name. The child
    of a fork does not hold the lock.
    """

    def __init__(self, path: Path) -> None:
        """Raises StateFileError if the lock is held already or its file cannot be made."""
        self._descriptor = -1
        if sys.platform == "win32":
            return
        name = path.with_name(f"{path.name}.lock")
        try:
            self._descriptor = os.open(name, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise StateFileError(
                f"cannot write the state file {path}: {name}: {error.strerror}"
            ) from None
        after_fork(self, FileLock.release)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise StateFileError(
                f"the state file {path} is in use by another consumer, which holds {name}: "
                "give each its own"
            ) from None
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                self.release()
                raise StateFileError(
                    f"cannot lock the state file {path}: {error.strerror}"
                ) from None
            logger.warning(
                "the file system cannot lock the state file %s: let one consumer use it", path
            )

    def release(self) -> None:
        """Unlock. May be called again."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def __del__(self) -> None:
        self.release()

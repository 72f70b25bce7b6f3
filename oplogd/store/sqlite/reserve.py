"""The reserve: a file that holds room on the disk until the disk is full."""

import errno
import os
import sys
from pathlib import Path

_BLOCK = 1 << 20
_NO_FALLOCATE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class Reserve:
    """The file ``STORE-reserve``. All agents of a store share it. Methods raise no OSError."""

    def __init__(self, store: Path) -> None:
        self._path = store.with_name(f"{store.name}-reserve")

    def size(self) -> int:
        """Return its size in bytes, 0 if there is none."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def release(self) -> bool:
        """Remove the file. Return whether that gave room back."""
        had = self.size() > 0
        try:
            self._path.unlink()
        except OSError:
            return False
        return had

    def make(self, size: int, beyond: int = 0) -> bool:
        """Make the file this large. Return whether the disk has room for ``beyond`` more bytes.

        Without that room the file stays as it was. While another agent makes it, nothing is done.
        """
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            return False
        kept, has_room = size, True
        try:
            if not _locked(file):
                return False
            present = os.fstat(file).st_size
            try:
                if present < size + beyond:
                    _allocate(file, present, size + beyond - present)
            except OSError:
                kept, has_room = present, False
            os.ftruncate(file, kept)
        except OSError:
            has_room = False
        finally:
            os.close(file)
        if kept == 0:
            self.release()
        return has_room


def _locked(file: int) -> bool:
    """Lock the file until it is closed. Return False if another process has locked it."""
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _allocate(file: int, start: int, size: int) -> None:
    """Take room on the disk, not only a larger size. Raises OSError."""
    if sys.platform == "linux":
        try:
            os.posix_fallocate(file, start, size)
            return
        except OSError as error:
            if error.errno not in _NO_FALLOCATE:
                raise
    os.lseek(file, start, os.SEEK_SET)
    block = os.urandom(min(size, _BLOCK))  # a file system that compresses would store no zeros
    while size > 0:
        size -= os.write(file, block[:size])

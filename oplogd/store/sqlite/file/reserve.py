"""The reserve: a file to hold room on the disk until the disk is full."""

import contextlib
import errno
import logging
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

_BLOCK = 1 << 20
_NO_FALLOCATE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
# The disk, or the process, has too little of something now.
_SHORT = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)

# The beginning of the file. A file with another one is not ours, and holds something.
_MARK = b"oplog: this file only holds room on the disk\n"
_FLAGS = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))

logger = logging.getLogger("oplogd.store")


class Reserve:
    """The file ``STORE-reserve``. All agents of a store share it. Methods raise no OSError.

    Anything else at its path is left alone, and logged once: a link, a folder, another content.
    """

    def __init__(self, store: Path) -> None:
        self._path = store.with_name(f"{store.name}-reserve")
        self._has_warned = False

    def size(self) -> int:
        """Return its size in bytes, 0 if there is none."""
        try:
            with self._opened(os.O_RDONLY) as file:
                return os.fstat(file).st_size
        except OSError:
            return 0

    def release(self) -> bool:
        """Remove the file. Return whether this gave room back."""
        try:
            with self._opened(os.O_RDONLY) as file:
                had = os.fstat(file).st_size > 0
            self._path.unlink()
        except OSError:
            return False
        return had

    def make(self, size: int, beyond: int = 0) -> bool:
        """Make the file this large. Return whether the disk has room for ``beyond`` more bytes.

        Without this room the file stays as it was. While another agent makes the file, do nothing
        and return False. If there can be no reserve, only the room is tried.
        """
        try:
            with self._opened(os.O_RDWR | os.O_CREAT) as file:
                return _locked(file) and self._make(file, size, beyond)
        except OSError as error:
            if error.errno in _SHORT:
                return False
            if not self._has_warned:
                self._has_warned = True
                logger.warning("cannot use %s as the reserve: %s", self._path, error.strerror)
            return self._has_room(beyond)

    def _make(self, file: int, size: int, beyond: int) -> bool:
        length, has_room = size, True
        try:
            present = os.fstat(file).st_size
            try:
                if present < size + beyond:
                    marked = present or os.write(file, _MARK[: size + beyond])
                    _allocate(file, marked, size + beyond - marked)
            except OSError:
                length, has_room = present, False
            os.ftruncate(file, length)
        except OSError:
            has_room = False
        if length == 0:
            with contextlib.suppress(OSError):
                self._path.unlink()
        return has_room

    @contextlib.contextmanager
    def _opened(self, flags: int) -> Iterator[int]:
        """Open the file for the block. Raises OSError, also if it is not the agent's."""
        file = os.open(self._path, flags | _FLAGS, 0o600)
        try:
            found = os.fstat(file)
            is_file = stat.S_ISREG(found.st_mode) and found.st_nlink <= 1
            if not is_file or not _is_mark(os.read(file, len(_MARK))):
                raise FileExistsError(errno.EEXIST, "it is there and no agent has made it")
            os.lseek(file, 0, os.SEEK_SET)
            yield file
        finally:
            os.close(file)

    def _has_room(self, size: int) -> bool:
        try:
            with tempfile.TemporaryFile(dir=self._path.parent) as file:
                _allocate(file.fileno(), 0, size)
        except OSError:
            return False
        return True


def _is_mark(head: bytes) -> bool:
    """Return whether the agent wrote this. After a crash of the machine there may be only zeros."""
    return not head.strip(b"\0") or _MARK.startswith(head.rstrip(b"\0"))


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
    if size == 0:
        return
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

"""The file system as the commit log needs it. Tests let it fail at each step."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oplog_kit.disk import disk_failure
from oplog_pipe.errors import LogError, LogLockedError

FILE_MODE = 0o600
FOLDER_MODE = 0o700
"""The contents of messages are for the user of the pipe only."""


class File:
    """An open file. It closes itself with the last reference. Everything raises OSError."""

    _descriptor = -1

    def __init__(self, path: Path, flags: int) -> None:
        self._path = path
        self._descriptor = os.open(path, flags | os.O_CLOEXEC, FILE_MODE)

    def read(self, size: int, at: int) -> bytes:
        """Return up to ``size`` bytes; fewer only at the end of the file."""
        found = os.pread(self._descriptor, size, at)
        more = found
        while more and len(found) < size:
            more = os.pread(self._descriptor, size - len(found), at + len(found))
            found += more
        return found

    def write(self, data: bytes, at: int) -> None:
        rest = memoryview(data)
        with self._named():
            while rest:
                written = os.pwrite(self._descriptor, rest, at)
                rest, at = rest[written:], at + written

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        with self._named():
            os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        with self._named():
            os.fsync(self._descriptor)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Let an error name the file."""
        try:
            yield
        except OSError as error:
            error.filename = str(self._path)
            raise

    # Not by hand: another thread may be reading.
    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


class Files:
    """The file system of the machine. Everything raises OSError."""

    def open(self, path: Path, *, write: bool = False) -> File:
        """Open a file; create it if ``write`` is set. Raises FileNotFoundError."""
        return File(path, os.O_RDWR | os.O_CREAT if write else os.O_RDONLY)

    def replace(self, path: Path, target: Path) -> None:
        os.replace(path, target)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder, sorted; none if there is no such folder."""
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    def make_folder(self, folder: Path) -> None:
        """Create a folder and those above it, if they do not exist."""
        if folder.is_dir():
            return
        self.make_folder(folder.parent)
        folder.mkdir(FOLDER_MODE, exist_ok=True)
        self.sync_folder(folder.parent)

    def sync_folder(self, folder: Path) -> None:
        """Put the names in a folder on disk."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: Path) -> object:
        """Lock a file until the last reference to the result is gone. Raises LogLockedError."""
        file = File(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(file._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LogLockedError(f"{path.parent} is in use by another process") from None
        return file


FILES = Files()


@contextmanager
def log_errors(path: Path, before: str = "") -> Iterator[None]:
    """Raise LogError for OSError. ``before``: begins the message. ``path``: if it names no file."""
    try:
        yield
    except OSError as error:
        raise LogError(f"{before}{disk_failure(error, path, 'dir')}") from error


def write_whole(files: Files, path: Path, data: bytes) -> None:
    """Replace a file's content so that after a crash it is the old one or the new one."""
    other = path.with_name(path.name + ".tmp")
    file = files.open(other, write=True)
    file.truncate(0)
    file.write(data, 0)
    file.sync()
    files.replace(other, path)
    files.sync_folder(path.parent)

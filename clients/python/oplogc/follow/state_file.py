"""The file with a consumer's position: only the id, as in the files of the first client library.

Behind the id of a topic's reader stands the isolation ``read_committed``, but no other.
"""

import contextlib
import errno
import logging
import os
import re
import secrets
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from oplogc.process.forks import after_fork
from oplogc.wire.errors import StateFileError
from oplogc.wire.events import POSITION

if sys.platform != "win32":
    import fcntl

_UNSUPPORTED = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_CONTENT = re.compile(r"(\S+)(?: (read_committed))?", re.ASCII)

logger = logging.getLogger("oplogc")


class FileLock:
    """Holds ``<path>.lock`` by flock until ``release``. On Windows it holds nothing.

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


class StateFile:
    """A state file in use. A relative path and links are resolved once, here.

    ``positions`` matches its possible positions. ``isolation``: ``read_committed`` or empty.
    Raises StateFileError, also in ``lock``, if the file is in use or cannot be read or written.
    """

    def __init__(
        self, path: str | Path, positions: re.Pattern[str] = POSITION, isolation: str = ""
    ) -> None:
        self.path = Path(os.path.realpath(path))
        self._positions = positions
        self._isolation = isolation
        self._lock: FileLock | None = None
        self.lock()
        try:
            self.position = self._read()
            """The position in the file. Empty without a file."""
            self._try_to_write()
        except BaseException:
            self.unlock()
            raise

    def lock(self) -> None:
        """Lock the file unless this object has locked it."""
        if self._lock is None:
            self._lock = FileLock(self.path)

    def unlock(self) -> None:
        if self._lock is not None:
            lock, self._lock = self._lock, None
            lock.release()

    def write(self, position: str) -> None:
        """Replace the file: a crash leaves the old position or the new. Raises StateFileError."""
        new = self._temporary()
        try:
            try:
                with new.open("x") as file:
                    file.write(f"{position} {self._isolation}".rstrip())
                    file.flush()
                    os.fsync(file.fileno())
                new.replace(self.path)
            except BaseException:
                with contextlib.suppress(OSError):
                    new.unlink(missing_ok=True)
                raise
            _sync_folder(self.path.parent)
        except OSError as error:
            raise self._unwritable(error) from None

    def _read(self) -> str:
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise StateFileError(
                f"cannot read the state file {self.path}: {error.strerror}"
            ) from None
        text = raw.decode("ascii", "replace").removesuffix("\n")
        content = _CONTENT.fullmatch(text)
        if not raw:
            raise StateFileError(f"the state file {self.path} is empty. Move it away to begin anew")
        if not content or not self._positions.fullmatch(content[1]):
            raise StateFileError(
                f"the state file {self.path} holds {text[:40]!r}, which is no position. "
                "Move it away to begin anew"
            )
        if content[2] and content[2] != self._isolation:
            raise StateFileError(
                f"the state file {self.path} is of a reader with isolation {content[2]}, which this"
                " one has not: it would skip records that were not committed yet. Move it away to"
                " begin anew"
            )
        return content[1]

    def _try_to_write(self) -> None:
        new = self._temporary()
        try:
            new.open("x").close()
            new.unlink()
        except OSError as error:
            raise self._unwritable(error) from None

    def _temporary(self) -> Path:
        """Return a unique name: the lock may be missing, and ids of processes come again."""
        return self.path.with_name(f"{self.path.name}.{os.getpid()}-{secrets.token_hex(4)}.new")

    def _unwritable(self, error: OSError) -> StateFileError:
        return StateFileError(f"cannot write the state file {self.path}: {error.strerror}")


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # a folder cannot be opened there
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Saver:
    """Writes the position in a thread, at most once in ``interval`` seconds.

    The consumer does not wait for the disk. No saved position is ahead of the acknowledgements.
    """

    def __init__(self, file: StateFile, position: Callable[[], str], interval: float) -> None:
        self._file = file
        self._position = position
        # Infinity: once at the start, and at the end.
        self._interval = min(interval, threading.TIMEOUT_MAX)
        self._saved: str | None = None
        self._failing = False
        self._changed = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="oplogc-state", daemon=True)
        self._thread.start()

    def changed(self) -> None:
        """The position moved."""
        self._changed.set()

    def close(self) -> None:
        """Save the position unless it is saved. Raises StateFileError."""
        self._closing.set()
        self._changed.set()
        self._thread.join()
        self._save()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._changed.wait()
            self._changed.clear()
            try:
                self._save()
                self._failing = False
            except StateFileError as error:
                if not self._failing:
                    logger.warning("%s; trying again", error)
                self._failing = True
                self._changed.set()
            self._closing.wait(self._interval)

    def _save(self) -> None:
        position = self._position()
        if position and position != self._saved:
            self._file.write(position)
            self._saved = position

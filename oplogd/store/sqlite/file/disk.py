"""The disk under the SQLite file: its free space, its refusals, and the reserve."""

import errno
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from oplog_kit.backoff import Backoff
from oplogd.store.space import UNKNOWN, SpaceFigures, SpaceLimits, has_room_for_reserve, limits_of
from oplogd.store.sqlite.file.reserve import Reserve

# Total and free bytes of the disk with a folder. Raises OSError.
Usage = Callable[[Path], tuple[int, int]]

# After a refusal, seconds until the disk is tried. They double while it refuses.
_FIRST_PAUSE = 1.0
_LAST_PAUSE = 8.0
# A refusal so many seconds after a successful trial continues the episode.
_SAME_EPISODE = 60.0
_PROBE_BYTES = 64 * 1024
_PAGE = 4096
# Values of PRAGMAS, for disks of 2.5 GiB or more.
_LOG_PAGES = 10_000
_LOG_BYTES = 64 << 20


def disk_usage(folder: Path) -> tuple[int, int]:
    usage = shutil.disk_usage(folder)
    return usage.total, usage.free


class Disk:
    """The disk under the file at ``path``. Threads call the methods.

    ``reserve``: size of the reserve in bytes, 0: none, None: by the size of the disk. ``usage`` and
    ``clock`` are for tests.
    """

    def __init__(
        self,
        path: Path,
        reserve: int | None = 0,
        usage: Usage = disk_usage,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._size = reserve
        self._usage = usage
        self._clock = clock
        self._reserve = Reserve(path)
        # The file may have the size of an earlier start. Later another agent may want it larger.
        self._has_fitted = False
        self.refused = False
        self._backoff = Backoff(_FIRST_PAUSE, _LAST_PAUSE)
        self._try_at = 0.0
        self._passed_at = -_SAME_EPISODE

    def pragmas(self) -> str:
        """Return the SQL for a small write-ahead log on a small disk, else an empty text.

        The log and the room for its checkpoint then fit into the space that intake leaves free.
        """
        total, _ = self._measure()
        pages = max(1, total // 64 // _PAGE)
        if not total or pages >= _LOG_PAGES:
            return ""
        limit = min(_LOG_BYTES, 2 * pages * _PAGE)
        return f"PRAGMA wal_autocheckpoint = {pages}; PRAGMA journal_size_limit = {limit};"

    def prepare(self) -> None:
        """Free the reserve if SQLite could not open the file without its room."""
        total, free = self._measure()
        if free < limits_of(total, self._size).log:
            self._reserve.release()

    def is_refusal(self, error: sqlite3.Error) -> bool:
        """Return whether the error means a full disk, and take note of it."""
        name = getattr(error, "sqlite_errorname", "")
        is_full = name.startswith(("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE")) or (
            # SQLite does not tell a quota or a lack of inodes from other errors.
            name.startswith(("SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHM", "SQLITE_CANTOPEN"))
            and self._has_no_room()
        )
        if is_full:
            now = self._clock()
            if not self.refused:
                if now - self._passed_at >= _SAME_EPISODE:
                    self._backoff.reset()
                else:
                    self._backoff.grow()
            self._try_at = now + self._backoff.pause
            self.refused = True
        return is_full

    def free_reserve(self) -> bool:
        """Free the reserve for deletions. Return whether there was any."""
        return self._reserve.release()

    def look(self, in_file: int = 0) -> SpaceFigures:
        """Make the reserve again if it fits. Return the figures. ``in_file``: see them."""
        total, free = self._measure()
        limits = limits_of(total, self._size)
        if self._keep(limits, free, in_file):
            total, free = self._measure()
        return SpaceFigures(free, in_file, self._reserve.size(), self.refused, limits)

    def _keep(self, limits: SpaceLimits, free: int, in_file: int) -> bool:
        """Return whether the reserve was changed."""
        present = self._reserve.size()
        missing = limits.reserve - present
        if self.refused:
            return self._try(limits, free, in_file, present)
        is_too_large, self._has_fitted = missing < 0 and not self._has_fitted, True
        if is_too_large or (missing > 0 and has_room_for_reserve(limits, free, in_file, missing)):
            self._reserve.make(limits.reserve)
            return True
        return False

    def _try(self, limits: SpaceLimits, free: int, in_file: int, present: int) -> bool:
        """Ask the system for the room of intake, because only the system knows quotas and inodes.

        Return whether the reserve was changed.
        """
        wanted = max(limits.log, limits.needed + limits.reserve - present - in_file)
        added = max(0, wanted - limits.needed)  # to the reserve; it gets what intake leaves
        if self._clock() < self._try_at or free < wanted:
            return False
        if self._reserve.make(present + added, beyond=wanted - added):
            self.refused = False
            self._passed_at = self._clock()
        else:
            self._backoff.grow()
            self._try_at = self._clock() + self._backoff.pause
        return True

    def _measure(self) -> tuple[int, int]:
        try:
            total, free = self._usage(self._path.parent)
        except OSError:
            return 0, UNKNOWN
        return (total, free) if total else (0, UNKNOWN)

    def _has_no_room(self) -> bool:
        try:
            with tempfile.TemporaryFile(dir=self._path.parent, buffering=0) as file:
                return (file.write(bytes(_PROBE_BYTES)) or 0) < _PROBE_BYTES
        except OSError as error:
            return error.errno in (errno.ENOSPC, errno.EDQUOT)

"""A file system in memory that crashes at a chosen step.

Bytes that were not synced and names whose folder was not synced are lost or kept, as the test
chooses. A crash within a write keeps a prefix of it in the file, if it keeps bytes at all.
"""

import errno
import os
from pathlib import Path


class CrashError(BaseException):
    """The machine is off."""


class Inode:
    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = b""


class Disk:
    """``steps``: number of changes so far. ``crash_at``: the step that fails, counted from 0."""

    def __init__(self, crash_at: int = -1, prefix: int = 0) -> None:
        self.names_now: dict[Path, Inode] = {}
        self.names_synced: dict[Path, Inode] = {}
        self.steps = 0
        self.sizes: list[int] = []
        self.crash_at = crash_at
        self.prefix = prefix
        self.full_after: int | None = None

    def step(self, size: int = 0) -> bool:
        """Count a change. Returns whether it is the one at which the machine goes off."""
        if self.steps > self.crash_at >= 0:
            raise CrashError
        self.sizes.append(size)
        self.steps += 1
        return self.steps - 1 == self.crash_at

    def after_crash(self, *, keep_bytes: bool, keep_names: bool) -> "Disk":
        found = Disk()
        for path, inode in (self.names_now if keep_names else self.names_synced).items():
            copy = Inode()
            copy.data = bytearray(inode.data if keep_bytes else inode.synced)
            copy.synced = bytes(copy.data)
            found.names_now[path] = found.names_synced[path] = copy
        return found

    def after_kill(self) -> "Disk":
        """Return the disk after the death of the process alone: nothing is lost, or synced."""
        found = Disk()
        found.names_now = dict(self.names_now)
        found.names_synced = dict(self.names_synced)
        return found

    def open(self, path: Path, *, write: bool = False) -> "DiskFile":
        if path not in self.names_now:
            if not write:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            if self.step():
                raise CrashError
            self.names_now[path] = Inode()
        return DiskFile(self, self.names_now[path])

    def replace(self, path: Path, target: Path) -> None:
        if self.step():
            raise CrashError
        self.names_now[target] = self.names_now.pop(path)

    def unlink(self, path: Path) -> None:
        if path not in self.names_now:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if self.step():
            raise CrashError
        del self.names_now[path]

    def names(self, folder: Path) -> list[str]:
        return sorted(path.name for path in self.names_now if path.parent == folder)

    def make_folder(self, folder: Path) -> None:
        """Do nothing: folders exist."""

    def sync_folder(self, folder: Path) -> None:
        if self.step():
            raise CrashError
        for names, others in (
            (self.names_synced, self.names_now),
            (self.names_now, self.names_synced),
        ):
            for path in [path for path in names if path.parent == folder]:
                if names is self.names_synced and path not in others:
                    del names[path]
                elif names is self.names_now:
                    others[path] = names[path]

    def lock(self, path: Path) -> object:
        return self


class DiskFile:
    def __init__(self, disk: Disk, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode

    def read(self, size: int, at: int) -> bytes:
        return bytes(self._inode.data[at : at + size])

    def write(self, data: bytes, at: int) -> None:
        crashes = self._disk.step(len(data))
        full = self._disk.full_after
        if full is not None:
            if len(data) > full:
                self._put(data[:full], at)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._disk.full_after = full - len(data)
        self._put(data[: self._disk.prefix] if crashes else data, at)
        if crashes:
            raise CrashError

    def size(self) -> int:
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        if self._disk.step():
            raise CrashError
        del self._inode.data[size:]

    def sync(self) -> None:
        if self._disk.step():
            raise CrashError
        self._inode.synced = bytes(self._inode.data)

    def _put(self, data: bytes, at: int) -> None:
        self._inode.data[at : at + len(data)] = data

"""A file system in memory, and its state after a crash at any of its steps.

Bytes that were not synced and names whose folder was not synced are lost or kept, as the test
chooses. A crash within a write keeps a prefix of it in the file, if it keeps bytes at all.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from oplog_pipe.commitlog.files import File, Files


class Inode:
    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = b""

    def copy(self) -> "Inode":
        found = Inode()
        found.data, found.synced = bytearray(self.data), self.synced
        return found

    def put(self, data: bytes, at: int) -> None:
        self.data[at : at + len(data)] = data


class Write(NamedTuple):
    inode: Inode
    data: bytes
    at: int


class Disk(Files):
    """``at_step`` is called before each change, with the write if it is one."""

    def __init__(self) -> None:
        self.names_now: dict[Path, Inode] = {}
        self.names_synced: dict[Path, Inode] = {}
        self.at_step: Callable[[Write | None], None] = lambda write: None
        self.full_after: int | None = None

    def cut(self, write: Write | None = None, prefix: int = 0) -> "Disk":
        """Return the disk as it is now, with a prefix of a write that a crash ends."""
        copies = {each: each.copy() for each in self.names_now.values()}
        copies |= {each: each.copy() for each in self.names_synced.values() if each not in copies}
        if write is not None and write.inode in copies:
            copies[write.inode].put(write.data[:prefix], write.at)
        found = Disk()
        found.names_now = {path: copies[each] for path, each in self.names_now.items()}
        found.names_synced = {path: copies[each] for path, each in self.names_synced.items()}
        return found

    def after_crash(self, *, keep_bytes: bool, keep_names: bool) -> "Disk":
        found = Disk()
        for path, inode in (self.names_now if keep_names else self.names_synced).items():
            copy = Inode()
            copy.synced = bytes(inode.data if keep_bytes else inode.synced)
            copy.data = bytearray(copy.synced)
            found.names_now[path] = found.names_synced[path] = copy
        return found

    def content(self) -> frozenset[tuple[Path, bytes]]:
        return frozenset((path, bytes(inode.data)) for path, inode in self.names_now.items())

    def open(self, path: Path, *, write: bool = False) -> "DiskFile":
        if path not in self.names_now:
            if not write:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            self.at_step(None)
            self.names_now[path] = Inode()
        return DiskFile(self, self.names_now[path])

    def replace(self, path: Path, target: Path) -> None:
        self.at_step(None)
        self.names_now[target] = self.names_now.pop(path)

    def unlink(self, path: Path) -> None:
        if path not in self.names_now:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        self.at_step(None)
        del self.names_now[path]

    def names(self, folder: Path) -> list[str]:
        return sorted(path.name for path in self.names_now if path.parent == folder)

    def make_folder(self, folder: Path) -> None:
        """Do nothing: folders exist."""

    def sync_folder(self, folder: Path) -> None:
        self.at_step(None)
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


class DiskFile(File):
    def __init__(self, disk: Disk, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode

    def read(self, size: int, at: int) -> bytes:
        return bytes(self._inode.data[at : at + size])

    def write(self, data: bytes, at: int) -> None:
        self._disk.at_step(Write(self._inode, data, at))
        full = self._disk.full_after
        if full is not None:
            if len(data) > full:
                self._inode.put(data[:full], at)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._disk.full_after = full - len(data)
        self._inode.put(data, at)

    def size(self) -> int:
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        self._disk.at_step(None)
        del self._inode.data[size:]

    def sync(self) -> None:
        self._disk.at_step(None)
        self._inode.synced = bytes(self._inode.data)

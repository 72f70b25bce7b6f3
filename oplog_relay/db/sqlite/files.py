"""Tells files of SQLite apart, whatever their paths are. A path may name another file later."""

import os
from pathlib import Path
from typing import NamedTuple


class FileNumber(NamedTuple):
    """The number of a file on a device, as this machine sees them."""

    device: int
    inode: int


def number_of(path: Path) -> FileNumber | None:
    """Return the number of the file a path names; None: there is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return FileNumber(found.st_dev, found.st_ino)


def identity_of(path: Path, number: FileNumber) -> str:
    """Return what tells a file from those of all volumes; empty: the path names none.

    Two containers with one volume may see different devices, so the number of the
    file system itself counts, if there is one.
    """
    try:
        system = os.statvfs(path).f_fsid
    except OSError:
        return ""
    return f"{system:x}:{number.inode}" if system else f"device {number.device}:{number.inode}"

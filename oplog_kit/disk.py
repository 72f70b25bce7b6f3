"""What a failure of the file system means for people."""

import errno
import os
from contextlib import suppress
from pathlib import Path

from oplog_kit.texts import counted

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def disk_failure(error: OSError, path: Path, setting: str) -> str:
    """Return a sentence that names the file; if there is no room, also what to do about it.

    ``path``: of the file, if the error names none. ``setting``: with the place on the disk.
    """
    file = Path(os.fsdecode(error.filename)) if error.filename else path
    told = f"{file}: {error.strerror or type(error).__name__}"
    if error.errno not in _NO_ROOM:
        return told
    with suppress(OSError):
        found = os.statvfs(file if file.exists() else file.parent)
        free = found.f_bavail * found.f_frsize
        told += f", {counted(free, 'byte')} of this disk are free"
    return f"{told}: make room, or set {setting} to a place on another disk"

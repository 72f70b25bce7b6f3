"""Small files, and what a failure of the file system means for people."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from oplog_kit.wording import counted

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_MAX_BYTES = 1024 * 1024


def read_bytes(path: str | Path, shown: str = "", *, must_be_regular: bool = False) -> bytes:
    """Return the content of a small file. Raises ValueError with the path, or with ``shown``.

    ``must_be_regular``: refuse a pipe, which may never have an end.
    """
    name = repr(shown or str(path))
    try:
        with open(path, "rb", opener=_without_waiting if must_be_regular else None) as file:
            if must_be_regular and not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("it is no regular file")
            raw = file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"cannot read {name}: {reason}") from None
    if len(raw) > _MAX_BYTES:
        raise ValueError(f"{name} is larger than {_MAX_BYTES:,} bytes")
    return raw


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def read_text(path: str | Path, shown: str = "") -> str:
    """Return the text of a small file. Raises ValueError with the path, or with ``shown``."""
    raw = read_bytes(path, shown)
    try:
        return decoded(raw)
    except ValueError as error:
        raise ValueError(f"{shown or str(path)!r} {error}") from None


def decoded(raw: bytes) -> str:
    """Return the text of a file. Raises ValueError, which continues the name of the file."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None


def without_newline(text: str) -> str:
    """Return a text without one newline at its end."""
    return text.removesuffix("\n").removesuffix("\r")


def disk_failure(error: OSError, path: Path, setting: str) -> str:
    """Return a sentence with the file and, if there is no room, what to do.

    ``path``: of the file, if the error names none. ``setting``: with the place on the disk.
    """
    file = Path(os.fsdecode(error.filename)) if error.filename else path
    sentence = f"{file}: {error.strerror or type(error).__name__}"
    if error.errno not in _NO_ROOM:
        return sentence
    with suppress(OSError):
        found = os.statvfs(file if file.exists() else file.parent)
        free = found.f_bavail * found.f_frsize
        sentence += f", {counted(free, 'byte')} of this disk are free"
    return f"{sentence}: make room, or set {setting} to a place on another disk"

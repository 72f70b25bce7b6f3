"""Small files, and what a failure of the file system means for people."""

import errno
import os
from contextlib import suppress
from pathlib import Path

from oplog_kit.wording import counted

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_MAX_BYTES = 1024 * 1024


def read_bytes(path: str | Path, shown: str = "") -> bytes:
    """Return the content of a small file. Raises ValueError with the path, or with ``shown``."""
    name = repr(shown or str(path))
    try:
        with open(path, "rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"cannot read {name}: {reason}") from None
    if len(raw) > _MAX_BYTES:
        raise ValueError(f"{name} is larger than {_MAX_BYTES:,} bytes")
    return raw


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

"""JSON files with the CRC32 of everything before it at the end."""

from pathlib import Path
from typing import TypeVar
from zlib import crc32

import msgspec

from oplog_pipe.commitlog.files import Files, write_whole
from oplog_pipe.errors import LogDamagedError

_MARK = b',"crc32":'
_T = TypeVar("_T", bound=msgspec.Struct)


def save_checked(files: Files, path: Path, content: msgspec.Struct) -> None:
    """Replace a file: after a crash it is the old one or the new one. Raises OSError.

    The content is a struct with members. The last member in the file is the CRC32.
    """
    text = msgspec.json.encode(content)[:-1]
    write_whole(files, path, b"%s%s%d}" % (text, _MARK, crc32(text)))


def load_checked(files: Files, path: Path, kind: type[_T], remedy: str) -> _T | None:
    """Return the content of a file. None: there is no file.

    An earlier release has written files without a CRC32. ``remedy``: ends the message of an error.
    Raises LogDamagedError, which names the file, and OSError.
    """
    try:
        file = files.open(path)
    except FileNotFoundError:
        return None
    raw = file.read(file.size(), 0)
    text, mark, found = raw.rpartition(_MARK)
    if mark and found != b"%d}" % crc32(text):
        raise LogDamagedError(f"{path} is damaged: its CRC32 is wrong; {remedy}")
    try:
        return msgspec.json.decode(raw, type=kind)
    except ValueError as error:
        raise LogDamagedError(f"{path} is damaged: {error}; {remedy}") from None

"""JSON files with the CRC32 of everything before it at the end. No I/O."""

from pathlib import Path
from typing import TypeVar
from zlib import crc32

import msgspec

from oplog_pipe.errors import LogDamagedError

_MARK = b',"crc32":'
_T = TypeVar("_T", bound=msgspec.Struct)


def encode_checked(content: msgspec.Struct) -> bytes:
    """Return a struct with members as JSON. The last member is the CRC32."""
    text = msgspec.json.encode(content)[:-1]
    return b"%s%s%d}" % (text, _MARK, crc32(text))


def decode_checked(path: Path, raw: bytes, kind: type[_T], remedy: str) -> _T:
    """Return the content of a file. An earlier release has written files without a CRC32.

    ``remedy``: ends the message of an error. Raises LogDamagedError, which names the file.
    """
    text, mark, found = raw.rpartition(_MARK)
    if mark and found != b"%d}" % crc32(text):
        raise LogDamagedError(f"{path} is damaged: its CRC32 is wrong; {remedy}")
    try:
        return msgspec.json.decode(raw, type=kind)
    except ValueError as error:
        raise LogDamagedError(f"{path} is damaged: {error}; {remedy}") from None

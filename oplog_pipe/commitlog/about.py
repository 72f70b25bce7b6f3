"""The file pipe.json: facts of a folder besides its entries."""

import secrets
from pathlib import Path

import msgspec

from oplog_pipe.commitlog.checksum import decode_checked, encode_checked
from oplog_pipe.commitlog.files import Files, read_all, write_whole

_NAME = "pipe.json"
_REMEDY = "restore the folder from a backup, or begin with an empty one: the sources copy again"


class About(msgspec.Struct, frozen=True):
    """- ``created``: in ms since 1970. ``compacted``: up to this offset entries may be missing.
    - ``id``: of the folder; empty: of an earlier release, and not opened for writing since.
    """

    created: int
    compacted: int = -1
    id: str = ""


def new_id() -> str:
    """Return a new id of a folder: 16 hex digits."""
    return secrets.token_hex(8)


def load_about(files: Files, folder: Path) -> About | None:
    """Return the content. None: the folder has no such file. Raises LogDamagedError, OSError."""
    path = folder / _NAME
    try:
        return decode_checked(path, read_all(files.open(path)), About, _REMEDY)
    except FileNotFoundError:
        return None


def save_about(files: Files, folder: Path, about: About) -> None:
    write_whole(files, folder / _NAME, encode_checked(about))

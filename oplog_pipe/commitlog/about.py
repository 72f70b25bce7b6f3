"""The file pipe.json: facts of a folder besides its entries."""

import secrets
from pathlib import Path

import msgspec

from oplog_pipe.commitlog.checksum import load_checked, save_checked
from oplog_pipe.commitlog.files import Files

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
    return load_checked(files, folder / _NAME, About, _REMEDY)


def save_about(files: Files, folder: Path, about: About) -> None:
    save_checked(files, folder / _NAME, about)

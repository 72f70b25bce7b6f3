"""The file pipe.json: facts of a folder besides its entries."""

import secrets
from pathlib import Path

import msgspec

from oplog_pipe.commitlog.files import Files, read_all, write_whole
from oplog_pipe.errors import LogDamagedError

_NAME = "pipe.json"


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
        return msgspec.json.decode(read_all(files.open(path)), type=About)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise LogDamagedError(f"{path} is damaged: {error}") from None


def save_about(files: Files, folder: Path, about: About) -> None:
    write_whole(files, folder / _NAME, msgspec.json.encode(about))

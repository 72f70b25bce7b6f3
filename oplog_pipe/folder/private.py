"""Closes the files of a pipe to other users of the machine."""

import logging
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from oplog_pipe.commitlog.files import FILE_MODE, FOLDER_MODE

_OTHERS = 0o077
_OWN = re.compile(r"lock|(pipe\.json|\d{20}\.(log|index))(\.tmp)?", re.ASCII)
logger = logging.getLogger("oplog_pipe")


def close_to_others(folder: Path, files: Iterable[Path]) -> None:
    """Take the rights of other users from the files of an earlier release.

    ``files``: more of them, such as dead letters. The folder itself may be an administrator's: a
    warning tells how to close it.
    """
    for path, mode in [*_of_folder(folder), *((each, FILE_MODE) for each in files)]:
        try:
            if os.lstat(path).st_mode & _OTHERS and not path.is_symlink():
                path.chmod(mode)
        except FileNotFoundError:
            continue
        except OSError as error:
            logger.warning("%s can be read by other users: %s", path, error.strerror)
    found = folder.stat()
    if found.st_mode & _OTHERS and found.st_uid == os.geteuid():
        logger.warning(
            "folder %s can be entered by other users (mode %04o), who cannot read its files; to"
            " close it, run: chmod 700 %s", folder, stat.S_IMODE(found.st_mode), folder,
        )  # fmt: skip


def _of_folder(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield the files and folders a pipe makes, each with its mode."""
    yield from ((folder / each, FILE_MODE) for each in os.listdir(folder) if _OWN.fullmatch(each))
    for below in (folder / "offsets", folder / "sources"):
        if below.is_dir():
            yield below, FOLDER_MODE
            yield from ((below / each, FILE_MODE) for each in os.listdir(below))

"""The file that keeps a consumer's position: the id, nothing else, as the files of the first client library."""

import logging
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

from oplogc.errors import StateFileError

_CONTENT = re.compile(r"[0-9]{0,13}|[0-9a-f]{24}", re.ASCII)
_log = logging.getLogger("oplogc")


def read_position(path: Path) -> str:
    """The position in the file; empty if there is no file or nothing in it. Raises StateFileError."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise StateFileError(f"cannot read the state file {path}: {error.strerror}") from None
    text = raw.decode("ascii", "replace").removesuffix("\n")
    if not _CONTENT.fullmatch(text):
        raise StateFileError(
            f"the state file {path} holds {text[:40]!r}, which is no position. Move it away to begin anew"
        )
    return text


def write_position(path: Path, position: str) -> None:
    """Replace the file in one step, so that a crash leaves the old position or the new one. Raises StateFileError."""
    target = Path(os.path.realpath(path))
    new = target.with_name(f"{target.name}.new")
    try:
        with new.open("w") as file:
            file.write(position)
            file.flush()
            os.fsync(file.fileno())
        new.replace(target)
        _sync_folder(target.parent)
    except OSError as error:
        raise StateFileError(f"cannot write the state file {path}: {error.strerror}") from None


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # a folder cannot be opened there
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Saver:
    """Writes the position from a thread of its own, at most once in ``interval`` seconds, so that nobody waits for the disk.

    What it writes lags behind the acknowledgements and is never ahead of them.
    """

    def __init__(self, path: Path, position: Callable[[], str], interval: float) -> None:
        self._path = path
        self._position = position
        self._interval = interval
        self._saved: str | None = None
        self._failing = False
        self._changed = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="oplogc-state", daemon=True)
        self._thread.start()

    def changed(self) -> None:
        """The position moved."""
        self._changed.set()

    def close(self) -> None:
        """Save what is not saved yet. Raises StateFileError."""
        self._closing.set()
        self._changed.set()
        self._thread.join()
        self._save()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._changed.wait()
            self._changed.clear()
            try:
                self._save()
                self._failing = False
            except StateFileError as error:
                if not self._failing:
                    _log.warning("%s; trying again", error)
                self._failing = True
                self._changed.set()
            self._closing.wait(self._interval)

    def _save(self) -> None:
        position = self._position()
        if position and position != self._saved:
            write_position(self._path, position)
            self._saved = position

"""The files in which the folder of a pipe keeps the positions of its sources."""

from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

from oplog_kit.disk import disk_failure
from oplog_pipe.commitlog.checksum import decode_checked, encode_checked
from oplog_pipe.commitlog.files import FILES, Files, read_all, write_whole
from oplog_pipe.errors import LogError

_SUFFIX = ".json"
_REMEDY = "take it away, then the position is looked up in the log"


class SourceCheckpoint(msgspec.Struct, frozen=True):
    """A source as it was when the log had the end ``end``.

    - ``log``: the log that the position belongs to.
    - ``copy``: offset of the entry ``reset`` of the copy that is under way; None: none is.
    - ``copied``, ``copy_total``: of the present copy, or the last one.
    """

    log: str
    position: str
    end: int
    copy: int | None = None
    copied: int = 0
    copy_total: int | None = None


class Checkpoints:
    """Keeps one file per source in ``FOLDER/sources``."""

    def __init__(self, folder: Path, files: Files = FILES) -> None:
        self._folder = folder / "sources"
        self._files = files

    def path(self, source: str) -> Path:
        return self._folder / f"{quote(source, safe='')}{_SUFFIX}"

    def names(self) -> list[str]:
        """Return the names of the sources that have a checkpoint. Raises LogError."""
        try:
            names = self._files.names(self._folder)
        except OSError as error:
            raise _translated(self._folder, error) from None
        return [unquote(name.removesuffix(_SUFFIX)) for name in names if name.endswith(_SUFFIX)]

    def load(self, source: str) -> SourceCheckpoint | None:
        """Return the checkpoint of a source. None: there is none.

        Raises LogDamagedError, which names the file, and LogError.
        """
        path = self.path(source)
        try:
            raw = read_all(self._files.open(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _translated(path, error) from None
        return decode_checked(path, raw, SourceCheckpoint, _REMEDY)

    def save(self, source: str, checkpoint: SourceCheckpoint) -> None:
        """Replace the checkpoint: a crash leaves the old one or the new one. Raises LogError."""
        path = self.path(source)
        try:
            self._files.make_folder(self._folder)
            write_whole(self._files, path, encode_checked(checkpoint))
        except OSError as error:
            raise _translated(path, error) from None


def _translated(path: Path, error: OSError) -> LogError:
    return LogError(disk_failure(error, path, "dir"))

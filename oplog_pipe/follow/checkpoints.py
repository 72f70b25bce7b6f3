"""The files in which the folder of a pipe keeps the positions of its sources."""

from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

from oplog_kit.disk import disk_failure
from oplog_pipe.commitlog.checksum import decode_checked, encode_checked
from oplog_pipe.commitlog.files import FILES, Files, read_all, write_whole
from oplog_pipe.errors import LogError
from oplog_pipe.follow.streams import is_replicated

_SUFFIX = ".json"
_REMEDY = "take it away, then the position is looked up in the log"


class Witness(msgspec.Struct, frozen=True):
    """Everything up to ``position`` was received when ``head`` was the newest id of the oplog.

    A copy leaves out objects with changes meanwhile: it relies on their operations, which come
    behind ``live``. A store with ``head`` has them still. A store restored from an
    older backup does not know it.
    """

    position: str
    head: str

    @property
    def is_of_state(self) -> bool:
        """Whether the position is of a state: more states come, then ``live``."""
        return is_replicated(self.position)

    def is_reached(self, position: str) -> bool:
        """Return whether a source at ``position`` no longer relies on the witness."""
        return not self.is_of_state and position >= self.head

    def before(self, position: str) -> str:
        """Return the position from which a source at ``position`` resumes.

        An earlier one, if states behind it came after the witness.
        """
        if not self.is_of_state:
            return position
        is_earlier = is_replicated(position) and int(position) < int(self.position)
        return position if is_earlier else self.position


class SourceCheckpoint(msgspec.Struct, frozen=True):
    """A source as it was when the log had the end ``end``.

    - ``log``: the log the position belongs to.
    - ``copy``: offset of the entry ``reset`` of the present copy; None: there is none.
    - ``copied``, ``copy_total``: of the present copy, or the last one.
    - ``store``: identity of the store the position belongs to. None: no agent has named it.
    - ``witness``: None: the source relies on nothing but its position, or no agent told its head.
    """

    log: str
    position: str
    end: int
    copy: int | None = None
    copied: int = 0
    copy_total: int | None = None
    store: str | None = None
    witness: Witness | None = None


class Checkpoints:
    """Keeps one file per source in ``FOLDER/sources``."""

    def __init__(self, folder: Path, files: Files = FILES) -> None:
        self._folder = folder / "sources"
        self._files = files

    def path(self, source: str) -> Path:
        return self._folder / f"{quote(source, safe='')}{_SUFFIX}"

    def names(self) -> list[str]:
        """Return the names of the sources with a checkpoint. Raises LogError."""
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

"""The files in which the folder of a pipe keeps the positions of its sources."""

from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

from oplog_pipe.commitlog.checksum import load_checked, save_checked
from oplog_pipe.commitlog.files import FILES, Files, log_errors
from oplog_pipe.follow.streams import is_replicated

_SUFFIX = ".json"
_REMEDY = "take it away, then the position is looked up in the log"


class Witness(msgspec.Struct, frozen=True):
    """Everything up to ``position`` was received when ``head`` was the newest id of the oplog.

    A copy leaves out objects with changes meanwhile: their operations come behind ``live``. A store
    with ``head`` still has these operations. A store from an older backup does not know ``head``.
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
        """Return where a source at ``position`` resumes: not behind the witness."""
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
    - ``witness``: None: the source relies on nothing but its position, or no agent named its head.
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
        with log_errors(self._folder):
            names = self._files.names(self._folder)
        return [unquote(name.removesuffix(_SUFFIX)) for name in names if name.endswith(_SUFFIX)]

    def load(self, source: str) -> SourceCheckpoint | None:
        """Return the checkpoint of a source. None: there is none.

        Raises LogDamagedError, which names the file, and LogError.
        """
        path = self.path(source)
        with log_errors(path):
            return load_checked(self._files, path, SourceCheckpoint, _REMEDY)

    def save(self, source: str, checkpoint: SourceCheckpoint) -> None:
        """Replace the checkpoint: a crash leaves the old one or the new one. Raises LogError."""
        path = self.path(source)
        with log_errors(path):
            self._files.make_folder(self._folder)
            save_checked(self._files, path, checkpoint)

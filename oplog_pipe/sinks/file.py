"""The sink for files with JSON lines.

After a crash, a repeated message has a second line with the same offset.
"""

import fcntl
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oplog_kit.disk import disk_failure
from oplog_pipe.errors import SinkError
from oplog_pipe.message import Message
from oplog_pipe.model.fields import Field, Kind
from oplog_pipe.model.options import SinkOptions
from oplog_pipe.sinks.base import Sink
from oplog_pipe.sinks.parts.lines import encode_lines

_BEGINS = b'{"offset":'
_BLOCK = 1 << 16


@dataclass(frozen=True)
class FileOptions(SinkOptions):
    type_name = "file"
    hints = ("jsonl", "ndjson", "stdout")
    settings = (
        Field(
            "path",
            Kind.FILE,
            "File to append to, a JSON object per line.",
            required="give the file to write",
            hints=("file", "filename", "target"),
        ),
        Field(
            "rotate_bytes",
            Kind.SIZE,
            "A file of this size is set aside, and a new one begins. 0: never.",
            0,
            10 << 40,
        ),
    )
    identity = ("path",)
    exclusive = "path"
    is_history = True

    path: str
    rotate_bytes: int = 0

    def sink(self, namespace: str, root: Path) -> "FileSink":
        return FileSink(self, root)


class FileSink(Sink):
    """Appends a line per message, and syncs the file before a write returns.

    - A last line without a line feed is cut off when the file is opened.
    - With ``rotate_bytes``, a write renames a file with this size to ``PATH.1``, ``PATH.2`` and
      so on, and begins a new file.
    - If another process renames or removes the file, the next write begins a new one.
    - ``flock`` lets one process at a time write the file. It is a history: copies change nothing.
    """

    def __init__(self, options: FileOptions, root: Path) -> None:
        """``root``: the folder at which a relative path starts."""
        self._path = root / options.path
        self._rotate_bytes = options.rotate_bytes
        self._file: int | None = None

    def probe(self) -> str:
        place = next(each for each in (self._path, *self._path.parents) if each.exists())
        if place == self._path and not place.is_file():
            raise SinkError(f"{str(place)!r} is no file")
        if place != self._path and not place.is_dir():
            raise SinkError(f"{str(place)!r} is no folder")
        if not os.access(place, os.W_OK):
            raise SinkError(f"{str(place)!r} must not be written")
        return f"{self._path} can be written"

    def open(self) -> None:
        try:
            self._open()
        except OSError as error:
            raise self._failed(error) from error

    def write(self, messages: Sequence[Message]) -> None:
        block = b"".join(encode_lines(messages))
        try:
            self._append(block)
        except OSError as error:
            # Also a full disk or a missing folder: an operator must help, and the message is
            # good. Were this permanent, a dead-letter file would swallow the rest of the log.
            raise self._failed(error, transient=True) from error

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        file = os.open(self._path, flags, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise SinkError(f"path: {self._path} is no regular file")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SinkError(f"path: another process writes {self._path}") from None
            self._cut_torn_line(file)
            _sync_folder(self._path.parent)
        except BaseException:
            os.close(file)
            raise
        self._file = file
        return file

    def _cut_torn_line(self, file: int) -> None:
        size = os.fstat(file).st_size
        end = _end_of_lines(file, size)
        if end == size:
            return
        begins = os.pread(file, min(len(_BEGINS), size - end), end)
        # A crash of the machine may leave zeros.
        if not _BEGINS.startswith(begins) and not begins.startswith(b"\0"):
            raise SinkError(f"path: the last line of {self._path} is not one of this sink")
        os.ftruncate(file, end)
        os.fsync(file)

    def _append(self, block: bytes) -> None:
        file = self._file
        if file is None or not self._is_in_place(file):
            self.close()
            file = self._open()
        size = os.fstat(file).st_size
        if self._rotate_bytes and size >= self._rotate_bytes:
            self._set_aside()
            file = self._open()
            size = os.fstat(file).st_size
        try:
            rest = memoryview(block)
            while rest:
                rest = rest[os.write(file, rest) :]
            os.fsync(file)
        except OSError:
            try:
                os.ftruncate(file, size)  # the block comes again
            finally:
                self.close()  # the next write looks for a torn line
            raise

    def _is_in_place(self, file: int) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(file))
        except FileNotFoundError:
            return False

    def _set_aside(self) -> None:
        name = re.compile(re.escape(self._path.name) + r"\.([0-9]+)")
        found = [name.fullmatch(each) for each in os.listdir(self._path.parent)]
        number = max((int(each[1]) for each in found if each), default=0) + 1
        os.rename(self._path, f"{self._path}.{number}")
        self.close()
        _sync_folder(self._path.parent)

    def _failed(self, error: OSError, *, transient: bool = False) -> SinkError:
        reason = disk_failure(error, self._path, "path")
        return SinkError(f"path: cannot write {reason}", transient=transient)


def _end_of_lines(file: int, size: int) -> int:
    """Return the offset behind the last line feed of a file; 0 if it has none."""
    end = size
    while end > 0:
        start = max(0, end - _BLOCK)
        found = os.pread(file, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

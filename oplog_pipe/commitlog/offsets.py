"""The offsets of one sink on disk."""

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.parse import quote, unquote

from oplog_pipe.commitlog.codec import Mode, NewEntry, encode_all
from oplog_pipe.commitlog.files import FILES, File, Files, log_errors, write_whole
from oplog_pipe.commitlog.segment import scan
from oplog_pipe.errors import LogDamagedError

_SUFFIX = ".log"
_SPARE_ENTRIES = 1000
# No namespace has a key with two slashes, and no source is named "since".
_COPY = "copy//"
WHOLE_SINCE = f"{_COPY}since"
"""Key of the offset from which on a sink has got every message."""

COPY_DUE = f"{_COPY}due"
"""Key of the offset up to which a sink has given up its place; -1: a copy has begun since."""

_SETTINGS = f"{_COPY}settings/"


def not_whole_key(source: str) -> str:
    """Return the key of a source's last copy with missing messages: of the entry ``live``."""
    return f"{_COPY}of/{source}"


def newest(changes: Mapping[str, int]) -> int:
    """Return the largest offset of a namespace; -1: there is none. ``copy//`` may be beyond it."""
    return max((each for key, each in changes.items() if not key.startswith(_COPY)), default=-1)


class OffsetLog:
    """The last acknowledged offset of each namespace of a sink, and what its copies lack.

    The file holds entries as the log does: key is the namespace, data the offset as decimal text.
    The last one of a key counts. Keys such as ``copy//…`` are no namespaces. One thread at a time.
    """

    def __init__(self, path: Path, files: Files) -> None:
        self._path = path
        self._files = files
        self._offsets: dict[str, int] = {}
        self._file: File | None = None
        self._end = 0
        self._bytes = 0

    @classmethod
    def open(cls, folder: Path, name: str, files: Files = FILES) -> Self:
        """Read a sink's offsets in the folder of a log; cut a torn tail.

        Nothing is created before the first ``write``. Raises LogDamagedError, LogError.
        """
        return cls._read(folder, name, files, write=True)

    @classmethod
    def view(cls, folder: Path, name: str, files: Files = FILES) -> Self:
        """Read a sink's offsets and change nothing, also while another process writes them."""
        return cls._read(folder, name, files, write=False)

    @staticmethod
    def names(folder: Path, files: Files = FILES) -> list[str]:
        """Return the names of all sinks with offsets, sorted."""
        found = files.names(folder / "offsets")
        return sorted(
            unquote(name.removesuffix(_SUFFIX)) for name in found if name.endswith(_SUFFIX)
        )

    @staticmethod
    def delete(folder: Path, name: str, files: Files = FILES) -> None:
        """Remove a sink's offsets, if it has any. Raises LogError."""
        path = _path(folder, name)
        with log_errors(path, "cannot remove "), suppress(FileNotFoundError):
            files.unlink(path)
            files.sync_folder(path.parent)

    @property
    def offsets(self) -> dict[str, int]:
        """By namespace."""
        return {key: each for key, each in self._offsets.items() if not key.startswith(_COPY)}

    @property
    def offset(self) -> int | None:
        """The largest offset. None: nothing was ever written."""
        return max(self.offsets.values(), default=None)

    @property
    def whole_since(self) -> int:
        """The sink has got every message behind this offset; -1: all.

        It may be above ``offset``: after new settings, or after a torn write. In a file of an
        earlier release it is the offset.
        """
        found = self._offsets.get(WHOLE_SINCE, self.offset)
        return -1 if found is None else found

    @property
    def not_whole(self) -> list[str]:
        """The sources whose last copy was not whole, sorted."""
        found = self._below(not_whole_key(""))
        return sorted(source for source, offset in found.items() if offset >= 0)

    @property
    def copy_due(self) -> int:
        """The sink has given up its place up to this offset, and needs a copy; -1: it has not."""
        return self._offsets.get(COPY_DUE, -1)

    @property
    def settings(self) -> dict[str, int]:
        """Numbers of the settings with which the sink was used last, by the part of them."""
        return self._below(_SETTINGS)

    def _below(self, begin: str) -> dict[str, int]:
        """Return the values of keys with a beginning, by their rest."""
        found = self._offsets.items()
        return {key.removeprefix(begin): each for key, each in found if key.startswith(begin)}

    def note_settings(self, settings: Mapping[str, int], whole_since: int) -> None:
        """Write numbers of settings, and the offset since which they hold. Raises LogError."""
        changes = {f"{_SETTINGS}{name}": each for name, each in settings.items()}
        self.write({**changes, WHOLE_SINCE: whole_since})

    def write(self, changes: Mapping[str, int]) -> None:
        """Write offsets. They are on disk when this returns. Raises LogError.

        A crash of the machine leaves a part of them. Each part is safe: the marks come first.
        """
        if not changes:
            return
        offsets = {**self._offsets, **changes}
        if self._file is None or self._end + len(changes) > 10 * len(offsets) + _SPARE_ENTRIES:
            self.replace(offsets)
            return
        data = b"".join(encode_all(self._end, _entries(changes)))
        with log_errors(self._path, "cannot write "):
            try:
                self._file.write(data, self._bytes)
                self._file.sync()
            except OSError:
                self._file.truncate(self._bytes)
                raise
        self._end += len(changes)
        self._bytes += len(data)
        self._offsets = offsets

    def replace(self, offsets: Mapping[str, int]) -> None:
        """Forget all offsets and write these. A crash leaves old or new ones. Raises LogError."""
        data = b"".join(encode_all(0, _entries(offsets)))
        with log_errors(self._path, "cannot write "):
            self._files.make_folder(self._path.parent)
            write_whole(self._files, self._path, data)
            self._file = self._files.open(self._path, write=True)
        self._end = len(offsets)
        self._bytes = len(data)
        self._offsets = dict(offsets)

    def skip(self, key: str, offset: int, ended: Iterable[str] = ()) -> None:
        """Acknowledge an entry the sink never gets, and all before it. Raises LogError.

        ``ended``: the sources of which the end of a copy is among them.
        """
        marks = {not_whole_key(source): offset for source in ended}
        self.write({**marks, key: offset, WHOLE_SINCE: offset})

    def reset(self, offset: int, ended: Iterable[str] = ()) -> None:
        """Go back or forward to an offset. ``ended``: as of ``skip``. Raises LogError."""
        # Entries behind the offset come again. Entries passed over by a step forward never come.
        is_forward = self.offset is None or offset > self.offset
        since = offset if is_forward else min(offset, self.whole_since)
        copies = {key: each for key, each in self._offsets.items() if key.startswith(_COPY)}
        copies |= {not_whole_key(source): offset for source in ended}
        self.replace({**copies, "": offset, WHOLE_SINCE: since})

    def close(self) -> None:
        self._file = None

    @classmethod
    def _read(cls, folder: Path, name: str, files: Files, *, write: bool) -> Self:
        log = cls(_path(folder, name), files)
        with log_errors(log._path, "cannot read "), suppress(FileNotFoundError):
            file = files.open(log._path)
            if write:
                file = log._file = files.open(log._path, write=True)
            size = file.size()
            for part in scan(file, 0, size, 0):
                for entry in part.entries:
                    try:
                        log._offsets[entry.key] = int(entry.data)
                    except ValueError:
                        reason = f"{log._path} is damaged: entry {entry.offset}"
                        raise LogDamagedError(reason) from None
                log._bytes, log._end = part.end, part.expected
            if write and log._bytes < size:
                file.truncate(log._bytes)
                file.sync()
        return log


def _path(folder: Path, name: str) -> Path:
    return folder / "offsets" / f"{quote(name, safe='')}{_SUFFIX}"


def _entries(offsets: Mapping[str, int]) -> list[NewEntry]:
    now = time.time_ns() // 1_000_000
    ordered = sorted(offsets.items(), key=_rank)
    return [NewEntry(now, Mode.SYNC, key, b"%d" % offset) for key, offset in ordered]


def _rank(each: tuple[str, int]) -> tuple[int, int]:
    """Return the place in a write. Offsets are last: they need their marks, as do settings."""
    key, offset = each
    if not key.startswith(_COPY):
        return 3, offset
    return (2 if key.startswith(_SETTINGS) else 1 - (key == COPY_DUE)), 0

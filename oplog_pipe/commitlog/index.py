"""The sparse index of a segment: derived data for finding an offset without a scan.

A record is: offset 8, place 8, CRC32 4 (over both and the segment's base), big-endian. The entry
at the place has the offset. The last record names the end of the segment at the last fsync. It is
overwritten until it is far enough behind the one before.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from oplog_pipe.commitlog.files import File, Files, write_whole

INTERVAL = 1 << 16
_RECORD = Struct(">QQI")
_COVERED = Struct(">QQQ")


class IndexMark(NamedTuple):
    """``place``: of the entry with this offset, in bytes from the beginning of the segment."""

    offset: int
    place: int


def index_path(segment: Path) -> Path:
    return segment.with_suffix(".index")


class SegmentIndex:
    """The index of one segment, to read."""

    def __init__(self, files: Files, segment: Path, base: int) -> None:
        self._base = base
        self._file: File | None = None
        self._count = 0
        with suppress(FileNotFoundError):
            self._file = files.open(index_path(segment))
            self._count = self._file.size() // _RECORD.size
        self.is_missing = self._file is None

    def last(self) -> list[IndexMark]:
        """Return the last two whole records."""
        return self.marks(max(0, self._count - 3))[-2:]

    def marks(self, first: int = 0) -> list[IndexMark]:
        """Return all whole records from a number on."""
        found = map(self._mark, range(first, self._count))
        return [mark for mark in found if mark is not None]

    def find(self, offset: int) -> IndexMark | None:
        """Return the last record up to an offset, else the segment's beginning.

        None: the index is missing or damaged.
        """
        if self._file is None:
            return None
        low, high = 0, self._count
        if high and self._mark(high - 1) is None:  # another process overwrites it now
            high -= 1
        found = IndexMark(self._base, 0)
        while low < high:
            middle = (low + high) // 2
            mark = self._mark(middle)
            if mark is None:
                return None
            if mark.offset <= offset:
                found, low = mark, middle + 1
            else:
                high = middle
        return found

    def _mark(self, number: int) -> IndexMark | None:
        assert self._file is not None
        data = self._file.read(_RECORD.size, number * _RECORD.size)
        if len(data) < _RECORD.size:
            return None
        mark = IndexMark(*_RECORD.unpack(data)[:2])
        return mark if _encode(self._base, mark) == data else None


class IndexWriter:
    """The index of the growing segment. A failure to write it is no failure of the log."""

    def __init__(self, files: Files, segment: Path, base: int, marks: Sequence[IndexMark]) -> None:
        """Write an index anew."""
        self._base = base
        self._file = files.open(index_path(segment), write=True)
        self._file.truncate(0)
        self._file.write(b"".join(_encode(base, mark) for mark in marks), 0)
        self._slot = max(0, len(marks) - 1)
        self._place = marks[-2].place if len(marks) > 1 else 0

    def add(self, mark: IndexMark) -> None:
        """Add the place of an offset; all bytes before it are on disk."""
        with suppress(OSError):
            self._file.write(_encode(self._base, mark), self._slot * _RECORD.size)
            if mark.place - self._place >= INTERVAL:
                self._slot += 1
                self._place = mark.place

    def finish(self) -> None:
        with suppress(OSError):
            self._file.sync()


def write_index(files: Files, segment: Path, base: int, marks: Iterable[IndexMark]) -> None:
    """Replace the index of a closed segment. A failure leaves it missing or wrong."""
    with suppress(OSError):
        write_whole(files, index_path(segment), b"".join(_encode(base, mark) for mark in marks))


def _encode(base: int, mark: IndexMark) -> bytes:
    return _RECORD.pack(*mark, crc32(_COVERED.pack(base, *mark)))

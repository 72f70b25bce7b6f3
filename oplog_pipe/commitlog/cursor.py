"""The places in segments at which threads read on."""

import threading
from typing import NamedTuple

from oplog_pipe.commitlog.codec import LogEntry
from oplog_pipe.commitlog.files import File, Files
from oplog_pipe.commitlog.index import IndexMark, SegmentIndex
from oplog_pipe.commitlog.segment import Segment, damaged, read_part


class Cursor(NamedTuple):
    """The place behind the last entry a thread has read. ``epoch``: of the files."""

    mark: IndexMark
    base: int
    file: File
    epoch: int


class Cursors:
    """A cursor for each thread."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._local = threading.local()

    def at(self, segment: Segment, epoch: int, start: int) -> Cursor:
        """Return a cursor of the thread at or before the offset ``start`` of a segment."""
        known: Cursor | None = getattr(self._local, "value", None)
        if known and (known.base, known.epoch, known.mark.offset) == (segment.base, epoch, start):
            return known
        mark = SegmentIndex(self._files, segment.path, segment.base).find(start)
        file = self._files.open(segment.path)
        return Cursor(mark or IndexMark(segment.base, 0), segment.base, file, epoch)

    def read(
        self, segment: Segment, cursor: Cursor, compacted: int, start: int, limits: tuple[int, int]
    ) -> list[LogEntry]:
        """Return entries of a segment from ``start`` on. Empty: it has no more.

        ``compacted``: up to this offset entries may be missing. ``limits``: bytes and entries.
        Raises LogDamagedError.
        """
        mark = cursor.mark
        while mark.place < segment.bytes:
            part = read_part(
                cursor.file,
                mark.place,
                segment.bytes,
                mark.offset,
                compacted=compacted,
                start=start,
                max_bytes=limits[0],
                max_entries=limits[1],
            )
            mark = IndexMark(part.expected, part.end)
            if part.entries:
                self._local.value = cursor._replace(mark=mark)
                return part.entries
            if not part.valid:
                raise damaged(segment.path, mark.place)
        return []

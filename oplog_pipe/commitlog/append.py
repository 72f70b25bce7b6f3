"""Appends entries to the last segment of a log, and begins new segments."""

import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from oplog_pipe.commitlog.codec import NewEntry, encode_all
from oplog_pipe.commitlog.files import File, Files
from oplog_pipe.commitlog.index import INTERVAL, IndexMark, IndexWriter, index_path
from oplog_pipe.commitlog.segment import Segment, segment_path
from oplog_pipe.errors import LogError


class _Written(NamedTuple):
    """A segment an append has written to, and its marks except for the last one."""

    segment: Segment
    file: File
    marks: list[IndexMark]


class Appender:
    """The file of the last segment, and its index. One thread at a time calls the methods."""

    def __init__(
        self, folder: Path, files: Files, max_bytes: int, file: File, index: IndexWriter | None
    ) -> None:
        """``max_bytes``: of a segment."""
        self._folder = folder
        self._files = files
        self._max_bytes = max_bytes
        # None: a write could not be undone.
        self._file: File | None = file
        self._index = index
        self._unmarked: list[_Written] = []

    def append(self, last: Segment, entries: Sequence[NewEntry]) -> list[Segment]:
        """Write entries behind the last segment. Return it with the new segments behind it.

        The entries are on disk. Raises LogError, OSError; then none of them is in a segment.
        """
        if self._file is None:
            raise LogError(f"{self._folder}: a write could not be undone")
        try:
            encoded = encode_all(last.newest + 1, entries)
        except struct.error as error:
            raise LogError(f"an entry is too large: {error}") from None
        written = [_Written(last, self._file, [])]
        try:
            self._write(written, encoded)
        except BaseException:
            self._undo(written, last.bytes)
            raise
        self._file = written[-1].file
        self._unmarked = written
        return [each.segment for each in written]

    def write_marks(self) -> None:
        """Bring the index up to the last append."""
        for number, (segment, _, marks) in enumerate(self._unmarked):
            if number:
                with suppress(OSError):
                    start = IndexMark(segment.base, 0)
                    self._index = IndexWriter(self._files, segment.path, segment.base, [start])
            assert self._index is not None
            for mark in (*marks, IndexMark(segment.newest + 1, segment.bytes)):
                self._index.add(mark)
            if segment.closed:
                self._index.finish()

    def close(self) -> None:
        if self._index is not None:
            self._index.finish()

    def _write(self, written: list[_Written], encoded: Sequence[bytes]) -> None:
        at = 0
        while at < len(encoded):
            segment, file, marks = written[-1]
            size = count = 0
            last = segment.bytes
            for data in encoded[at:]:
                place = segment.bytes + size
                if place and place + len(data) > self._max_bytes:
                    break
                if place - last >= INTERVAL:
                    marks.append(IndexMark(segment.newest + 1 + count, place))
                    last = place
                size += len(data)
                count += 1
            if count:
                file.write(b"".join(encoded[at : at + count]), segment.bytes)
                file.sync()
                at += count
                newest, bytes_ = segment.newest + count, segment.bytes + size
                segment = segment._replace(newest=newest, bytes=bytes_)
            more = at < len(encoded)
            written[-1] = _Written(segment._replace(closed=more), file, marks)
            if more:
                base = segment.newest + 1
                path = segment_path(self._folder, base)
                new = Segment(path, base, base - 1, 0, False)
                written.append(_Written(new, self._files.open(path, write=True), []))
                self._files.open(index_path(path), write=True)
                self._files.sync_folder(self._folder)

    def _undo(self, written: list[_Written], size: int) -> None:
        file, self._file = self._file, None
        assert file is not None
        # The new segments first: after a crash none may follow a shorter one.
        for each in written[1:]:
            self._files.unlink(each.segment.path)
            with suppress(FileNotFoundError):
                self._files.unlink(index_path(each.segment.path))
        if len(written) > 1:
            self._files.sync_folder(self._folder)
        file.truncate(size)
        self._file = file

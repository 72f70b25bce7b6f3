"""Find out which segments a folder holds, and how far each one is valid."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from oplog_pipe.commitlog.about import About, new_id, save_about
from oplog_pipe.commitlog.codec import holds_entry
from oplog_pipe.commitlog.files import File, Files
from oplog_pipe.commitlog.index import (
    INTERVAL,
    IndexMark,
    IndexWriter,
    SegmentIndex,
    index_path,
    write_index,
)
from oplog_pipe.commitlog.long_read import LongRead
from oplog_pipe.commitlog.segment import Segment, damaged, scan, segment_base, segment_path
from oplog_pipe.errors import LogDamagedError

_SEARCHED = 1 << 20


class Recovered(NamedTuple):
    """``marks``: for a new index. The last one is at the end of the valid entries."""

    marks: list[IndexMark]
    valid: bool


def create(files: Files, folder: Path, clock: Callable[[], int]) -> About:
    """Create a log in a folder, or finish doing so. Raises LogDamagedError, OSError."""
    path = segment_path(folder, 0)
    bases = _bases(files, folder)
    if bases not in ([], [0]) or (bases and files.open(path).size()):
        raise LogDamagedError(f"{folder} has segments, and its file pipe.json is missing")
    files.open(path, write=True)
    files.open(index_path(path), write=True)
    files.sync_folder(folder)
    about = About(clock(), id=new_id())
    save_about(files, folder, about)
    return about


def remove_leftovers(files: Files, folder: Path) -> None:
    """Remove the files a crash left behind."""
    names = files.names(folder)
    for name in names:
        is_lone = name.endswith(".index") and name.removesuffix("index") + "log" not in names
        if is_lone or name.endswith(".tmp"):
            files.unlink(folder / name)


def recover(
    files: Files, folder: Path, compacted: int, *, write: bool
) -> tuple[tuple[Segment, ...], File, IndexWriter | None]:
    """Return the segments, and the file and the index of the newest one.

    With ``write``, cut a torn tail and repair indexes. Raises LogDamagedError, OSError.
    """
    bases = _bases(files, folder)
    if not bases:
        raise LogDamagedError(f"{folder} has lost its segments")
    segments = [
        _closed(files, segment_path(folder, base), base, compacted, write=write)
        for base in bases[:-1]
    ]
    path = segment_path(folder, bases[-1])
    file = files.open(path, write=write)
    size = file.size()
    marks = _newest(files, file, path, bases[-1], size, compacted)
    end = marks[-1]
    segments.append(Segment(path, bases[-1], end.offset - 1, end.place, False))
    expected = 0
    for number, segment in enumerate(segments):
        if segment.base != expected and segment.base - 1 > compacted:
            before = segments[number - 1] if number else segment
            raise LogDamagedError(
                f"{before.path} is damaged at byte {before.bytes if number else 0}: "
                f"entries {expected} to {segment.base - 1} are missing"
            )
        expected = segment.newest + 1
    writer = None
    if write:
        if end.place < size:
            file.truncate(end.place)
        # Also when nothing is cut: a crash of the process alone may have left bytes unwritten.
        file.sync()
        writer = IndexWriter(files, path, bases[-1], marks)
        files.sync_folder(folder)
    return tuple(segments), file, writer


def scan_marks(
    file: File, start: IndexMark, size: int, compacted: int, path: Path | None = None
) -> Recovered:
    """Scan up to the first invalid entry. ``path``: of a segment without index, for the log."""
    marks = [start]
    end, valid = start, True
    progress = LongRead(f"reading {path}, which has no index", size)
    for part in scan(file, start.place, size, start.offset, compacted=compacted):
        end, valid = IndexMark(part.expected, part.end), part.valid
        # A record names the first entry of a part: behind it, entries may be missing.
        if part.entries and part.at - marks[-1].place >= INTERVAL:
            marks.append(IndexMark(part.entries[0].offset, part.at))
        if path is not None:
            progress.at(part.end)
    if end != marks[-1] or len(marks) == 1:
        marks.append(end)
    return Recovered(marks, valid)


def repair_index(files: Files, file: File, segment: Segment, compacted: int) -> None:
    """Write the index of a closed segment anew."""
    start = IndexMark(segment.base, 0)
    found = scan_marks(file, start, segment.bytes, compacted)
    write_index(files, segment.path, segment.base, found.marks[1:])


def _closed(files: Files, path: Path, base: int, compacted: int, *, write: bool) -> Segment:
    file = files.open(path)
    size = file.size()
    last = SegmentIndex(files, path, base).last()
    if not last or last[-1].place != size:
        found = scan_marks(file, IndexMark(base, 0), size, compacted, path)
        if not found.valid:
            raise damaged(path, found.marks[-1].place)
        last = found.marks
        if write:
            write_index(files, path, base, last[1:])
    return Segment(path, base, last[-1].offset - 1, size, True)


def _newest(
    files: Files, file: File, path: Path, base: int, size: int, compacted: int
) -> list[IndexMark]:
    """Return the marks of the newest segment; only bytes behind the last fsync may be invalid."""
    index = SegmentIndex(files, path, base)
    last = index.last()
    start = IndexMark(base, 0)
    if not last:
        found = scan_marks(file, start, size, compacted, path)
        # A crash loses records only. Without the file, the entries tell a torn tail from damage.
        if not found.valid and index.is_missing:
            end = found.marks[-1]
            if holds_entry(file.read(_SEARCHED, end.place + 1), end.offset):
                raise damaged(path, end.place)
        return found.marks[1:]
    synced = last[-1]
    before = last[0] if len(last) > 1 else start
    if synced.place <= size:
        found = scan_marks(file, before, synced.place, compacted)
        if found.valid and found.marks[-1] == synced:
            tail = scan_marks(file, synced, size, compacted)
            return [*index.marks(), *tail.marks[1:]]
    found = scan_marks(file, start, size, compacted, path)
    if found.marks[-1].place < synced.place:
        raise damaged(path, found.marks[-1].place)
    return found.marks[1:]


def _bases(files: Files, folder: Path) -> list[int]:
    found = (segment_base(name) for name in files.names(folder))
    return [base for base in found if base is not None]

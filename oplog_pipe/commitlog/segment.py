"""One file of the log, and how it is scanned."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from oplog_pipe.commitlog.codec import LogEntry, decode
from oplog_pipe.commitlog.files import File
from oplog_pipe.errors import LogDamagedError

_CHUNK = 1 << 20
_NAME = re.compile(r"([0-9]{20})\.log")


class Segment(NamedTuple):
    """``base``: offset in its name. ``newest``: of its last entry; ``base`` - 1: it has none.

    ``closed``: nothing is appended any more.
    """

    path: Path
    base: int
    newest: int
    bytes: int
    closed: bool


class SegmentPart(NamedTuple):
    """``at``: place of the first. ``end``: behind the last. ``valid``: see ``Decoded``."""

    entries: list[LogEntry]
    at: int
    end: int
    expected: int
    valid: bool


def segment_path(folder: Path, base: int) -> Path:
    return folder / f"{base:020d}.log"


def segment_base(name: str) -> int | None:
    """Return the offset in the name of a segment. None: of no segment."""
    found = _NAME.fullmatch(name)
    return None if found is None else int(found[1])


def read_part(
    file: File,
    at: int,
    end: int,
    expected: int,
    *,
    compacted: int = -1,
    start: int = 0,
    max_bytes: int = _CHUNK,
    max_entries: int | None = None,
) -> SegmentPart:
    """Read entries from place ``at``, at most ``max_bytes``, but at least one before ``end``."""
    size = min(max_bytes, end - at)
    while True:
        data = file.read(size, at)
        found = decode(data, expected, compacted=compacted, start=start, max_entries=max_entries)
        if found.at or not found.valid or not found.missing:
            return SegmentPart(found.entries, at, at + found.at, found.expected, found.valid)
        if at + found.missing > end:
            return SegmentPart([], at, at, expected, False)
        size = found.missing


def scan(
    file: File, at: int, end: int, expected: int, *, compacted: int = -1
) -> Iterator[SegmentPart]:
    """Read all entries from place ``at``. The last part may be invalid."""
    while at < end:
        part = read_part(file, at, end, expected, compacted=compacted)
        yield part
        if not part.valid:
            return
        at, expected = part.end, part.expected


def damaged(path: Path, place: int) -> LogDamagedError:
    return LogDamagedError(f"{path} is damaged at byte {place}: there is no valid entry")

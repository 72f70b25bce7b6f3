"""Rewrite one closed segment without the entries later ones replace."""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from oplog_pipe.commitlog.codec import LogEntry, NewEntry, encode
from oplog_pipe.commitlog.files import Files
from oplog_pipe.commitlog.index import INTERVAL, IndexMark
from oplog_pipe.commitlog.segment import Segment, damaged, scan


class Compaction(NamedTuple):
    """How many entries and bytes were removed."""

    entries: int
    bytes: int


class LastEntries(NamedTuple):
    """The remaining entries of a segment. ``keys``: all its keys. ``removed``: number of others."""

    entries: list[LogEntry]
    keys: set[str]
    removed: int


class Rewritten(NamedTuple):
    """``path``: of the new file of a segment. ``marks``: for its index."""

    path: Path
    segment: Segment
    marks: list[IndexMark]


def choose(files: Files, segment: Segment, later: Collection[str], compacted: int) -> LastEntries:
    """Return the last entry per key, without the keys with a later one.

    Raises LogDamagedError, OSError. Holds one entry per key in memory.
    """
    last: dict[str, LogEntry] = {}
    count = 0
    file = files.open(segment.path)
    for part in scan(file, 0, segment.bytes, segment.base, compacted=compacted):
        if not part.valid:
            raise damaged(segment.path, part.end)
        count += len(part.entries)
        last.update((entry.key, entry) for entry in part.entries)
    entries = sorted(entry for key, entry in last.items() if key not in later)
    return LastEntries(entries, set(last), count - len(entries))


def write_entries(files: Files, segment: Segment, entries: list[LogEntry]) -> Rewritten:
    """Write a new file for a segment, and put it on disk."""
    path = segment.path.with_name(segment.path.name + ".tmp")
    file = files.open(path, write=True)
    file.truncate(0)
    marks = [IndexMark(segment.base, 0)]
    place = 0
    for entry in entries:
        if place - marks[-1].place >= INTERVAL:
            marks.append(IndexMark(entry.offset, place))
        data = encode(entry.offset, NewEntry(*entry[1:]))
        file.write(data, place)
        place += len(data)
    file.sync()
    newest = entries[-1].offset
    marks.append(IndexMark(newest + 1, place))
    return Rewritten(path, segment._replace(newest=newest, bytes=place), marks[1:])

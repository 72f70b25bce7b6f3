"""The log: one appender, many readers, and compaction beside them."""

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import msgspec

from oplog_pipe.commitlog.about import About, load_about, new_id, save_about
from oplog_pipe.commitlog.append import Appender
from oplog_pipe.commitlog.codec import LogEntry, NewEntry
from oplog_pipe.commitlog.compact import Compaction, choose, write_entries
from oplog_pipe.commitlog.cursor import Cursors
from oplog_pipe.commitlog.files import FILES, Files, log_errors
from oplog_pipe.commitlog.index import IndexMark, index_path, write_index
from oplog_pipe.commitlog.recovery import create, recover, remove_leftovers, repair_index
from oplog_pipe.commitlog.segment import Segment
from oplog_pipe.errors import LogDamagedError, LogError, NoLogError

_RELOADS = 10


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class CommitLog:
    """Entries with ascending offsets from 0, in segments in one folder.

    All methods may be called from any thread.
    """

    def __init__(self, folder: Path, files: Files, about: About) -> None:
        self._folder = folder
        self._files = files
        self._about = about
        self._lock: object = None
        self.segments: tuple[Segment, ...] = ()
        self._appender: Appender | None = None
        self._appending = threading.Lock()
        self._compacting = threading.Lock()
        self._done = -1
        self._changed = threading.Condition()
        self._wakes = 0
        self._epoch = 0
        self._cursors = Cursors(files)

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        max_segment_bytes: int = 1_000_000_000,
        clock: Callable[[], int] = now_ms,
        files: Files = FILES,
    ) -> Self:
        """Open a log, alone; create it if there is none; cut a torn tail.

        Raises LogLockedError if another process has it open, LogDamagedError, LogError.
        """
        with log_errors(folder):
            files.make_folder(folder)
            lock = files.lock(folder / "lock")
            about = load_about(files, folder)
            if about is None:
                about = create(files, folder, clock)
            elif not about.id:
                about = msgspec.structs.replace(about, id=new_id())
                save_about(files, folder, about)
            log = cls(folder, files, about)
            log._lock = lock
            remove_leftovers(files, folder)
            log.segments, file, index = recover(files, folder, about.compacted, write=True)
            assert file is not None
            log._appender = Appender(folder, files, max_segment_bytes, file, index)
        return log

    @classmethod
    def view(cls, folder: Path, *, files: Files = FILES) -> Self:
        """Open a log as it is now, to read it; change nothing.

        Another process may have it open. Then a torn tail is no error, and ``refresh`` shows newer
        entries. Raises NoLogError, LogDamagedError.
        """
        log = cls(folder, files, About(0))
        log.refresh()
        return log

    def refresh(self) -> None:
        """Look again at the folder of a view. Raises LogDamagedError, LogError."""
        with log_errors(self._folder):
            for _ in range(_RELOADS):  # a compaction changes and removes files meanwhile
                with suppress(FileNotFoundError, LogDamagedError):
                    self._refresh()
                    return
            self._refresh()

    def _refresh(self) -> None:
        about = load_about(self._files, self._folder)
        if about is None:
            raise NoLogError(f"{self._folder} holds no commit log")
        segments, _, _ = recover(self._files, self._folder, about.compacted, write=False)
        with self._changed:
            self._about, self.segments = about, segments
            self._epoch += 1

    @property
    def id(self) -> str:
        """The id of the folder. Empty: a view of a folder of an earlier release."""
        return self._about.id

    @property
    def created(self) -> int:
        """When the folder was created, in ms since 1970."""
        return self._about.created

    @property
    def compacted(self) -> int:
        """Up to this offset entries may be missing; -1: none is."""
        return self._about.compacted

    @property
    def end(self) -> int:
        """Offset of the next entry."""
        return self.segments[-1].newest + 1

    @property
    def oldest(self) -> int | None:
        """Offset of the oldest entry. None: the log is empty."""
        found = self.read(0, max_entries=1)
        return found[0].offset if found else None

    def append(self, entries: Sequence[NewEntry]) -> int:
        """Append entries; return the offset of the first.

        They are on disk when this returns, and not visible before. After a LogError none of them
        is in the log.
        """
        with self._appending, log_errors(self._folder):
            first = self.end
            if self._appender is None:
                raise LogError(f"{self._folder} is closed")
            segments = self._appender.append(self.segments[-1], entries)
            with self._changed:
                # Not the list of before: a compaction may have changed the closed ones.
                self.segments = (*self.segments[:-1], *segments)
                self._changed.notify_all()
            self._appender.write_marks()
            return first

    def read(
        self, start: int, max_bytes: int = 1 << 20, max_entries: int = 10_000
    ) -> list[LogEntry]:
        """Return entries from offset ``start`` on, ascending: at least one if there is one.

        The result may end before the limits, at the end of a segment. Raises LogDamagedError,
        LogError.
        """
        limits = max(1, max_bytes), max(1, max_entries)
        with log_errors(self._folder):
            try:
                return self._read(start, limits)
            except (FileNotFoundError, LogDamagedError):
                if self._lock is not None:
                    raise
            # Another process may have compacted what this view saw.
            self.refresh()
            return self._read(start, limits)

    def _read(self, start: int, limits: tuple[int, int]) -> list[LogEntry]:
        while True:
            with self._changed:  # no compaction replaces the file before it is open
                number = bisect_left(self.segments, start, key=lambda each: each.newest)
                if number == len(self.segments):
                    return []
                segment = self.segments[number]
                cursor = self._cursors.at(segment, self._epoch, start)
            try:
                found = self._cursors.read(segment, cursor, self.compacted, start, limits)
            except LogDamagedError:
                if cursor.mark.place == 0:
                    raise
                # Either the segment is damaged or its index is.
                cursor = cursor._replace(mark=IndexMark(segment.base, 0))
                found = self._cursors.read(segment, cursor, self.compacted, start, limits)
                if segment.closed and self._lock is not None:
                    repair_index(self._files, cursor.file, segment, self.compacted)
            if found:
                return found
            start = segment.newest + 1

    def entry(self, offset: int) -> LogEntry | None:
        """Return one entry. None: it is missing, or was never appended."""
        found = self.read(offset, max_entries=1) if offset >= 0 else []
        return found[0] if found and found[0].offset == offset else None

    def wait(self, offset: int, timeout: float | None = None) -> bool:
        """Wait until there is an entry at or behind an offset.

        Returns False after ``timeout`` seconds, and after ``wake`` or ``close``.
        """
        with self._changed:
            wakes = self._wakes
            self._changed.wait_for(lambda: self.end > offset or self._wakes != wakes, timeout)
            return self.end > offset

    def wake(self) -> None:
        """End all present waits."""
        with self._changed:
            self._wakes += 1
            self._changed.notify_all()

    def compact(self, up_to: int) -> Compaction:
        """Keep the last entry per key among closed segments up to ``up_to``.

        ``compacted`` is on disk before anything is removed. Raises LogDamagedError, LogError.
        """
        with self._compacting, log_errors(self._folder):
            candidates = [each for each in self.segments if each.closed and each.newest <= up_to]
            if not candidates or candidates[-1].newest <= self._done:
                return Compaction(0, 0)
            later: set[str] = set()
            entries = removed = 0
            # The newest first: after a crash each key still has its last entry.
            for segment in reversed(candidates):
                chosen = choose(self._files, segment, later, self.compacted)
                later |= chosen.keys
                if chosen.removed:
                    if segment.newest > self.compacted:
                        about = msgspec.structs.replace(self._about, compacted=segment.newest)
                        save_about(self._files, self._folder, about)
                        self._about = about
                    entries += chosen.removed
                    removed += segment.bytes - self._rewrite(segment, chosen.entries)
            self._done = candidates[-1].newest
            return Compaction(entries, removed)

    def _rewrite(self, segment: Segment, entries: list[LogEntry]) -> int:
        """Return the new size."""
        files, path = self._files, segment.path
        rewritten = write_entries(files, segment, entries) if entries else None
        with self._changed:
            if rewritten:
                files.replace(rewritten.path, path)
            else:
                files.unlink(path)
            at = self.segments.index(segment)
            new = [rewritten.segment] if rewritten else []
            self.segments = (*self.segments[:at], *new, *self.segments[at + 1 :])
            self._epoch += 1
        files.sync_folder(self._folder)
        if rewritten:
            write_index(files, path, segment.base, rewritten.marks)
            return rewritten.segment.bytes
        with suppress(FileNotFoundError):
            files.unlink(index_path(path))
        return 0

    def close(self) -> None:
        """Release the lock and end all waits. Running reads end well, a compaction too."""
        with self._compacting, self._appending:
            if self._appender is not None:
                self._appender.close()
            self._appender = self._lock = None
        self.wake()

    @property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.segments)

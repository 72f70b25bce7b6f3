"""The only writer of the commit log: a thread with one fsync for all waiting entries."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Self

from msgspec import Raw

from oplog_pipe.commitlog.codec import Mode, NewEntry, size_of
from oplog_pipe.commitlog.log import CommitLog, now_ms
from oplog_pipe.commitlog.room import CommitLogRoom
from oplog_pipe.follow.checkpoints import Checkpoints, SourceCheckpoint
from oplog_pipe.follow.streams import Change, Item, is_replicated
from oplog_pipe.follow.track import Track
from oplog_pipe.model.record import EntryRecord, control_key, encode_record

MAX_BYTES = 8_000_000
"""Bytes in memory that sources have received and that are not on disk."""

SAVE_SECONDS = 1.0
"""At most one checkpoint per source is saved in this time."""


# A call for the thread between two appends, and the future of its result.
_Step = tuple[Callable[[], None], "asyncio.Future[None]"]


class Recorder:
    """Appends the entries of sources, then saves their checkpoints. Made in an event loop.

    ``bound``: of the log; None: it has none. ``max_bytes``: see ``room``. ``save_interval``:
    seconds.
    """

    def __init__(
        self,
        log: CommitLog,
        checkpoints: Checkpoints,
        tracks: Sequence[Track],
        bound: CommitLogRoom | None = None,
        *,
        max_bytes: int = MAX_BYTES,
        save_interval: float = SAVE_SECONDS,
    ) -> None:
        self._log = log
        self._checkpoints = checkpoints
        self._tracks = tracks
        self._bound = CommitLogRoom(log) if bound is None else bound
        self._max_bytes = max_bytes
        self._save_interval = save_interval
        self._saved: dict[str, SourceCheckpoint] = {}
        self._saved_at = time.monotonic()
        self._dirty = False
        self._changed = threading.Condition()
        self._waiting: list[tuple[Track, list[Item]]] = []
        self._waiting_bytes = 0
        self._steps: list[_Step] = []
        self._appending_bytes = 0
        self._closing = False
        self._loop = asyncio.get_running_loop()
        self._progress = asyncio.Event()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="oplog-pipe-recorder", daemon=True)

    async def __aenter__(self) -> Self:
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Wait until all that has room is on disk, with the checkpoints. Raises LogError."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._bound.wake()
        await self.ended()

    async def ended(self) -> None:
        """Wait until the thread has ended. Raises LogError if it failed."""
        await asyncio.shield(self._ended)

    async def room(self) -> None:
        """Wait until less than ``max_bytes`` are received and not on disk."""
        while self._is_full:
            self._progress.clear()
            if self._is_full:
                await self._progress.wait()

    @property
    def _is_full(self) -> bool:
        return self._waiting_bytes + self._appending_bytes >= self._max_bytes

    def put(self, track: Track, items: list[Item]) -> None:
        """Append items of a source soon. Call ``room`` before."""
        size = sum(item.size if type(item) is Change else 100 for item in items)
        with self._changed:
            self._waiting.append((track, items))
            self._waiting_bytes += size
            self._changed.notify()

    async def step(self, step: Callable[[], None]) -> None:
        """Call in the thread, behind everything put before. Then save the checkpoints.

        ``step``: changes a track. Everything is on disk when this returns. Raises LogError.
        """
        done: asyncio.Future[None] = self._loop.create_future()
        with self._changed:
            self._steps.append((step, done))
            self._changed.notify()
        await asyncio.wait({done, self._ended}, return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            await self.ended()

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            closing = False
            while not closing:
                groups, steps, closing = self._take()
                if groups and not self._append(groups):
                    closing = True  # nothing may follow what is missing
                elif steps:
                    for step, _ in steps:
                        step()
                    self._dirty = True
                    self._save()
                    for _, done in steps:
                        self._tell(partial(_end, done, None))
                if closing or time.monotonic() >= self._saved_at + self._save_interval:
                    self._save()
        except BaseException as caught:
            error = caught
        self._tell(lambda: _end(self._ended, error))

    def _take(self) -> tuple[list[tuple[Track, list[Item]]], list[_Step], bool]:
        """Return the queue, and whether it is the end. Empty: checkpoints are due."""
        with self._changed:
            if not self._waiting and not self._steps and not self._closing:
                due = self._saved_at + self._save_interval - time.monotonic()
                if not self._dirty:
                    self._changed.wait()
                elif due > 0:
                    self._changed.wait(due)
            groups, self._waiting = self._waiting, []
            steps, self._steps = self._steps, []
            self._appending_bytes, self._waiting_bytes = self._waiting_bytes, 0
            return groups, steps, self._closing

    def _append(self, groups: Sequence[tuple[Track, list[Item]]]) -> bool:
        """Return False if the end comes before there is room."""
        by_track: dict[Track, list[Item]] = {}
        for track, items in groups:
            by_track.setdefault(track, []).extend(items)
        entries: list[NewEntry] = []
        end = self._log.end
        advances = [_encode(track, items, end, entries) for track, items in by_track.items()]
        if entries:
            if self._bound.max_bytes is not None:
                size = size_of(entries)
                if not self._bound.wait(size, lambda: self._closing):
                    return False
            self._log.append(entries)
        for advance in advances:
            advance()
        self._dirty = True
        self._appending_bytes = 0
        self._tell(self._progress.set)
        return True

    def _save(self) -> None:
        if not self._dirty:
            return
        end = self._log.end
        for track in self._tracks:
            now = track.checkpoint(end)
            # Also if only the end has moved: the log is read from there when the pipe starts.
            if now != self._saved.get(track.name):
                self._checkpoints.save(track.name, now)
                self._saved[track.name] = now
        self._dirty = False
        self._saved_at = time.monotonic()

    def _tell(self, call: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the event loop has been closed, so no source waits
            self._loop.call_soon_threadsafe(call)


def _encode(
    track: Track, items: Sequence[Item], end: int, entries: list[NewEntry]
) -> Callable[[], None]:
    """Add the entries of a source. Return a function to move the track behind them.

    ``end``: offset of the first of ``entries``.
    """
    name, matches = track.name, track.matches
    position, copy, copied, is_live = track.position, track.copy, track.copied, track.is_live
    last_copy, newest_ms = track.last_copy, track.newest_ms
    received = filtered = 0
    for item in items:
        position = item.event_id
        if type(item) is not Change:
            continue
        op = item.op
        if op in ("reset", "live"):
            if is_reset := op == "reset":
                copy = last_copy = end + len(entries)
                copied = 0
            mode = Mode.COPY if is_reset else Mode.SYNC if copy is None else Mode.COMPLETE
            record = EntryRecord(name, position, op, copy=copy)
            entries.append(NewEntry(now_ms(), mode, control_key(name), encode_record(record)))
            copy, is_live = (copy, False) if is_reset else (None, True)
            continue
        received += 1
        is_live = not is_replicated(position)
        copied += copy is not None
        newest_ms = item.timestamp
        if not matches(item.namespace):
            filtered += 1
            continue
        record = EntryRecord(name, position, op, item.id, copy, Raw(item.data))
        mode = Mode.SYNC if copy is None else Mode.COPY
        entries.append(NewEntry(item.timestamp, mode, item.namespace, encode_record(record)))

    def advance() -> None:
        track.position, track.copy, track.copied, track.is_live = position, copy, copied, is_live
        track.last_copy, track.newest_ms = last_copy, newest_ms
        track.received += received
        track.filtered += filtered

    return advance


def _end(ended: "asyncio.Future[None]", error: BaseException | None) -> None:
    if ended.cancelled():  # no source waits any more
        return
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)
        ended.exception()  # retrieved, so that asyncio does not log it

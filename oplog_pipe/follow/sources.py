"""All sources of a pipe, and the positions from which they resume."""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from oplog_pipe.commitlog.files import FILES, Files
from oplog_pipe.commitlog.log import CommitLog
from oplog_pipe.commitlog.long_read import LongRead
from oplog_pipe.commitlog.room import CommitLogRoom
from oplog_pipe.errors import ConfigError, LogDamagedError
from oplog_pipe.follow.checkpoints import Checkpoints, SourceCheckpoint
from oplog_pipe.follow.recorder import MAX_BYTES, SAVE_SECONDS, Recorder
from oplog_pipe.follow.source import LogSource
from oplog_pipe.follow.streams import START, is_oplog
from oplog_pipe.follow.track import Track
from oplog_pipe.model.record import EntryRecord, decode_record
from oplog_pipe.model.settings import SourceSettings
from oplog_pipe.model.status import SourceStatus


class Sources:
    """Follows all sources and appends their events to the log. It is the log's only writer.

    - ``folder``: of the log; the checkpoints are in ``FOLDER/sources``.
    - ``room``: of the log; None: it has no bound.
    - ``backoff``: first and longest pause between attempts to connect, in seconds.
    - ``max_bytes``: received and not on disk. ``save_interval``: seconds between checkpoints.

    Raises ConfigError for unusable settings, LogDamagedError, LogError.
    """

    def __init__(
        self,
        settings: Sequence[SourceSettings],
        log: CommitLog,
        folder: Path,
        room: CommitLogRoom | None = None,
        *,
        files: Files = FILES,
        backoff: tuple[float, float] = (1.0, 30.0),
        max_bytes: int = MAX_BYTES,
        save_interval: float = SAVE_SECONDS,
    ) -> None:
        self._log = log
        self._checkpoints = Checkpoints(folder, files)
        found = resume(settings, log, self._checkpoints)
        self._tracks = {each.name: Track(each, found[each.name]) for each in settings}
        self._recorder = partial(
            Recorder, log, self._checkpoints, list(self._tracks.values()), room,
            max_bytes=max_bytes, save_interval=save_interval,
        )  # fmt: skip
        self._sources = [LogSource(each, self._tracks[each.name], backoff) for each in settings]

    def restart_copy(self, names: Iterable[str]) -> None:
        """Let sources of the oplog begin a new copy. Not while they run.

        It is on disk when this returns. Raises ValueError for a topic, LogError.
        """
        for name in names:
            track = self._tracks[name]
            if not is_oplog(track.log):
                raise ValueError(f"source {name!r}: a topic cannot be copied again")
            checkpoint = SourceCheckpoint(track.log, START, self._log.end)
            self._checkpoints.save(name, checkpoint)
            track.begin(checkpoint)

    def without_copy(self, since: int) -> list[str]:
        """Return the sources of the oplog without a copy behind an offset.

        Coming, present and complete copies count.
        """
        return [
            name
            for name, track in self._tracks.items()
            if is_oplog(track.log) and not track.has_copy(since)
        ]

    async def run(self) -> None:
        """Follow until cancelled. Raises SourceError, GapError, LogError.

        Then everything received is on disk, and the checkpoints are saved, unless the log failed or
        has no room. The rest comes again.
        """
        async with self._recorder() as recorder:
            tasks = [asyncio.create_task(recorder.ended(), name="oplog-pipe-recorder")]
            tasks += [asyncio.create_task(each.follow(recorder)) for each in self._sources]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                # All are retrieved, so that asyncio logs none.
                errors = [task.exception() for task in tasks if not task.cancelled()]
            for error in errors:  # a failure of the log comes first
                if error is not None:
                    raise error

    def status(self) -> list[SourceStatus]:
        """Return the present state of each source. Any thread may call it."""
        return [track.status() for track in self._tracks.values()]


def resume(
    settings: Sequence[SourceSettings], log: CommitLog, checkpoints: Checkpoints
) -> dict[str, SourceCheckpoint]:
    """Return the present state of each source, by name.

    Entries appended after a checkpoint count; without a checkpoint, all entries. Raises ConfigError
    if a source has another log than before, LogDamagedError, LogError.
    """
    found: dict[str, SourceCheckpoint] = {}
    for source in settings:
        saved = checkpoints.load(source.name)
        if saved is not None:
            _check(source, saved, log.end, checkpoints)
        found[source.name] = saved or SourceCheckpoint(source.log, START, 0)
    ends = {name: each.end for name, each in found.items()}
    offset = first = min(ends.values(), default=log.end)
    names = ", ".join(name for name, end in ends.items() if end == first)
    progress = LongRead(f"looking in the log for the position of {names}", log.end - first)
    while entries := log.read(offset):
        for entry in entries:
            record = decode_record(entry.data)
            if entry.offset >= ends.get(record.source, log.end):
                found[record.source] = behind(found[record.source], record, entry.offset)
        offset = entries[-1].offset + 1
        progress.at(offset - first)
    return found


def behind(before: SourceCheckpoint, record: EntryRecord, offset: int) -> SourceCheckpoint:
    """Return the state of a source behind an entry of it."""
    now = replace(before, position=record.position, end=offset + 1)
    if record.op == "reset":
        return replace(now, copy=offset, copied=0, copy_total=None)
    copied = before.copied + (record.copy is not None and record.op != "live")
    return replace(now, copy=None if record.op == "live" else record.copy, copied=copied)


def _check(
    source: SourceSettings, saved: SourceCheckpoint, end: int, checkpoints: Checkpoints
) -> None:
    if saved.log != source.log:
        raise ConfigError(
            f"the source {source.name!r} follows {source.log!r}, but its position in this folder "
            f"is one of {saved.log!r}: give the source another name"
        )
    if saved.end > end:
        raise LogDamagedError(
            f"{checkpoints.path(source.name)} was saved when the log had {saved.end} entries, but "
            f"the log ends at {end}: segments are missing"
        )

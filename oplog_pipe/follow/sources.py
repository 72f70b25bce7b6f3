"""All sources of a pipe."""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from oplog_pipe.commitlog.files import FILES, Files
from oplog_pipe.commitlog.log import CommitLog
from oplog_pipe.commitlog.room import CommitLogRoom
from oplog_pipe.follow.checkpoints import Checkpoints, SourceCheckpoint
from oplog_pipe.follow.recorder import MAX_BYTES, SAVE_SECONDS, Recorder
from oplog_pipe.follow.resume import resume
from oplog_pipe.follow.source import LogSource
from oplog_pipe.follow.streams import START, is_oplog
from oplog_pipe.follow.track import Track
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

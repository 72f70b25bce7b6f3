"""The pipe: sources, commit log, sinks, and the order in which they start and stop."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from oplog_pipe.commitlog.log import CommitLog
from oplog_pipe.commitlog.room import CommitLogRoom
from oplog_pipe.deliver.factory import build
from oplog_pipe.deliver.retry import RetryClock
from oplog_pipe.deliver.worker import Worker
from oplog_pipe.errors import PipeError
from oplog_pipe.folder.backlog import RecoveryBacklog
from oplog_pipe.folder.failures import PipeFailures
from oplog_pipe.folder.keeper import ManagedSink, SinkKeeper
from oplog_pipe.folder.opening import Build, make_sinks, make_workers, tell_start
from oplog_pipe.folder.private import close_to_others
from oplog_pipe.folder.start import begin, held_by_others
from oplog_pipe.follow.sources import Sources
from oplog_pipe.model.exits import EXIT_OK
from oplog_pipe.model.settings import OPLOG, PipeSettings, SourceSettings
from oplog_pipe.model.status import LogStatus, PipeStatus, SinkStatus
from oplog_pipe.sinks.base import removes_at_end_of_copy
from oplog_pipe.watch.ages import EntryAges
from oplogc import __version__

# Seconds threads get at the end of shutdown_timeout to finish their present step.
_GRACE = 1.0
# Seconds between two looks at ending threads.
_LOOK = 0.02

logger = logging.getLogger("oplog_pipe")


Open = Callable[[Sequence[SourceSettings], CommitLog, Path, CommitLogRoom], Sources]


class Pipe:
    """Runs once. ``one_at_a_time``: never write batches.

    ``build``, ``sources``: make sinks and sources of your own instead of those of the settings.
    """

    def __init__(
        self,
        settings: PipeSettings,
        *,
        one_at_a_time: bool = False,
        build: Build = build,
        sources: Open | None = None,
        clock: RetryClock = RetryClock(),  # noqa: B008 - it holds no state
    ) -> None:
        self._settings = settings
        self._one_at_a_time = one_at_a_time
        self._build = build
        self._open_sources = sources
        self._clock = clock
        self._began = time.monotonic()
        self._ages = EntryAges()
        self._log: CommitLog | None = None
        self._room: CommitLogRoom | None = None
        self._sources: Sources | None = None
        self._workers: list[Worker] = []
        self._keeper: SinkKeeper | None = None
        self._failures = PipeFailures()
        self._hanging = False
        self._recovers = False
        self._has_copies = any(each.log == OPLOG for each in settings.sources)

    @property
    def hangs(self) -> bool:
        """Whether threads are still running after ``run``: a sink did not return. Use os._exit."""
        return self._hanging

    async def run(self, stop: asyncio.Event) -> int:
        """Run until ``stop`` or a failure, drain the sinks, and return the exit code.

        Failures are logged. A hanging sink does not delay the end beyond ``shutdown_timeout``.
        """
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        try:
            self._open()
            assert self._log is not None
            self._recovers = tell_start(self._settings, self._log, self._workers)
            for worker in self._workers:
                worker.start()
            assert self._keeper is not None
            self._keeper.start()
            following = await self._feed(stop)
            await self._drain(following)
        except PipeError as error:
            self._failures.tell(error)
        finally:
            self._close()
        return self._failures.code or EXIT_OK

    def status(self) -> PipeStatus:
        """Return the present state. Any thread may call it."""
        room, sources = self._room, self._sources
        return PipeStatus(
            __version__,
            time.monotonic() - self._began,
            LogStatus(None, 0, 0, 0, -1) if room is None else room.status(),
            [] if sources is None else sources.status(),
            [self._status_of(worker) for worker in self._workers],
            str(self._settings.dir.resolve()),
        )

    def _status_of(self, worker: Worker) -> SinkStatus:
        status = worker.status()
        if status.lag:
            return msgspec.structs.replace(status, lag_seconds=self._ages.of(status.offset + 1))
        return status

    def _open(self) -> None:
        """Raises ConfigError, LogError."""
        settings = self._settings
        made = make_sinks(settings, self._build)
        log = self._log = CommitLog.open(settings.dir, max_segment_bytes=settings.segment_bytes)
        letters = (settings.root / each.dead_letter for each in settings.sinks if each.dead_letter)
        close_to_others(settings.dir, letters)
        room = self._room = CommitLogRoom(log, settings.max_log_bytes)
        self._sources = (self._open_sources or Sources)(settings.sources, log, settings.dir, room)
        starts = begin(settings, log, self._sources)
        workers = make_workers(
            settings, made, log, starts, one_at_a_time=self._one_at_a_time, changed=self._changed,
            clock=self._clock,
        )  # fmt: skip
        self._ages.note(log.end)
        self._keeper = SinkKeeper(
            log,
            [
                ManagedSink(
                    worker,
                    start.offsets,
                    RecoveryBacklog(
                        log, each, settings.sources, is_removed=removes_at_end_of_copy(one.sink)
                    ),
                )
                for each, one, worker, start in zip(
                    settings.sinks, made, workers, starts, strict=True
                )
            ],
            held=held_by_others(settings.dir, settings.sinks),
            room=room,
            interval=settings.offset_flush,
            tick=lambda: self._ages.note(log.end),
            failed=self._changed,
        )
        self._workers = workers

    def _changed(self) -> None:
        """Look at the threads again. Called in any of them."""
        try:
            self._loop.call_soon_threadsafe(self._news.set)
        except RuntimeError:  # a sink returns after the end of the loop
            return

    # Life

    async def _feed(self, stop: asyncio.Event) -> "asyncio.Task[None] | None":
        """Run the sources once all backlogs are written; return at a stop or a failure."""
        assert self._sources is not None
        asked = asyncio.create_task(stop.wait(), name="stop")
        asked.add_done_callback(lambda _: self._news.set())
        following: asyncio.Task[None] | None = None
        try:
            while True:
                self._news.clear()
                self._failures.look(self._workers, self._keeper)
                if asked.done() or self._failures.code is not None:
                    return following
                if following is None and all(not each.is_awaited for each in self._workers):
                    if self._recovers:
                        logger.info("recovery is complete")
                    following = self._follow()
                if self._has_copies and any(each.place.wants_copy for each in self._workers):
                    following = await self._copy_again(following)
                if following is not None and following.done():
                    return following
                await self._news.wait()
        except asyncio.CancelledError:
            if following is not None:
                following.cancel()
            raise
        finally:
            asked.cancel()

    def _follow(self) -> "asyncio.Task[None]":
        assert self._sources is not None
        following = asyncio.create_task(self._sources.run(), name="sources")
        following.add_done_callback(lambda _: self._news.set())
        return following

    async def _copy_again(
        self, following: "asyncio.Task[None] | None"
    ) -> "asyncio.Task[None] | None":
        """Let the sources copy all objects for sinks without a place.

        A source with a copy for them under way continues. Returns the task of the sources: a new
        one if a source had to begin again.
        """
        assert self._sources is not None
        due = {each: each.place.copy_due for each in self._workers if each.place.wants_copy}
        names = self._sources.without_copy(max(due.values()))
        if names:
            logger.info(
                "sinks that had given up their place work again: %s; they get a copy of %s",
                ", ".join(each.name for each in due), ", ".join(names),
            )  # fmt: skip
            if following is not None:
                following.cancel()
                await asyncio.wait({following}, timeout=self._settings.shutdown_timeout)
                if not following.cancelled():
                    return following  # it has failed, or hangs: the pipe ends
            self._sources.restart_copy(names)
            following = None if following is None else self._follow()
        for worker, offset in due.items():
            worker.place.begin_copy(offset)
        return following

    async def _drain(self, following: "asyncio.Task[None] | None") -> None:
        """End the sources, then the sinks at the end of the log, within ``shutdown_timeout``."""
        assert self._keeper is not None
        grace = min(_GRACE, self._settings.shutdown_timeout)
        deadline = self._loop.time() + self._settings.shutdown_timeout
        if following is not None:
            following.cancel()
            await asyncio.wait({following}, timeout=self._settings.shutdown_timeout)
            self._end_of(following)
        for worker in self._workers:
            worker.drain()
        await self._ended(deadline)
        for worker in self._workers:
            worker.leave()
        await self._ended(self._loop.time() + grace)
        self._keeper.stop(max(deadline - self._loop.time(), grace))
        self._failures.look(self._workers, self._keeper)
        for worker in self._workers:
            if not worker.is_done:
                logger.warning(
                    "sink %r hangs: stopping without it; it continues behind offset %d at the"
                    " next start", worker.name, worker.place.offset,
                )  # fmt: skip

    async def _ended(self, deadline: float) -> None:
        """Wait until all sinks have ended, or until the deadline."""
        assert self._log is not None
        while not all(each.is_done for each in self._workers):
            self._log.wake()  # also a thread about to wait
            if self._loop.time() >= deadline:
                return
            self._news.clear()
            try:
                async with asyncio.timeout(_LOOK):
                    await self._news.wait()
            except TimeoutError:
                continue

    def _end_of(self, following: "asyncio.Task[None]") -> None:
        if not following.done():
            logger.warning("the sources hang: stopping without them")
            self._hanging = True
        elif not following.cancelled():
            error = following.exception()
            self._failures.tell(PipeError("the sources have ended") if error is None else error)

    def _close(self) -> None:
        log, keeper = self._log, self._keeper
        for worker in self._workers:
            worker.leave()
        if keeper is not None:
            keeper.close()
            self._hanging |= keeper.is_running
        self._hanging |= any(not each.is_done for each in self._workers)
        if log is not None:
            log.close()

"""Puts acknowledged offsets on disk, and compacts the log below them."""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from oplog_pipe.commitlog.log import CommitLog
from oplog_pipe.commitlog.offsets import OffsetLog
from oplog_pipe.worker import Worker

logger = logging.getLogger("oplog_pipe")


class Kept(NamedTuple):
    worker: Worker
    offsets: OffsetLog


class Keeper:
    """Owns the offset logs. Has two threads: a compaction does not delay a flush.

    - ``held``: an offset above which nothing may be compacted; None: no such offset.
    - ``interval``: seconds between flushes. ``tick``: called after each of them.
    - ``failed``: called in a thread when ``error`` is set; nothing is flushed after it.
    """

    def __init__(
        self,
        log: CommitLog,
        kept: Sequence[Kept],
        *,
        held: int | None,
        interval: float,
        tick: Callable[[], None] = lambda: None,
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        self.error: BaseException | None = None
        self._log = log
        self._kept = kept
        self._held = held
        self._interval = interval
        self._tick = tick
        self._failed = failed
        self._flushing = threading.Lock()
        self._flushed = {each.worker.name: each.worker.offset for each in kept}
        self._stopping = threading.Event()
        self._advanced = threading.Event()
        self._advanced.set()
        self._compacted = -1
        self._threads = [
            threading.Thread(target=self._guard, args=(target,), name=name, daemon=True)
            for name, target in (("offsets", self._flush_often), ("compaction", self._compact))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float) -> None:
        """End the threads, wait for them for this time, and flush for the last time.

        Raises LogError if a flush fails.
        """
        self._stopping.set()
        self._advanced.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(seconds)
        if self.error is None:
            self.flush()

    @property
    def is_running(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def close(self) -> None:
        """Close the offset logs. Nothing is flushed any more."""
        with self._flushing:
            for each in self._kept:
                each.offsets.close()
            self._kept = ()

    def flush(self) -> None:
        """Put all acknowledged offsets on disk. Raises LogError."""
        with self._flushing:
            for worker, offsets in self._kept:
                if changes := worker.take_unflushed():
                    offsets.write(changes)
                    worker.flushed(changes)
                    self._flushed[worker.name] = max(self._flushed[worker.name], *changes.values())
        self._advanced.set()

    def compact(self) -> None:
        """Compact closed segments below every flushed offset. Raises LogError."""
        lowest = min(self._flushed.values(), default=-1)
        if self._held is not None:
            lowest = min(lowest, self._held)
        newest = max(
            (each.newest for each in self._log.segments if each.closed and each.newest <= lowest),
            default=-1,
        )
        if newest > self._compacted:
            removed = self._log.compact(lowest)
            self._compacted = newest
            if removed.entries:
                logger.info(
                    "compacted up to offset %d: removed %d entries, %d bytes",
                    newest, removed.entries, removed.bytes,
                )  # fmt: skip

    def _flush_often(self) -> None:
        while not self._stopping.wait(self._interval):
            self.flush()
            self._tick()

    def _compact(self) -> None:
        while True:
            self._advanced.wait()
            if self._stopping.is_set():
                return
            self._advanced.clear()
            self.compact()

    def _guard(self, target: Callable[[], None]) -> None:
        try:
            target()
        except BaseException as error:
            self.error = error
            self._failed()

"""Puts acknowledged offsets on disk, and compacts the log below them."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from oplog_kit.wording import counted
from oplog_pipe.commitlog.log import CommitLog
from oplog_pipe.commitlog.offsets import OffsetLog
from oplog_pipe.commitlog.room import CommitLogRoom
from oplog_pipe.deliver.worker import Worker
from oplog_pipe.folder.backlog import RecoveryBacklog
from oplog_pipe.folder.making_room import GiveUp, Holder, Wait, decide
from oplog_pipe.model.exits import PROGRAM
from oplog_pipe.model.status import WAITS_FOR_COPY

_FULL = "the commit log has reached max_log_bytes, and the sources wait"
# A sink hangs if it acknowledges nothing for so many seconds, although there are entries. A call
# that begins or ends a copy does not count until it fails: it may work through large tables.
_HANGS_AFTER = 300.0

logger = logging.getLogger("oplog_pipe")


class ManagedSink(NamedTuple):
    """``backlog``: the sink keeps its place if no copy brings all of it again; None: copies do."""

    worker: Worker
    offsets: OffsetLog
    backlog: RecoveryBacklog | None = None


class SinkKeeper:
    """Owns the offset logs. Has two threads: a compaction does not delay a flush.

    - ``held``: offsets of stopped sinks, by name: nothing above them may be compacted.
    - ``room``: of the log; None: it has no bound.
    - ``interval``: seconds between flushes. ``tick``: called after each of them.
    - ``failed``: called in a thread when ``error`` is set; nothing is flushed after it.
    - ``now``: seconds.
    """

    def __init__(
        self,
        log: CommitLog,
        sinks: Sequence[ManagedSink],
        *,
        held: Mapping[str, int],
        interval: float,
        room: CommitLogRoom | None = None,
        tick: Callable[[], None] = lambda: None,
        failed: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.error: BaseException | None = None
        self._log = log
        self._sinks = sinks
        self._places = [each.worker.place for each in sinks]  # also after ``close``
        self._held = held
        self._interval = interval
        self._tick = tick
        self._failed = failed
        self._now = now
        self._flushing = threading.Lock()
        # When a sink has last acknowledged something, had nothing to do, or was at a copy.
        self._moved = {each.worker.name: now() for each in sinks}
        self._stopping = threading.Event()
        self._advanced = threading.Event()
        self._advanced.set()
        self._room = CommitLogRoom(log) if room is None else room
        self._room.asked = self._advanced.set
        self._threads = [
            threading.Thread(target=self._guard, args=(target,), name=name, daemon=True)
            for name, target in (("offsets", self._flush_often), ("compaction", self._compact))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float) -> None:
        """End the threads, wait for them for this time, and flush once more. Raises LogError."""
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
            for each in self._sinks:
                each.offsets.close()
            self._sinks = ()

    def flush(self) -> None:
        """Put all acknowledged offsets on disk. Raises LogError."""
        self._flush()
        self._advanced.set()

    def _flush(self) -> None:
        with self._flushing:
            for worker, offsets, _ in self._sinks:
                changes = worker.place.take_unflushed()
                if changes:
                    offsets.write(changes)
                    worker.place.flush(changes)
                if changes or worker.is_at_copy or worker.place.offset == self._log.end - 1:
                    self._moved[worker.name] = self._now()

    def compact(self) -> None:
        """Compact closed segments below every flushed offset. Raises LogError."""
        flushed = [each.flushed for each in self._places]
        removed = self._log.compact(min((*flushed, *self._held.values()), default=-1))
        if removed.entries:
            logger.info(
                "compacted up to offset %d: removed %d entries, %d bytes",
                self._log.compacted, removed.entries, removed.bytes,
            )  # fmt: skip

    def make_room(self) -> None:
        """Compact until a waiting append has room, or must wait for a sink.

        Failed sinks give up their place if a copy can restore it. This is on disk before anything
        is removed. Raises LogError.
        """
        self.compact()
        while (number := self._room.lacking) is not None and not self._stopping.is_set():
            self._flush()
            self.compact()
            if self._room.lacking != number:
                continue
            closed = [each.newest for each in self._log.segments if each.closed]
            match decide(closed, self._holders()):
                case None:
                    self._room.grant(number)
                    return
                case Wait(reasons):
                    self._room.refuse(number, f"{_FULL}: {'; '.join(reasons)}")
                    return
                case GiveUp(names, offset):
                    self._give_up(names, offset)
        self._room.wake()

    def _holders(self) -> list[Holder]:
        running = [
            Holder(each.worker.name, each.worker.place.flushed, self._stays(each))
            for each in self._sinks
        ]
        for name, offset in self._held.items():
            reason = (
                f"sink {name!r} is not in the settings, and its offset {offset} holds the log; if"
                f" it does not come back, stop the pipe and run `{PROGRAM} offset delete {name}`"
            )
            running.append(Holder(name, offset, reason))
        return running

    def _stays(self, sink: ManagedSink) -> str | None:
        """Return why a sink does not give up its place; None: it does."""
        worker = sink.worker
        has_failed = worker.is_parked or self._now() - self._moved[worker.name] >= _HANGS_AFTER
        waits = counted(self._log.end - 1 - worker.place.flushed, "entry", "entries")
        if not has_failed:
            present = "begins or ends a copy, and " if worker.is_at_copy else ""
            return f"sink {worker.name!r} {present}has still to write {waits}"
        if sink.backlog and (lost := sink.backlog.lost_behind(worker.place.flushed)):
            return (
                f"sink {worker.name!r} does not work, has still to write {waits}, and {lost}:"
                " mend its target, raise max_log_bytes, or give the sink up: remove it from the"
                f" settings and run `{PROGRAM} offset delete {worker.name}`"
            )
        return None

    def _give_up(self, names: Sequence[str], offset: int) -> None:
        for worker in (each.worker for each in self._sinks if each.worker.name in names):
            before, was_due = worker.place.offset, worker.place.copy_due >= 0
            if worker.place.give_up(offset) and not was_due:  # logged once until the copy comes
                logger.warning(
                    "sink %r gives up its place, because the commit log has reached max_log_bytes:"
                    " it does not get %d entries from offset %d to %d; %s",
                    worker.name, offset - before, before + 1, offset, WAITS_FOR_COPY,
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
            self.make_room()

    def _guard(self, target: Callable[[], None]) -> None:
        try:
            target()
        except BaseException as error:
            self.error = error
            self._failed()

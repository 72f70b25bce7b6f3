"""Brings the entries of the log to one sink, in a thread."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, cast

from oplog_pipe.batch import Batch
from oplog_pipe.commitlog.codec import Entry
from oplog_pipe.commitlog.log import CommitLog
from oplog_pipe.commitlog.offsets import WHOLE_SINCE, not_whole_key
from oplog_pipe.dead_letters import DeadLetters
from oplog_pipe.errors import ConfigError, PipeError, SinkError, TargetError
from oplog_pipe.exits import PROGRAM
from oplog_pipe.letters import HOLD_SECONDS, Letters
from oplog_pipe.message import Message, Op, version_of
from oplog_pipe.reasons import of_code
from oplog_pipe.record import CopyBegins, CopyEnds, content, decode_record, is_control_key
from oplog_pipe.retry import FIRST_PAUSE, Clock, LeftError, Retry
from oplog_pipe.settings import SinkSettings
from oplog_pipe.sinks.base import Abandoning, Mirroring, Sink, Versioned
from oplog_pipe.status import SinkStatus
from oplog_pipe.steps import Namespaces, Steps
from oplog_pipe.wholeness import Wholeness

# Entries that are read together while they are written one at a time.
_READ_TOGETHER = 1000
# Seconds between two attempts of a sink that is parked, at most.
_LONGEST_PARKING = 300.0
# Larger than every offset.
FOR_EVER = 1 << 63

logger = logging.getLogger("oplog_pipe")


class Worker:
    """The only caller of a sink and its steps. Its thread ends by itself after ``drain``.

    - ``offset``: the last acknowledged one. ``wholeness``: None: as of a sink without a past.
    - ``recover_until``: at this offset the sink is ready.
    - ``single_until``: messages up to this offset are written one at a time; ``FOR_EVER``: all.
    - ``place``: of the sink in the settings.
    - ``changed``: called in the thread when ``is_ready`` or ``is_done`` have become true.
    """

    def __init__(
        self,
        settings: SinkSettings,
        sink: Sink,
        steps: Steps,
        log: CommitLog,
        *,
        offset: int,
        wholeness: Wholeness | None = None,
        recover_until: int = -1,
        single_until: int = -1,
        dead_letters: DeadLetters | None = None,
        place: str = "sink",
        changed: Callable[[], None] = lambda: None,
        clock: Clock = Clock(),  # noqa: B008 - it holds no state
    ) -> None:
        self.name = settings.name
        self.error: BaseException | None = None
        self._settings = settings
        self._sink = sink
        self._steps = steps
        self._log = log
        self._namespaces = Namespaces(settings.namespace)
        self._letters = Letters(dead_letters, settings.dead_letter_limit, clock.now)
        # Keys of entries behind a letter that is held.
        self._pending: dict[str, int] = {}
        self._place = place
        self._changed = changed
        self._clock = clock
        self._recover_until = recover_until
        self._single_until = single_until
        self._is_done = False
        self._draining = threading.Event()
        self._is_left = self._is_open = self._is_judged = False
        self._parked: str | None = None
        self._retry = Retry(settings.name, settings.retry_for, self._draining, clock)
        # The thread of the keeper reads these, too.
        self._lock = threading.Lock()
        self._offset = self._flushed = self._seen = offset
        self._wholeness = wholeness or Wholeness(offset)
        self._unflushed: dict[str, int] = {}
        self._limits = settings.batch
        self._batch = Batch(offset + 1, settings.batch)
        self._written = self._filtered = 0
        self._thread = threading.Thread(target=self._run, name=f"sink {self.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def drain(self) -> None:
        """Let the thread end at the end of the log. Wake the log until ``is_done``."""
        self._draining.set()

    def leave(self) -> None:
        """Let the thread end after the present call of the sink."""
        self._is_left = True
        self._draining.set()

    def join(self, seconds: float | None = None) -> None:
        """Wait until the thread has ended."""
        self._thread.join(seconds)

    @property
    def is_ready(self) -> bool:
        """Whether the sink has been through the backlog that it had at the start."""
        return self._seen >= self._recover_until

    @property
    def is_awaited(self) -> bool:
        """Whether the sources wait for the sink."""
        return not (self.is_ready or self.is_parked)

    @property
    def is_parked(self) -> bool:
        """Whether the sink has failed and keeps its place. Nothing waits for it."""
        return self._parked is not None

    @property
    def is_done(self) -> bool:
        return self._is_done

    @property
    def offset(self) -> int:
        """The last acknowledged one; -1: none."""
        return self._offset

    def take_unflushed(self) -> dict[str, int]:
        """Return what has changed in the offset log since the last call, by its keys."""
        with self._lock:
            taken, self._unflushed = self._unflushed, {}
        return taken

    def flushed(self, offsets: Mapping[str, int]) -> None:
        """Note that these are on disk."""
        self._flushed = max(self._flushed, *offsets.values())

    def status(self) -> SinkStatus:
        """Return the present state, without ``lag_seconds``. Any thread may call it."""
        offset = self._offset
        return SinkStatus(
            self.name,
            self._settings.type,
            self._phase(),
            offset=offset,
            flushed=self._flushed,
            lag=max(self._log.end - 1 - offset, 0),
            written=self._written,
            filtered=self._filtered,
            dead=self._letters.written,
            retries=self._retry.retries,
            error=self._parked or self._retry.error if self.error is None else str(self.error),
            not_whole=sorted(self._wholeness.not_whole),
            notice=self._sink.notice if isinstance(self._sink, Mirroring) else None,
        )

    def _phase(self) -> Literal["recovery", "single", "bulk", "parked", "stopped"]:
        if self.is_done:
            return "stopped"
        if self.is_parked:
            return "parked"
        if not self.is_ready:
            return "recovery"
        return "single" if self._single_until == FOR_EVER else "bulk"

    # The thread

    def _run(self) -> None:
        try:
            self._live()
        except LeftError as error:
            logger.warning(
                "sink %r stops at offset %d, and continues behind it at the next start: %s",
                self.name, self._offset, error,
            )  # fmt: skip
        except BaseException as error:
            self.error = error
            logger.debug("sink %r has failed", self.name, exc_info=error)
        finally:
            for close in (self._steps.close, self._sink.close):
                try:
                    close()
                except BaseException as error:  # also sys.exit: the thread must be seen to end
                    logger.warning(
                        "sink %r: closing has failed: %s", self.name, of_code(error),
                    )  # fmt: skip
            self._is_done = True
            self._changed()

    def _live(self) -> None:
        """Work until the end of a drain. A failure parks the sink, if the settings say so."""
        pause = FIRST_PAUSE
        while True:
            reached = self._offset
            try:
                if not self._is_open:
                    self._retry(self._sink.open)
                    self._is_open = True
                if not self._is_judged:
                    self._judge()
                    self._is_judged = True
                self._work()
                return
            except (SinkError, ConfigError) as error:
                if self._settings.on_failure != "park":
                    raise
                pause = FIRST_PAUSE if self._offset > reached else min(2 * pause, _LONGEST_PARKING)
                self._park(error, pause * (1 - self._clock.jitter() / 2))
            if self._draining.is_set():
                return

    def _park(self, error: PipeError, pause: float) -> None:
        """Keep the place for a while. ``pause``: seconds."""
        if not self.is_parked:
            logger.error(
                "sink %r is parked at offset %d, and the other sinks go on: %s; it is tried again"
                " until it works", self.name, self._offset, error,
            )  # fmt: skip
        self._parked = str(error)
        if not (isinstance(error, SinkError) and error.transient):
            # Alone, the message that is refused ends exactly before its offset.
            self._single_until = max(self._single_until, self._batch.next - 1)
        self._letters.forget()
        self._pending.clear()
        self._batch = Batch(self._offset + 1, self._limits)
        self._changed()
        self._clock.pause(self._draining, pause)

    def _judge(self) -> None:
        """Raises ConfigError if the target belongs to another folder."""
        if not isinstance(self._sink, Versioned):
            return
        newest = self._retry(self._sink.newest_version)
        own = version_of(self._log.created, self._log.end - 1)
        if newest is not None and newest > own:
            raise ConfigError(
                f"{self._place}: the target has objects of version {newest}, which is larger than"
                f" {own}, the newest version of this folder: another folder has written them."
                " Use that folder, or empty the target and let the sink start with start: copy"
            )

    def _work(self) -> None:
        """Raises SinkError, LeftError, LogError."""
        while not self._is_left:
            if self._letters.held or self._batch.next <= self._single_until:
                # Read before the end of the log: nothing is appended after it is set.
                is_last = self._draining.is_set()
                entries = self._log.read(self._batch.next, max_entries=_READ_TOGETHER)
                if entries:
                    self._deliver_singly(entries)
                    continue
                if self._letters.held:
                    if is_last:
                        return  # the next start takes them again
                    waited = self._log.wait(self._batch.next, HOLD_SECONDS)
                    if not waited and not self._draining.is_set():
                        self._release()
                    continue
            try:
                if not self._deliver():
                    return
            except SinkError as error:
                # The end of a copy is no message, so it can be no dead letter.
                has_messages = self._batch.next - 1 > self._offset
                if not has_messages or not self._may_be_dead(error):
                    raise
                logger.warning(
                    "sink %r: %s; writing offsets %d to %d one message at a time",
                    self.name, error, self._offset + 1, self._batch.next - 1,
                )  # fmt: skip
                self._single_until = self._batch.next - 1
                self._batch = Batch(self._offset + 1, self._limits)

    def _deliver(self) -> bool:
        """Take some of the waiting entries, or wait. Return False at the end of a drain."""
        batch = self._batch
        entries = self._log.read(batch.next, batch.room_bytes, batch.room_messages)
        if not entries:
            return self._idle()
        for at, entry in enumerate(entries):
            if is_control_key(entry.key):
                if at:
                    entries = entries[:at]
                    break
                self._write_batch()
                self._control(entry)
                return True
        self._add(entries)
        if not batch.messages or batch.is_full or self._clock.now() >= batch.deadline:
            self._write_batch()
        return True

    def _idle(self) -> bool:
        batch, log = self._batch, self._log
        # Read before the end of the log: nothing is appended after it is set.
        is_last = self._draining.is_set()
        if log.end > batch.next:
            return True
        if batch.messages:
            wait = batch.deadline - self._clock.now()
            if is_last or wait <= 0 or not log.wait(batch.next, wait):
                self._write_batch()
        elif is_last:
            return False
        else:
            log.wait(batch.next)
        return True

    def _add(self, entries: Sequence[Entry]) -> None:
        """Put messages into the batch, as the steps leave them."""
        batch = self._batch
        if not batch.messages:
            batch.deadline = self._clock.now() + self._limits.time
        batch.next = entries[-1].offset + 1
        batch.keys.update([(entry.key, entry.offset) for entry in entries])
        namespaces = self._namespaces
        wanted = [entry for entry in entries if entry.key in namespaces]
        messages = self._prepare(wanted) if wanted else []
        self._filtered += len(entries) - len(messages)
        batch.bytes += sum([len(entry.data) for entry in wanted]) if messages else 0
        batch.messages += messages

    def _prepare(self, entries: Sequence[Entry]) -> list[Message]:
        """Return messages after the steps. A repetition begins with fresh ones."""
        message = self._message
        return self._retry(lambda: self._steps([message(entry) for entry in entries]))

    def _write_batch(self) -> None:
        batch = self._batch
        if messages := batch.messages:
            self._retry(lambda: self._sink.write(messages))
            self._written += len(messages)
            self._letters.succeed(len(messages))
        if batch.keys:
            self._acknowledge(batch.next - 1, batch.keys)
        self._batch = Batch(batch.next, self._limits)

    def _control(self, entry: Entry) -> None:
        record = decode_record(entry.data)
        found = content(entry.offset, entry.timestamp, entry.key, record, self._log.created)
        keys = {entry.key: entry.offset}
        match found:
            case CopyBegins(source, generation):
                self._retry(lambda: self._sink.begin_copy(generation, source))
                logger.info("sink %r: a copy of %s begins", self.name, source)
            case CopyEnds(source, generation):
                assert record.copy is not None
                is_whole = self._wholeness.end(source, record.copy)
                self._end_copy(generation, source, is_whole=is_whole)
                keys[not_whole_key(source)] = -1 if is_whole else entry.offset
        self._acknowledge(entry.offset, keys)
        self._batch = Batch(entry.offset + 1, self._limits)

    def _end_copy(self, generation: int, source: str, *, is_whole: bool) -> None:
        if is_whole:
            self._retry(lambda: self._sink.end_copy(generation, source))
            logger.info("sink %r: the copy of %s is complete", self.name, source)
            return
        if isinstance(self._sink, Abandoning):
            sink = self._sink
            self._retry(lambda: sink.abandon_copy(generation, source))
        logger.warning(
            "sink %r: copy not whole: it did not get every message of the copy of %s, so the end of"
            " the copy has removed nothing; mend the reason, stop the pipe, and run `%s copy %s`",
            self.name, source, PROGRAM, source,
        )  # fmt: skip

    def _deliver_singly(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            is_needed = self._letters.held or entry.offset <= self._single_until
            if self._is_left:
                return
            if not is_needed:  # compaction has removed the last one
                self._single_until = self._batch.next - 1
                return
            if is_control_key(entry.key):
                self._release()
                self._control(entry)
                continue
            is_written = self._deliver_one(entry)
            self._batch.next = entry.offset + 1
            self._pending[entry.key] = entry.offset
            if is_written or not self._letters.held:
                self._release()
            else:
                self._see(entry.offset)

    def _deliver_one(self, entry: Entry) -> bool:
        """Write one message, or hold its letter. Return whether the sink has written it."""
        if entry.key not in self._namespaces:
            self._filtered += 1
            return False
        try:
            messages = self._prepare([entry])
            if not messages:
                self._filtered += 1
                return False
            self._retry(lambda: self._sink.write(messages))
        except SinkError as error:
            if not self._may_be_dead(error):
                raise
            message = self._message(entry)
            logger.warning("sink %r: %r is refused: %s", self.name, message, error)
            self._letters.hold(message, error)
            return False
        self._written += 1
        self._letters.succeed(1)
        return True

    def _release(self) -> None:
        """Write the letters that are held, and acknowledge everything up to here."""
        if offsets := self._letters.release():
            self._wholeness.miss(offsets[-1])
            self._pending[WHOLE_SINCE] = self._wholeness.since
        if self._pending:
            keys, self._pending = self._pending, {}
            self._acknowledge(self._batch.next - 1, keys)

    def _may_be_dead(self, error: SinkError) -> bool:
        """Return whether a message is at fault, and there is a file for it."""
        return self._letters.has_file and not error.transient and not isinstance(error, TargetError)

    def _message(self, entry: Entry) -> Message:
        offset, timestamp, _, key, data = entry
        record = decode_record(data)
        return Message(
            cast(Op, record.op),  # only control entries have other ones
            timestamp,
            key,
            record.data,
            id=record.id,
            offset=offset,
            version=version_of(self._log.created, offset),
            source=record.source,
        )

    def _acknowledge(self, offset: int, keys: Mapping[str, int]) -> None:
        with self._lock:
            self._offset = offset
            self._unflushed.update(keys)
        if self._parked is not None:
            logger.info("sink %r is no longer parked", self.name)
            self._parked = None
        self._see(offset)

    def _see(self, offset: int) -> None:
        was_ready = self.is_ready
        self._seen = max(self._seen, offset)
        if not was_ready and self.is_ready:
            self._changed()

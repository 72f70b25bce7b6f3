"""Brings the entries of the log to one sink: in batches, or one message at a time."""

import logging
import threading
from collections.abc import Callable, Sequence

from oplog_pipe.commitlog.codec import LogEntry
from oplog_pipe.commitlog.log import CommitLog
from oplog_pipe.commitlog.offsets import not_whole_key
from oplog_pipe.deliver.batch import Batch
from oplog_pipe.deliver.letters import HOLD_SECONDS, DeadLetters, Letters
from oplog_pipe.deliver.patience import Patience
from oplog_pipe.deliver.place import SinkPlace
from oplog_pipe.deliver.preparing import Prepared, Preparing
from oplog_pipe.deliver.retry import Retry, RetryClock
from oplog_pipe.deliver.steps import Steps
from oplog_pipe.errors import SinkError, TargetError
from oplog_pipe.message import Message
from oplog_pipe.model.exits import PROGRAM
from oplog_pipe.model.record import CopyBegins, CopyEnds, content, decode_record, is_control_key
from oplog_pipe.model.settings import SinkSettings
from oplog_pipe.sinks.base import Abandoning, Sink

# Entries read together while they are written one at a time.
_READ_TOGETHER = 1000
# Larger than every offset.
FOR_EVER = 1 << 63

logger = logging.getLogger("oplog_pipe")


class SinkDelivery:
    """All its methods are called in the thread of the sink.

    - ``single_until``: messages up to this offset are written one at a time; ``FOR_EVER``: all.
    - ``draining``: nothing is appended after it is set. ``left``: stop behind the present message.
    - ``worked``: called after a call of the sink has succeeded.
    - ``written``, ``filtered``: numbers of messages since the start.
    - ``is_at_copy``: whether a call for the begin or end of a copy runs or is repeated.
    """

    def __init__(
        self,
        settings: SinkSettings,
        sink: Sink,
        steps: Steps,
        log: CommitLog,
        place: SinkPlace,
        dead_letters: DeadLetters | None,
        clock: RetryClock,
        *,
        single_until: int,
        draining: threading.Event,
        left: threading.Event,
        worked: Callable[[], None],
    ) -> None:
        self.written = self.filtered = 0
        self.is_at_copy = False
        self.single_until = single_until
        self.letters = Letters(dead_letters, settings.dead_letter_limit, clock.now)
        self.retry = Retry(settings.name, settings.retry_for, draining, clock)
        self._name = settings.name
        self._sink = sink
        self._patience = Patience(settings.retry_for, clock.now)
        self._prepare = Preparing(settings, steps, log.created, self._patience)
        self._log, self._place = log, place
        self._now, self._worked = clock.now, worked
        self._draining, self._left = draining, left
        # Keys of entries behind a held letter.
        self._pending: dict[str, int] = {}
        self._limits = settings.batch
        self._batch = Batch(place.offset + 1, settings.batch)

    def step(self) -> bool:
        """Deliver some entries, or wait for some. Return False at the end of a drain.

        Raises SinkError, LeftError, LogError.
        """
        is_last = self._draining.is_set()  # read before the end of the log
        if self._is_passed_over:
            self._begin_again()
        if self.letters.held or self._batch.next <= self.single_until:
            if entries := self._log.read(self._batch.next, max_entries=_READ_TOGETHER):
                self._deliver_singly(entries)
                return True
            if self.letters.held and is_last:
                return False  # the next start takes them again
            if self.letters.held:
                waited = self._log.wait(self._batch.next, HOLD_SECONDS)
                if not waited and not self._draining.is_set():
                    self._release()
                return True
        try:
            return self._deliver(is_last)
        except SinkError as error:
            # The end of a copy is no message, so it can be no dead letter.
            has_messages = self._batch.next - 1 > self._place.offset
            if not has_messages or not self._may_be_dead(error):
                raise
            logger.warning(
                "sink %r: %s; writing offsets %d to %d one message at a time",
                self._name, error, self._place.offset + 1, self._batch.next - 1,
            )  # fmt: skip
            self.single_until = self._batch.next - 1
            self._begin_again()
            return True

    def fail(self, error: Exception) -> None:
        """Begin again behind the last acknowledged entry."""
        if not (isinstance(error, SinkError) and error.transient):
            # One at a time, the sink stops exactly at the refused message.
            self.single_until = max(self.single_until, self._batch.next - 1)
        self._begin_again()
        self._patience.forget()

    @property
    def _is_passed_over(self) -> bool:
        """Whether the sink has given up the place of the batch."""
        return self._batch.next <= self._place.offset

    def _begin_again(self) -> None:
        self.letters.held.clear()
        self._pending.clear()
        self._batch = Batch(self._place.offset + 1, self._limits)

    # In batches

    def _deliver(self, is_last: bool) -> bool:
        batch = self._batch
        most = min(batch.room_messages, self._prepare.most)
        entries = self._log.read(batch.next, self._limits.bytes - batch.bytes, most)
        if not entries:
            return self._idle(is_last)
        control = next((at for at, each in enumerate(entries) if is_control_key(each.key)), None)
        if control == 0:
            self._write_batch()
            self._control(entries[0])
            return True
        entries = entries[:control]
        if not batch.messages:
            batch.deadline = self._now() + self._limits.time
        if (prepared := self._prepared(entries)) is None:
            self._write_batch()
            return True
        batch.next = prepared.entries[-1].offset + 1
        batch.keys.update([(entry.key, entry.offset) for entry in prepared.entries])
        batch.messages += prepared.messages
        batch.bytes += prepared.bytes
        self.filtered += len(prepared.entries) - len(prepared.messages)
        if not batch.messages or batch.is_full or self._now() >= batch.deadline:
            self._write_batch()
        return True

    def _prepared(self, entries: Sequence[LogEntry]) -> Prepared | None:
        """Return the next messages of the batch. None: first write the ones it has."""
        batch = self._batch
        if batch.messages:
            try:
                return self._prepare(entries)
            except Exception:  # tried again alone: the others need not wait until it succeeds
                return None
        try:
            return self.retry(lambda: self._prepare(entries))
        except SinkError:
            failed = next(each for each in entries if self._prepare.matches(each.key))
            batch.next = failed.offset + 1
            raise

    def _idle(self, is_last: bool) -> bool:
        batch, log = self._batch, self._log
        if log.end > batch.next:
            return True
        if batch.messages:
            wait = batch.deadline - self._now()
            if is_last or wait <= 0 or not log.wait(batch.next, wait):
                self._write_batch()
        elif is_last:
            return False
        else:
            log.wait(batch.next)
        return True

    def _write_batch(self) -> None:
        batch = self._batch
        if batch.messages:
            self._write(batch.messages)
        if batch.keys:
            self._place.acknowledge(batch.next - 1, batch.keys)
            self._patience.forget()
        self._batch = Batch(batch.next, self._limits)

    def _write(self, messages: Sequence[Message]) -> None:
        self._call(lambda: self._sink.write(messages))
        self._place.wrote()
        self.written += len(messages)
        self.letters.breaker.succeed(len(messages))

    # One at a time

    def _deliver_singly(self, entries: Sequence[LogEntry]) -> None:
        for entry in entries:
            if self._left.is_set() or self._is_passed_over:
                return
            # Compaction may have removed the last one.
            if not self.letters.held and entry.offset > self.single_until:
                self.single_until = self._batch.next - 1
                return
            if is_control_key(entry.key):
                self._release()
                self._control(entry)
                continue
            is_written = self._deliver_one(entry)
            if is_written and self._patience.may_try_again(self.letters.offsets):
                self.single_until = max(self.single_until, entry.offset)
                self._begin_again()
                return
            self._batch.next = entry.offset + 1
            self._pending[entry.key] = entry.offset
            if is_written or not self.letters.held:
                self._release()
            else:
                self._place.see(entry.offset)

    def _deliver_one(self, entry: LogEntry) -> bool:
        """Write one message, or hold its letter. Return whether the sink has written it."""
        try:
            messages = self.retry(lambda: self._prepare([entry])).messages
            if messages:
                self._write(messages)
        except SinkError as error:
            if not self._may_be_dead(error):
                raise
            message = self._prepare.message(entry)
            logger.warning("sink %r: %r is refused: %s", self._name, message, error)
            self.letters.hold(message, error)
            return False
        self.filtered += not messages
        return bool(messages)

    def _release(self) -> None:
        """Write the held letters, and acknowledge everything up to here."""
        offsets = self.letters.release()
        if self._pending:
            keys, self._pending = self._pending, {}
            missed = offsets[-1] if offsets else None
            self._place.acknowledge(self._batch.next - 1, keys, missed)
            self._patience.forget()

    def _may_be_dead(self, error: SinkError) -> bool:
        """Return whether a message is at fault, and there is a file for it."""
        is_of_message = not error.transient and not isinstance(error, TargetError)
        return is_of_message and self.letters.file is not None

    # Copies

    def _control(self, entry: LogEntry) -> None:
        record = decode_record(entry.data)
        found = content(entry.offset, entry.timestamp, entry.key, record, self._log.created)
        keys = {entry.key: entry.offset}
        match found:
            case CopyBegins(source, generation):
                self._call(lambda: self._sink.begin_copy(generation, source), at_copy=True)
                logger.info("sink %r: a copy of %s begins", self._name, source)
            case CopyEnds(source, generation):
                assert record.copy is not None
                is_whole = self._end_copy(generation, source, record.copy)
                keys[not_whole_key(source)] = -1 if is_whole else entry.offset
        self._place.acknowledge(entry.offset, keys)
        self._batch = Batch(entry.offset + 1, self._limits)

    def _end_copy(self, generation: int, source: str, begin: int) -> bool:
        """Return whether the copy is whole. ``begin``: offset of its entry ``reset``."""
        if self._place.end_copy(source, begin):
            self._call(lambda: self._sink.end_copy(generation, source), at_copy=True)
            self._place.wrote()  # also if it had no message for this sink
            logger.info("sink %r: the copy of %s is complete", self._name, source)
            return True
        if isinstance(sink := self._sink, Abandoning):
            self._call(lambda: sink.abandon_copy(generation, source), at_copy=True)
        if not self._place.is_followed(begin):
            logger.warning(
                "sink %r: copy not whole: it did not get every message of the copy of %s, so the"
                " end of the copy has removed nothing; mend the reason, stop the pipe, and run"
                " `%s copy %s`", self._name, source, PROGRAM, source,
            )  # fmt: skip
        return False

    def _call(self, call: Callable[[], None], *, at_copy: bool = False) -> None:
        """Call the sink, again and again while it fails for a while."""
        self.is_at_copy = at_copy
        try:
            self.retry(call)
        finally:
            self.is_at_copy = False
        self._worked()

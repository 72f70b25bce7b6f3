"""Operations to be delivered over HTTP, one batch after another to keep their order. No I/O."""

import logging
from collections import deque
from dataclasses import dataclass
from typing import Literal, NamedTuple

from oplogc.http.backoff import Backoff
from oplogc.producers.verdict import Delivered, Invalid, Later, TooLarge, Verdict
from oplogc.wire.errors import BufferFullError, FlushError

Overflow = Literal["block", "raise", "drop_new", "drop_old"]
OVERFLOWS = ("block", "raise", "drop_new", "drop_old")

BATCH_BYTES = 1024 * 1024
_LONGEST_PATIENCE = 64
logger = logging.getLogger("oplogc")


@dataclass
class Counters:
    """``sent = delivered + rejected + dropped + buffered``, once no call is under way."""

    sent: int = 0
    """Well-formed operations handed to ``send``."""
    delivered: int = 0
    """HTTP: durable at the agent. UDP: given to the network, without confirmation."""
    rejected: int = 0
    """HTTP: the agent called them invalid."""
    dropped: int = 0
    """HTTP: no room, and the policy is to drop or raise. UDP: the system refused the datagram."""
    retried: int = 0
    """HTTP: requests repeated after no answer or one with a wait."""
    buffered: int = 0
    """HTTP: waiting, the batch in flight included."""


class _Item(NamedTuple):
    number: int
    raw: bytes


class OperationOutbox:
    """Not thread-safe. The limits of the buffer include the batch in flight."""

    def __init__(
        self, max_operations: int, max_bytes: int, batch_size: int, backoff: Backoff
    ) -> None:
        if min(max_operations, max_bytes, batch_size) < 1:
            raise ValueError("max_buffered, max_buffered_bytes and batch_size must be at least 1")
        self._max_operations = max_operations
        self._max_bytes = max_bytes
        self._batch_size = batch_size
        self._limit = batch_size
        """Operations in the next batch: fewer after an agent refused a batch as too large."""
        self._patience = 1
        """Batches to deliver before the limit doubles. It grows after a doubling too soon."""
        self._delivered_at_limit = 0
        self._backoff = backoff
        self._queue: deque[_Item] = deque()
        self._batch: list[_Item] = []
        self._bytes = 0
        self.counters = Counters()
        self.last = 0
        """The number of the latest operation added. The first is 1."""
        self.trouble: Later | None = None
        """Why the batch in flight has not been delivered yet."""

    def has_room(self, raw: bytes) -> bool:
        return not self.counters.buffered or (
            self.counters.buffered < self._max_operations
            and self._bytes + len(raw) <= self._max_bytes
        )

    def add(self, raw: bytes) -> None:
        self.last += 1
        self._queue.append(_Item(self.last, raw))
        self._bytes += len(raw)
        self.counters.sent += 1
        self.counters.buffered += 1

    def refuse(self, overflow: Overflow) -> None:
        """Count an operation without room. Raises BufferFullError unless the policy is to drop."""
        self.counters.sent += 1
        self.counters.dropped += 1
        if overflow in ("raise", "block"):
            raise BufferFullError(f"the buffer is full ({self.counters.buffered:,} operations)")

    def drop_old_for(self, raw: bytes) -> bool:
        """Drop the oldest, but none in flight, to make room. Return whether there is room now."""
        while self._queue and not self.has_room(raw):
            self._leave(self._queue.popleft())
            self.counters.dropped += 1
        return self.has_room(raw)

    def is_flushed(self, number: int) -> bool:
        """Return whether all operations up to this number are settled or refused."""
        return self.is_settled(number) or (
            self.trouble is not None and self.trouble.status is not None
        )

    def check_flushed(self, number: int) -> None:
        """Raise FlushError unless all operations up to this number are settled."""
        if not self.is_settled(number):
            pending = self.counters.buffered
            reason = self.trouble.reason if self.trouble else "no answer yet"
            raise FlushError(f"{pending:,} operations are not delivered: {reason}", pending)

    def is_settled(self, number: int) -> bool:
        """Whether all operations up to this number are delivered, rejected or dropped."""
        oldest = self._batch or self._queue
        return not oldest or oldest[0].number > number

    def batch(self) -> list[bytes]:
        """Return the batch to send: the same until ``apply`` settles it. Empty: none."""
        if not self._batch:
            size = 0
            while self._queue and len(self._batch) < self._limit:
                size += len(self._queue[0].raw) + 1
                if self._batch and size > BATCH_BYTES:
                    break
                self._batch.append(self._queue.popleft())
        return [item.raw for item in self._batch]

    def apply(self, verdict: Verdict) -> float:
        """Apply the verdict on the batch. Return the seconds to wait before the next request."""
        match verdict:
            case Delivered():
                self._settle()
            case Invalid(bad):
                self._reject(bad)
            case TooLarge(reason) if len(self._batch) == 1:
                self._reject({0: reason})
                self._limit, self._patience = self._batch_size, 1  # its size was the cause
            case TooLarge():
                self._halve()
            case Later():
                return self._postpone(verdict)
        self.trouble = None
        self._backoff.reset()
        return 0.0

    def _settle(self) -> None:
        for item in self._batch:
            self._leave(item)
        self.counters.delivered += len(self._batch)
        self._batch = []
        if self.trouble:
            logger.info("operations are delivered again")
        if self._limit < self._batch_size:
            self._delivered_at_limit += 1
            if self._delivered_at_limit >= self._patience:
                self._delivered_at_limit = 0
                self._limit = min(self._limit * 2, self._batch_size)

    def _halve(self) -> None:
        half = len(self._batch) // 2
        self._limit = half
        self._delivered_at_limit = 0
        self._patience = min(self._patience * 2, _LONGEST_PATIENCE)
        self._queue.extendleft(reversed(self._batch[half:]))
        self._batch = self._batch[:half]

    def _reject(self, bad: dict[int, str]) -> None:
        first = min(bad)
        logger.warning(
            "the agent rejects %d of %d operations; the first is %r: %s",
            len(bad), len(self._batch), self._batch[first].raw[:200], bad[first],
        )  # fmt: skip
        for line in bad:
            self._leave(self._batch[line])
        self.counters.rejected += len(bad)
        self._batch = [item for line, item in enumerate(self._batch) if line not in bad]

    def _postpone(self, verdict: Later) -> float:
        if not self.trouble or self.trouble.reason != verdict.reason:  # once an episode
            logger.warning(
                "operations wait, %d of them: %s", self.counters.buffered, verdict.reason
            )
        self.trouble = verdict
        self.counters.retried += 1
        return self._backoff.next(verdict.seconds)

    def _leave(self, item: _Item) -> None:
        self._bytes -= len(item.raw)
        self.counters.buffered -= 1

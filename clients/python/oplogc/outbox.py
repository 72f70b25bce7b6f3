"""Operations on their way to an agent over HTTP: the bounded buffer, the batch in flight, what an answer does to them. No I/O.

One batch is in flight at a time, so operations arrive in the order they were sent.
"""

import logging
from collections import deque
from dataclasses import dataclass
from typing import Literal, NamedTuple

from oplogc.backoff import Backoff
from oplogc.errors import BufferFullError, FlushError
from oplogc.verdict import Delivered, Invalid, Later, TooLarge, Verdict

Overflow = Literal["block", "raise", "drop_new", "drop_old"]
OVERFLOWS = ("block", "raise", "drop_new", "drop_old")

BATCH_BYTES = 1024 * 1024
_log = logging.getLogger("oplogc")


@dataclass
class Counters:
    """``sent = delivered + rejected + dropped + buffered``, once no call is under way."""

    sent: int = 0
    """Operations handed to ``send`` that were well-formed."""
    delivered: int = 0
    """HTTP: durable at the agent. UDP: given to the network, from where nothing is known."""
    rejected: int = 0
    """HTTP: the agent called them invalid."""
    dropped: int = 0
    """HTTP: there was no room, and the policy is to drop or raise. UDP: the system did not take the datagram."""
    retried: int = 0
    """HTTP: requests repeated because there was no answer or one that asked to come back."""
    buffered: int = 0
    """HTTP: waiting, the batch in flight included."""


class _Item(NamedTuple):
    number: int
    raw: bytes


class Outbox:
    """Not thread-safe. ``max_operations`` and ``max_bytes`` bound what is held, the batch in flight included."""

    def __init__(self, max_operations: int, max_bytes: int, batch_size: int, backoff: Backoff) -> None:
        if min(max_operations, max_bytes, batch_size) < 1:
            raise ValueError("max_buffered, max_buffered_bytes and batch_size must be at least 1")
        self._max_operations = max_operations
        self._max_bytes = max_bytes
        self._batch_size = batch_size
        self._backoff = backoff
        self._queue: deque[_Item] = deque()
        self._batch: list[_Item] = []
        self._bytes = 0
        self.counters = Counters()
        self.last = 0
        """The number of the latest operation added; they count from 1."""
        self.trouble: Later | None = None
        """Why the batch in flight has not been delivered yet."""

    def has_room(self, raw: bytes) -> bool:
        return not self.counters.buffered or (
            self.counters.buffered < self._max_operations and self._bytes + len(raw) <= self._max_bytes
        )

    def add(self, raw: bytes) -> None:
        self.last += 1
        self._queue.append(_Item(self.last, raw))
        self._bytes += len(raw)
        self.counters.sent += 1
        self.counters.buffered += 1

    def refuse(self, overflow: Overflow) -> None:
        """Count an operation for which there is no room. Raises BufferFullError unless the policy is to drop."""
        self.counters.sent += 1
        self.counters.dropped += 1
        if overflow in ("raise", "block"):
            raise BufferFullError(f"the buffer is full ({self.counters.buffered:,} operations)")

    def drop_old_for(self, raw: bytes) -> bool:
        """Make room by dropping the oldest that are not in flight; whether there is room now."""
        while self._queue and not self.has_room(raw):
            self._leave(self._queue.popleft())
            self.counters.dropped += 1
        return self.has_room(raw)

    def is_flushed(self, number: int) -> bool:
        """Whether waiting for all operations up to this number is over: they are settled, or the agent refuses them."""
        return self._is_settled(number) or (self.trouble is not None and self.trouble.status is not None)

    def check_flushed(self, number: int) -> None:
        """Raises FlushError unless all operations up to this number are delivered, rejected or dropped."""
        if not self._is_settled(number):
            pending = self.counters.buffered
            reason = self.trouble.reason if self.trouble else "no answer yet"
            raise FlushError(f"{pending:,} operations are not delivered: {reason}", pending)

    def batch(self) -> list[bytes]:
        """What to send now: the same until ``apply`` settles it. Empty when there is nothing."""
        if not self._batch:
            size = 0
            while self._queue and len(self._batch) < self._batch_size:
                size += len(self._queue[0].raw) + 1
                if self._batch and size > BATCH_BYTES:
                    break
                self._batch.append(self._queue.popleft())
        return [item.raw for item in self._batch]

    def apply(self, verdict: Verdict) -> float:
        """Do what an answer to ``batch`` calls for; seconds to wait before the next request."""
        match verdict:
            case Delivered():
                self._settle(self._batch)
                self._batch = []
            case Invalid(bad):
                self._reject(bad)
            case TooLarge(reason) if len(self._batch) == 1:
                self._reject({0: reason})
            case TooLarge():
                half = len(self._batch) // 2
                self._batch_size = half
                self._queue.extendleft(reversed(self._batch[half:]))
                self._batch = self._batch[:half]
            case Later():
                return self._postpone(verdict)
        self.trouble = None
        self._backoff.reset()
        return 0.0

    def _is_settled(self, number: int) -> bool:
        oldest = self._batch or self._queue
        return not oldest or oldest[0].number > number

    def _settle(self, items: list[_Item]) -> None:
        for item in items:
            self._leave(item)
        self.counters.delivered += len(items)
        if self.trouble:
            _log.info("operations are delivered again")

    def _reject(self, bad: dict[int, str]) -> None:
        for line, reason in bad.items():
            _log.warning("the agent refuses %r: %s", self._batch[line].raw[:200], reason)
            self._leave(self._batch[line])
        self.counters.rejected += len(bad)
        self._batch = [item for line, item in enumerate(self._batch) if line not in bad]

    def _postpone(self, verdict: Later) -> float:
        if not self.trouble or self.trouble.reason != verdict.reason:  # once an episode
            _log.warning("operations wait, %d of them: %s", self.counters.buffered, verdict.reason)
        self.trouble = verdict
        self.counters.retried += 1
        return self._backoff.next(verdict.seconds)

    def _leave(self, item: _Item) -> None:
        self._bytes -= len(item.raw)
        self.counters.buffered -= 1

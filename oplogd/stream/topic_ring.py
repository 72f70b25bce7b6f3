"""The ring of a topic: messages leave it as soon as they expire. No I/O."""

import heapq
from collections.abc import Callable, Iterable
from typing import Any

from oplogd.event_id import Mark
from oplogd.message_id import MessageId
from oplogd.stream.postings import Index
from oplogd.stream.ring import Ring
from oplogd.stream.router import MessageRouter, message_data
from oplogd.stream.view import Slices, Waiter

_ROUTER = MessageRouter()

# Bounded by the bytes of all topic rings together, see ``Feeds``.
_UNBOUNDED = 1 << 62

_FEW = 64


class SharedParts:
    """Parts that all topic rings of an agent share. No message has postings."""

    def __init__(self, wake: Callable[[Iterable[Waiter]], None], clock: Callable[[], int]) -> None:
        self.wake = wake
        # Returns ms since 1970.
        self.clock = clock
        self.slices = Slices()
        self.index = Index()


class TopicRing(Ring):
    """``ttl``: time to live of the topic in seconds; None while it is not known.

    A message can be read until its time to live, or its own, has passed; so do the stores.
    """

    def __init__(self, shared: SharedParts, ttl: int | None) -> None:
        super().__init__(
            _ROUTER,
            _UNBOUNDED,
            _UNBOUNDED,
            shared.wake,
            slices=shared.slices,
            index=shared.index,
        )
        self._clock = shared.clock
        self._ttl = ttl
        # Time at which the next entry expires, in ms.
        self._due_ms = _UNBOUNDED
        # Nobody may read entries up to this offset, even if the time to live grows.
        self._gone = 0
        # The entries with an own time to live: its end and the offset. None: there are none.
        self._own: list[tuple[int, int]] | None = None

    @property
    def ttl(self) -> int | None:
        return self._ttl

    @ttl.setter
    def ttl(self, seconds: int) -> None:
        """Set the time to live. What has expired by the old one stays expired."""
        self.expire()
        self._ttl = seconds
        self._set_due()

    def restart(self, head: Mark) -> None:
        super().restart(head)
        self._gone = 0
        self._own = None
        self._set_due()

    def append(self, entries: Iterable[Any]) -> None:
        entries = list(entries)
        super().append(entries)
        for entry in entries:
            if entry.expires_ms:
                if self._own is None:
                    self._own = []
                heapq.heappush(self._own, (entry.expires_ms, entry.offset))
        self._forget_dropped()
        self._set_due()

    def expire(self) -> None:
        """Drop entries older than the topic's time to live; void those past their own."""
        if self._due_ms == _UNBOUNDED:
            return
        now = self._clock()
        if now < self._due_ms:
            return
        window = self.window
        if self._ttl is not None:
            while len(window) and self._expiry_of(window.base + 1) < now:
                self.drop()
                self._gone = window.base
        own = self._own
        while own and own[0][0] < now:
            self.void(heapq.heappop(own)[1])
        self._set_due()

    def forget(self, offset: int) -> None:
        """Drop the entries up to ``offset``: nobody may read them any more."""
        window = self.window
        while len(window) and window.base < offset:
            self.drop()
        self._gone = max(self._gone, offset)
        self._set_due()

    def reaches_the_front(self) -> bool:
        """Return whether nobody can read an entry older than the ring's."""
        base = self.window.base_mark
        if self._ttl is not None and base.ms + self._ttl * 1000 < self._clock():
            self._gone = base.offset
        return base.offset <= self._gone

    def messages_after(
        self, ms: int, sequence: int, limit: int, max_bytes: int
    ) -> list[tuple[MessageId, str]] | None:
        """Return the messages past a time and sequence: at most ``limit``, and at least one.

        ``max_bytes``: bound of their blocks together. None: some of them may have left the ring.
        """
        window = self.window
        first = window.after_time(ms, sequence)
        if first is None:
            return None
        messages: list[tuple[MessageId, str]] = []
        size = 0
        for index in range(first, window.end):
            if frame := window.frames[index]:
                size += len(frame)
                if messages and size > max_bytes:
                    break
                mark = window.mark(index)
                messages.append((MessageId(mark.ms, mark.sequence), message_data(frame)))
                if len(messages) == limit:
                    break
        return messages

    def _forget_dropped(self) -> None:
        """Keep the heap about as small as the window."""
        if self._own and len(self._own) > 2 * len(self.window) + _FEW:
            self._own = [each for each in self._own if each[1] > self.base]
            heapq.heapify(self._own)

    def _expiry_of(self, offset: int) -> int:
        """Return the time until which the entry can be read by the topic's time to live."""
        assert self._ttl is not None
        return self.window.times[self.window.index(offset)] + self._ttl * 1000

    def _set_due(self) -> None:
        window = self.window
        due = _UNBOUNDED
        if self._ttl is not None and len(window):
            due = self._expiry_of(window.base + 1) + 1
        if self._own:
            due = min(due, self._own[0][0] + 1)
        self._due_ms = due

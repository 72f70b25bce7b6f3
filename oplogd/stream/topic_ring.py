"""The ring of a topic: messages leave it as soon as they expire. No I/O."""

import heapq
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from oplogd.event_id import Mark
from oplogd.isolation import EntryKind, Reading, reading
from oplogd.message_id import MessageId
from oplogd.store.topics import TopicEntry
from oplogd.stream.committed_view import CommittedView
from oplogd.stream.filters import Filter
from oplogd.stream.postings import Index
from oplogd.stream.ring import Ring
from oplogd.stream.router import MessageRouter, message_data
from oplogd.stream.view import Slices, View, Waiter
from oplogd.transaction import Isolation, decode_marker

_ROUTER = MessageRouter()

# Bounded by the bytes of all topic rings together, see ``Feeds``.
_UNBOUNDED = 1 << 62

_FEW = 64

_MESSAGE = EntryKind.MESSAGE.value
_COMMITTED = Filter(committed=True)
_NO_COMMITS: Mapping[int, bytes] = MappingProxyType({})


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

    @property
    def has_committed_readers(self) -> bool:
        return _COMMITTED in self.views

    def append(self, entries: Iterable[Any], commits: Mapping[int, bytes] = _NO_COMMITS) -> None:
        """See ``Ring.append``. ``commits``: the blocks of the records of some commits, by offset.

        The records of other commits must be read from the store.
        """
        entries = list(entries)
        super().append(entries)
        for entry in entries:
            if entry.event != _MESSAGE:
                self._substitute(entry, commits)
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
        self, ms: int, sequence: int, limit: int, max_bytes: int, *, committed: bool = False
    ) -> list[tuple[MessageId, str]] | None:
        """Return the messages past a time and sequence: at most ``limit``, and at least one.

        ``max_bytes``: bound of their blocks together. None: some of them may have left the ring, or
        are records of a commit, for a committed reader.
        """
        window = self.window
        substitutes = window.substitutes if committed else None
        first = window.after_time(ms, sequence)
        if first is None:
            return None
        messages: list[tuple[MessageId, str]] = []
        size = 0
        for index in range(first, window.end):
            if substitutes is not None:
                at = substitutes.at(window.mark(index).offset)
                if at is not None and substitutes.frames[at] != b"":
                    return None
                if at is not None:
                    continue
            if frame := window.frames[index]:
                size += len(frame)
                if messages and size > max_bytes:
                    break
                mark = window.mark(index)
                messages.append((MessageId(mark.ms, mark.sequence), message_data(frame)))
                if len(messages) == limit:
                    break
        return messages

    def may_be_commit(self, ms: int, sequence: int) -> bool:
        """Return whether the entry with this time and sequence may be a commit with records."""
        window, substitutes = self.window, self.window.substitutes
        base = window.base_mark
        if (base.ms, base.sequence) == (ms, sequence):
            return base.offset > 0
        past = window.after_time(ms, sequence)
        if past is None or past == window.after(base.offset):
            return past is None
        mark = window.mark(past - 1)
        at = substitutes.at(mark.offset) if substitutes is not None else None
        if substitutes is None or at is None or (mark.ms, mark.sequence) != (ms, sequence):
            return False
        return substitutes.frames[at] != b""

    def _new_view(self, filter_: Filter) -> View:
        if filter_.committed:
            return CommittedView(self, filter_, self.index)
        return super()._new_view(filter_)

    def _substitute(self, entry: TopicEntry, commits: Mapping[int, bytes]) -> None:
        """Set the frame for committed readers of an entry that is not a message."""
        how = reading(entry.event, Isolation.READ_COMMITTED)
        if how is Reading.EXPAND:
            if records := decode_marker(entry.data).records:
                self.window.substitute(entry.offset, commits.get(entry.offset), records)
        elif reading(entry.event, Isolation.READ_UNCOMMITTED) is not how:
            self.window.substitute(entry.offset, b"", 0)

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

"""The ring of a topic: messages leave it as soon as they expire. No I/O."""

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from oplogd.clock.ages import MAX_LEAD_MS, Ages
from oplogd.model.event_id import Mark
from oplogd.model.isolation import EntryKind, Reading, reading
from oplogd.model.pointer import decided_by, decode_voided
from oplogd.model.transaction import Isolation, decode_marker
from oplogd.store.topic_bounds import Repaired
from oplogd.store.topics import TopicEntry
from oplogd.stream.ring.cuts import Cuts
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.frames import message_frame, route_message
from oplogd.stream.ring.index import Index
from oplogd.stream.ring.postings import Waiter
from oplogd.stream.ring.ring import Ring
from oplogd.stream.ring.topic_view import ShardView, TopicView
from oplogd.stream.ring.view import Slices, View

# Bounded by the bytes of all topic rings together, see ``Feeds``.
_UNBOUNDED = 1 << 62

_FEW = 64

# Entries changed by rollbacks and decisions in one turn of the event loop: some milliseconds.
_MOST_CHANGED = 10_000

_MESSAGE = EntryKind.MESSAGE.value
_VOID = EntryKind.VOID.value
# The blocks of an entry's records by its offset.
Blocks = Mapping[int, bytes]
_NO_BLOCKS: Blocks = MappingProxyType({})

# Kinds whose records a reader expands, by whether there are committed readers.
_PUBLISHES = frozenset({EntryKind.PUBLISH})
_EXPANDING = frozenset({EntryKind.PUBLISH, EntryKind.COMMIT})
_NONE: frozenset[EntryKind] = frozenset()


@dataclass(frozen=True, slots=True)
class SharedParts:
    """Parts shared by all topic rings of an agent.

    ``clock``: returns ms since 1970. ``index``: of rings without readers of shards.
    """

    wake: Callable[[Iterable[Waiter]], None]
    clock: Callable[[], int]
    ages: Callable[[], Ages] = Ages
    slices: Slices = field(default_factory=Slices)
    index: Index = field(default_factory=Index)
    cuts: Cuts = field(default_factory=Cuts)


class TopicRing(Ring):
    """``ttl``: time to live of the topic in seconds; None while it is not known."""

    def __init__(self, shared: SharedParts, ttl: int | None) -> None:
        super().__init__(
            route_message,
            _UNBOUNDED,
            _UNBOUNDED,
            shared.wake,
            slices=shared.slices,
            index=shared.index,
            has_sequences=True,
        )
        self._shared = shared
        self.clock = shared.clock
        self._now_ages = shared.ages
        # The dates of the entries here follow from these ages.
        self._ages = shared.ages()
        self._ttl = ttl
        # Time at which the next entry expires, in ms.
        self._due_ms = _UNBOUNDED
        # Entries up to this offset are unreadable, even if the time to live grows.
        self._gone = 0
        # The entries with an own time to live: its end and the offset.
        self._own: list[tuple[int, int]] = []
        # The last time by which entries were hidden; 0: none was.
        self._hidden_ms = 0
        # See ``TopicBounds``.
        self.repaired: Repaired = ()
        # Entries still to be changed by the rollbacks and decisions of one ``append``.
        self._changes_left = 0
        # Number of views of committed readers.
        self._committed = 0
        # When entries were written whose times do not tell it, by offset.
        self._written: dict[int, int] = {}

    @property
    def ttl(self) -> int | None:
        return self._ttl

    @ttl.setter
    def ttl(self, seconds: int) -> None:
        """Set the time to live. Expired entries stay expired."""
        self.expire()
        self._ttl = seconds
        self._set_due()

    def restart(self, head: Mark) -> None:
        super().restart(head)
        self._gone = self._hidden_ms = 0
        self._own.clear()
        self._written.clear()
        self._set_due()

    @property
    def expanding(self) -> frozenset[EntryKind]:
        """The kinds of entries expanded by its readers."""
        if self._committed:
            return _EXPANDING
        return _PUBLISHES if self.views else _NONE

    def _new_view(self, filter_: Filter) -> View:
        shared = self._shared
        if filter_.shard is None:
            view: View = TopicView(self, filter_, self.index)
        else:
            if self.index is shared.index:
                self.index = Index()
            view = ShardView(self, filter_, self.index, shared.cuts)
        self._committed += filter_.committed
        return view

    def _drop_view(self, view: View) -> None:
        super()._drop_view(view)
        self._committed -= view.filter.committed

    def append(self, entries: Iterable[Any], blocks: Blocks = _NO_BLOCKS) -> None:
        """See ``Ring.append``. ``blocks``: of the records of some entries; others are not held."""
        entries = list(entries)
        self._compare_ages()
        self._changes_left = _MOST_CHANGED
        super().append(entries)
        for entry in entries:
            if entry.event != _MESSAGE:
                self._differ(entry, blocks)
            if entry.written_ms:
                self._written[entry.offset] = entry.written_ms
            if entry.expires_ms:
                heapq.heappush(self._own, (entry.expires_ms, entry.offset))
        # The heap and the tables by offset stay about as small as the window.
        if len(self._written) > 2 * len(self.window) + _FEW:
            self._written = {each: ms for each, ms in self._written.items() if each > self.base}
        if len(self._own) > 2 * len(self.window) + _FEW:
            self._own = [each for each in self._own if each[1] > self.base]
            heapq.heapify(self._own)
        self._set_due()
        voided = [decode_voided(entry.data) for entry in entries if entry.event == _VOID]
        is_gap = any(each is not None and each.is_gap for each in voided)
        if is_gap or self._changes_left < 0:
            # Consumers behind the gap must learn of it: all of them ask where they stand. If there
            # was too much to change, they read it from the store.
            self.restart(self.head)

    def _compare_ages(self) -> None:
        """Begin again at the head if the clock has stepped: then entries have other dates."""
        ages = self._now_ages()
        if ages is not self._ages and ages != self._ages:  # an equal one is mostly the same
            self._ages = ages
            self.restart(self.head)

    def void(self, offset: int) -> None:
        undecided = self.window.undecided
        pointer = undecided.pointers.get(offset) if undecided is not None else None
        super().void(offset)
        if pointer is not None:
            self._end_hold(pointer)

    def expire(self) -> None:
        """Drop and void expired entries. Begin again at the head if the clock has stepped."""
        if self._due_ms == _UNBOUNDED and not self._hidden_ms:
            return
        now = self.clock()
        self._compare_ages()
        if now < self._hidden_ms or (self._written and self.head.ms <= now + MAX_LEAD_MS):
            self.restart(self.head)
        if now < self._due_ms:
            return
        self._hidden_ms = now
        window = self.window
        if self._ttl is not None:
            while len(window) and self._expiry_of(window.base + 1) < now:
                self.drop()
                self._gone = window.base
        own = self._own
        while own and own[0][0] < now:
            self.void(heapq.heappop(own)[1])
        self._set_due()

    def has_expired(self, entry: TopicEntry) -> bool:
        """See ``Ring.has_expired``."""
        now = self.clock()
        return (
            (entry.offset <= self._gone and now >= self._hidden_ms)
            or 0 < entry.expires_ms < now
            or (self._ttl is not None and (entry.written_ms or entry.ms) + self._ttl * 1000 < now)
        )

    def forget(self, offset: int) -> None:
        """Drop the entries up to ``offset``: they are unreadable."""
        window = self.window
        while len(window) and window.base < offset:
            self.drop()
        self._gone = max(self._gone, offset)
        self._hidden_ms = max(self._hidden_ms, self.clock())
        self._set_due()

    def reaches_the_front(self) -> bool:
        """Return whether no entry older than the ring's is readable."""
        base = self.window.base_mark
        now = self.clock()
        if self._ttl is not None and base.ms < self._ages.oldest(now - self._ttl * 1000):
            self._gone = base.offset
            self._hidden_ms = max(self._hidden_ms, now)
        return base.offset <= self._gone

    def _differ(self, entry: TopicEntry, blocks: Blocks) -> None:
        """Take over an entry that is not the same message for all readers."""
        window, offset = self.window, entry.offset
        kind, pointer = entry.event, entry.pointer
        if kind == EntryKind.DIRECT and pointer is not None:
            window.hold(offset, pointer)
        elif kind == EntryKind.PUBLISH and pointer is not None:
            window.hold_records(
                offset, pointer, blocks.get(offset), decode_marker(entry.data).records
            )
        elif kind == EntryKind.VOID:
            self._hidden_ms = max(self._hidden_ms, self.clock())  # the store may have hidden it
            self._roll_back(entry.data)
        else:
            self._substitute(entry, blocks)
            if decided := decided_by(kind, entry.data):
                undecided = window.undecided
                if undecided is not None and self._may_change(undecided.count(decided[0])):
                    window.decide(decided[0], committed=decided[1])
                self._end_hold(decided[0])

    def _roll_back(self, data: str) -> None:
        """Void the entries voided in the store by a rollback."""
        voided = decode_voided(data)
        if voided is None:
            return
        for first, count in voided.runs:
            offsets = range(max(first, self.base + 1), min(first + count, self.head.offset + 1))
            if self._may_change(len(offsets)):
                for offset in offsets:
                    self.void(offset)
        self._end_hold(int(voided.txn))

    def _may_change(self, count: int) -> bool:
        """Count changes of entries. False: with these it is too many, the ring begins anew."""
        self._changes_left -= count
        return self._changes_left >= 0

    def _end_hold(self, pointer: int) -> None:
        """Wake the consumers waiting for a pointer: something has happened to it."""
        due: list[Waiter] = []
        self.holds.end(pointer, due)
        if due:
            self.wake(due)

    def _substitute(self, entry: TopicEntry, blocks: Blocks) -> None:
        """Set the frame for committed readers of an entry of a transaction."""
        how = reading(entry.event, Isolation.READ_COMMITTED)
        if how is Reading.EXPAND:
            if records := decode_marker(entry.data).records:
                self.window.substitute(entry.offset, blocks.get(entry.offset), records)
        elif reading(entry.event, Isolation.READ_UNCOMMITTED) is not how:
            frame = message_frame(entry) if how is Reading.PASS else b""
            self.window.substitute(entry.offset, frame, 1 if frame else 0)

    def _expiry_of(self, offset: int) -> int:
        """Return the time until which the entry can be read by the topic's time to live."""
        assert self._ttl is not None
        ms = self._written.get(offset) or self.window.times[self.window.index(offset)]
        return ms + self._ttl * 1000

    def _set_due(self) -> None:
        window = self.window
        due = _UNBOUNDED
        if self._ttl is not None and len(window):
            due = self._expiry_of(window.base + 1) + 1
        if self._own:
            due = min(due, self._own[0][0] + 1)
        self._due_ms = due

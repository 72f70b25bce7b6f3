"""Common parts of a consumer's phases, and of its log: feed and bridge.

A consumer is in one of four phases. It replicates states (``replication``). It reads the log from
the store because the ring has dropped its next entry (``catch_up``). It reads the records of an
entry from the store (``expansion``). Or it reads the ring (``live``). A phase keeps its progress in
fields. ``next_step`` may raise StoreUnavailableError; then call it again.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

from oplogd.model.event_id import Mark
from oplogd.model.names import OPLOG, TopicName
from oplogd.shared.tally import Tally, tally
from oplogd.store.topics import TopicLog
from oplogd.stream.phases.record_pages import RecordPages
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.frames import checkpoint_frame
from oplogd.stream.ring.holds import Hold
from oplogd.stream.ring.ring import Ring
from oplogd.stream.ring.view import View

# Pages of states, and pages of entries, read at a time for all consumers of an agent. Each costs
# the event loop a millisecond: more at once would delay live consumers.
IN_FLIGHT = 2

# Most bytes of one write from the ring, unless a single operation is longer. A write of entries
# from the store is bounded by the store's reads, about 1 MB. With the server's own buffer, a slow
# consumer costs no more.
CHUNK_BYTES = 128 * 1024


class ReadSlots:
    """Limits the pages read at a time for an agent's consumers. First come, first served."""

    def __init__(self) -> None:
        self.states = asyncio.Semaphore(IN_FLIGHT)
        self.entries = asyncio.Semaphore(IN_FLIGHT)


@tally
class StreamCounters(Tally):
    """Totals over all consumers of an agent."""

    events_sent: int
    # Consumers connected so far.
    connections: int
    # Times a consumer continued from the store, because the ring no longer had its next entry.
    to_store: int
    # Times a consumer with a mark in the log got states, because the log does not continue there.
    to_states: int


class Lag(NamedTuple):
    """Operations not yet sent to a consumer, and the time of the oldest in ms since 1970 (0: none).

    Operations outside the filter count, too, if memory cannot tell them apart.
    """

    operations: int
    oldest_ms: int


class Phase(Protocol):
    """A phase of a consumer. ``position``: the consumer can resume from it."""

    __slots__ = ()

    @property
    def name(self) -> Literal["live", "replication"]: ...

    @property
    def position(self) -> str: ...

    def checkpoint(self) -> bytes:
        """Return a checkpoint, empty if none may be sent now."""
        return b""

    def lag(self) -> Lag: ...

    def is_behind(self) -> bool:
        """Return whether the ring may hold an entry that this consumer still has to get."""
        return False


class Step(NamedTuple):
    """The result of asking the store: bytes to send, maybe none, and the next phase."""

    chunk: bytes
    phase: Phase


@dataclass(eq=False, slots=True)
class LogPhase:
    """A phase at a ``mark`` in the log: every passing entry up to there was handed out.

    ``epoch``: the ring's epoch in which the mark is valid. ``first_offset``: the first offset of
    the log in that epoch; smaller offsets have no event id. ``hold``: the last one at which the
    consumer had to wait, None if it never had to.
    """

    name: ClassVar[Literal["live"]] = "live"

    subscription: "Subscription"
    mark: Mark
    epoch: int
    first_offset: int = 0
    hold: Hold | None = field(default=None, init=False)
    ring: Ring = field(init=False)
    view: View = field(init=False)

    def __post_init__(self) -> None:
        self.ring = self.subscription.ring
        self.view = self.subscription.view

    @classmethod
    def following(cls, phase: "LogPhase") -> Self:
        """Continue at the mark of another phase."""
        return cls(phase.subscription, phase.mark, phase.epoch, phase.first_offset)

    @property
    def present_hold(self) -> Hold | None:
        """The hold whose end the consumer waits for, None if it waits for none."""
        return None if self.hold is None or self.hold.is_over else self.hold

    @property
    def position(self) -> str:
        return self.subscription.feed.bridge.position(self.mark, self.first_offset)

    def checkpoint(self) -> bytes:
        """Return a checkpoint, empty while the mark is not valid in the ring's epoch.

        Skips the rest of the ring if nothing in it passes the filter.
        """
        ring = self.ring
        if self.epoch != ring.epoch:
            return b""
        if self.view.last <= self.mark.offset < ring.head.offset:
            self.mark = ring.head
        return checkpoint_frame(self.position)

    def lag(self) -> Lag:
        ring, view = self.ring, self.view
        if self.mark.offset >= ring.head.offset:
            return Lag(0, 0)
        if view.covers(self.mark.offset):
            return Lag(*view.remaining(self.mark.offset))
        return self.subscription.lag_after(self.mark)

    def is_behind(self) -> bool:
        """See ``Phase``. Entries behind a hold are not for the consumer yet."""
        ring, view, after = self.ring, self.view, self.mark.offset
        if after >= ring.head.offset or after >= max(view.last, ring.base):
            return False
        return self.present_hold is None and view.held_by(after) is None


@dataclass(eq=False, slots=True)
class LivePhase(LogPhase):
    """The phase at the ring. ``reset``: a block that is due first, usually empty.

    ``greeting``: a checkpoint is due before the first entry.
    """

    greeting: bool = field(default=False, kw_only=True)
    reset: bytes = field(default=b"", kw_only=True)

    def next_chunk(self) -> bytes | None:
        """Return the next bytes from the ring; None if they are not in memory.

        Empty at its head, at a hold, and after a long piece of the ring in which nothing passes.
        """
        ring = self.ring
        if self.epoch != ring.epoch:
            return None
        ring.expire()
        if self.reset:
            reset, self.reset = self.reset, b""
            return reset
        if self.greeting:
            self.greeting = False
            return checkpoint_frame(self.position)
        view, after = self.view, self.mark.offset
        if not view.covers(after) or view.expansion_after(after) is not None:
            return None
        if self.is_at_end():
            return b""
        chunk, count, self.mark = view.take(after, CHUNK_BYTES)
        self.subscription.count(count)
        return chunk

    @property
    def is_done(self) -> bool:
        """Whether the consumer has got everything up to the ring's head."""
        if self.greeting or self.reset or self.epoch != self.ring.epoch:
            return False
        return self.mark.offset >= self.ring.head.offset

    def is_at_end(self) -> bool:
        """Return whether there is nothing for the consumer until it is woken."""
        after = self.mark.offset
        if after >= self.ring.head.offset:
            return True
        pointer = self.view.held_by(after)
        if pointer is None:
            return False
        self.hold = self.ring.holds.of(pointer)
        return True


class Bridge(Protocol):
    """Knows the positions, the entries and the store of a log. Consumers know only marks.

    Coroutines raise StoreUnavailableError, and for deleted topics TopicNotFoundError.
    """

    __slots__ = ()

    async def begin(self, subscription: "Subscription", position: Any, *, greeting: bool) -> Phase:
        """Return the first phase. ``greeting``: a checkpoint is due if the position stays valid."""

    async def resume(self, phase: LogPhase) -> Step:
        """Continue as if the consumer reconnected at the mark: the log was trimmed or replaced."""

    async def read(self, mark: Mark, limit: int) -> Sequence[Any]:
        """Return up to ``limit`` entries past a mark, maybe with a gap before them.

        Raises LogReplacedError if the log does not continue at the mark.
        """

    def may_expand(self, entries: Sequence[Any], filter_: Filter) -> bool:
        """Return whether some entries need more than ``passing``. Only topics have such entries."""
        return False

    def passing(self, entry: Any, filter_: Filter) -> tuple[Mark, bytes]:
        """Return the mark of an entry, and its block; empty if it does not pass the filter."""

    @property
    def log(self) -> TopicLog:
        """The log of a topic. Raises TopicNotFoundError after the topic was deleted."""
        raise AssertionError("the oplog is no topic")

    def position(self, mark: Mark, first_offset: int) -> str:
        """Return the position of a consumer at ``mark``. ``first_offset``: see ``LogPhase``."""


@dataclass(eq=False, slots=True)
class Feed:
    """The ring of one log and the bridge of its consumers. All of them on this agent share it."""

    ring: Ring
    bridge: Bridge
    name: TopicName = OPLOG

    def release(self, view: View) -> None:
        """Undo one call of ``ring.view``."""
        self.ring.release(view)


@dataclass(eq=False, slots=True)
class Subscription:
    """The feed of one consumer's stream, its filter (``view``), and the events sent to it.

    ``replicated_ms``: the largest time that a replication has sent; 0: none has begun.
    """

    feed: Feed
    view: View
    counters: StreamCounters
    read_slots: ReadSlots
    pages: RecordPages
    sent: int = 0
    replicated_ms: int = 0

    @property
    def ring(self) -> Ring:
        return self.feed.ring

    def count(self, events: int) -> None:
        self.sent += events
        self.counters.events_sent += events

    def lag_after(self, mark: Mark) -> Lag:
        """Count all operations past ``mark``."""
        if mark.offset >= self.ring.base:
            return Lag(*self.ring.window.remaining(mark.offset))
        return Lag(self.ring.head.offset - mark.offset, mark.ms)

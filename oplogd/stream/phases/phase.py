"""Common parts of the phases of a consumer, and what they need of its log: its feed and bridge.

A consumer is in one of four phases: it replicates states (``replication``), it reads the log from
the store because the ring no longer holds its next entry (``catch_up``), it reads the records of an
entry from the store (``expansion``), or it reads the ring (``live``). A phase keeps its progress
in fields, so a step that failed because the store is unreachable is repeated by calling it again.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from oplogd.model.event_id import Mark
from oplogd.model.names import OPLOG, TopicName
from oplogd.model.pointer import Decision
from oplogd.store.topics import TopicEntry, TopicRecord
from oplogd.stream.phases.record_pages import RecordPages
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.ring import Ring
from oplogd.stream.ring.view import View

# Pages of states, and pages of entries, that all consumers of an agent read at a time. Each costs
# the event loop a millisecond: more at once would delay the consumers that are live.
IN_FLIGHT = 2


class ReadSlots:
    """Limits how many pages an agent's consumers read at a time; first come, first served."""

    def __init__(self) -> None:
        self.states = asyncio.Semaphore(IN_FLIGHT)
        self.entries = asyncio.Semaphore(IN_FLIGHT)


@dataclass
class StreamCounters:
    """Totals over all consumers of an agent."""

    events_sent: int = 0
    # Times a consumer continued from the store, because the ring no longer had its next entry.
    to_store: int = 0
    # Times a consumer with a mark in the log got states, because the log does not continue there.
    to_states: int = 0


class Lag(NamedTuple):
    """Operations not yet sent to a consumer, and the time of the oldest in ms since 1970 (0: none).

    Counts the operations that pass the filter if memory tells them apart; all operations otherwise.
    """

    operations: int
    oldest_ms: int


class Phase(Protocol):
    """What all phases of a consumer have."""

    @property
    def name(self) -> Literal["live", "replication"]: ...

    @property
    def position(self) -> str:
        """The position from which the consumer can resume."""

    def checkpoint(self) -> bytes:
        """Return a checkpoint, empty if none may be sent now."""

    def lag(self) -> Lag: ...

    def is_behind(self) -> bool:
        """Return whether the ring may hold an entry for this consumer that it was not handed."""


class AtMark(Phase, Protocol):
    """A phase at a mark in the log."""

    subscription: "Subscription"
    mark: Mark

    def confirm(self, epoch: int, first_offset: int) -> None:
        """Note that ``mark`` is valid in ``epoch``."""


class Step(NamedTuple):
    """The result of asking the store: bytes to send, maybe none, and the phase that follows."""

    chunk: bytes
    phase: Phase


class Bridge(Protocol):
    """Knows the positions, the entries and the store of a log; consumers know only marks.

    Coroutines raise StoreUnavailableError; then call them again. After a topic was deleted they
    raise TopicNotFoundError.
    """

    async def begin(self, subscription: "Subscription", position: Any, *, greeting: bool) -> Phase:
        """Return the first phase of a consumer that asks for ``position``; None: behind the head.

        ``greeting``: send a checkpoint first, unless the consumer does not continue there.
        """

    async def resume(self, phase: AtMark) -> Step:
        """Continue as if the consumer reconnected at the phase's mark.

        The log was trimmed past that mark, or another log may have replaced it.
        """

    async def read(self, mark: Mark, limit: int) -> Sequence[Any]:
        """Return up to ``limit`` entries past a mark. The first may lie further on: some are gone.

        Raises LogReplacedError if the log does not continue at the mark.
        """

    def may_expand(self, entries: Sequence[Any], filter_: Filter) -> bool:
        """Return whether ``passing`` does not suffice for these entries."""

    def passing(self, entry: Any, filter_: Filter) -> tuple[Mark, bytes]:
        """Return the mark of an entry, and its block; empty if it does not pass the filter."""

    async def entry_at(self, mark: Mark) -> TopicEntry | None:
        """Return the entry at a mark; None if it has left the log."""

    async def expand(self, entry: TopicEntry, after: int, limit: int) -> Sequence[TopicRecord]:
        """Return records of a COMMIT or PUBLISH entry: see ``TopicLog.expand``."""

    async def decisions(self, pointers: Collection[int]) -> Mapping[int, Decision]:
        """Return the decisions of pointers: see ``TopicLog.decisions``."""

    def position(self, mark: Mark, first_offset: int) -> str:
        """Return the position from which a consumer that is at ``mark`` resumes.

        ``first_offset``: see ``LogPhase`` in ``live``.
        """


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
    """The feed of one consumer's stream, its filter (``view``), and the events sent to it."""

    feed: Feed
    view: View
    counters: StreamCounters
    read_slots: ReadSlots
    pages: RecordPages
    sent: int = 0

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

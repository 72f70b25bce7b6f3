"""Common parts of the phases of a consumer.

A consumer is in one of four phases: it replicates states (``replication``), it reads the log from
the store because the ring no longer holds its next entry (``catch_up``), it reads the records of an
entry from the store (``expansion``), or it reads the ring (``live``). A phase keeps its progress
in fields, so a step that failed because the store is unreachable is repeated by calling it again.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from oplogd.event_id import Mark
from oplogd.stream.feed import Feed
from oplogd.stream.record_pages import RecordPages
from oplogd.stream.ring import Ring
from oplogd.stream.view import View

if TYPE_CHECKING:
    from oplogd.stream.live import LogPhase
    from oplogd.stream.replication import Replication

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


class Step(NamedTuple):
    """The result of asking the store: bytes to send, maybe none, and the phase that follows."""

    chunk: bytes
    phase: "Phase"


Phase: TypeAlias = "LogPhase | Replication"

"""The ends of the log of a topic, and ids that it never had."""

from collections.abc import Sequence
from typing import NamedTuple

from oplogd.clock.ages import MAX_LEAD_MS
from oplogd.model.event_id import Mark

# Stores count in 64 bits, 16 of them for the sequence.
MAX_ID_MS = (1 << 47) - 1

# Spans of ms: see ``TopicBounds``.
Repaired = Sequence[tuple[int, int]]


class TopicBounds(NamedTuple):
    """The ends of a topic's log.

    ``front``: the newest removed entry. All entries past it can be read. With offset ``begin`` none
    is removed; then its time and sequence are past all ids of earlier generations of the name, and
    before all of this one. ``head``: the newest entry; in an empty topic the front. ``at``: the
    last entry at or before the position asked for, at least the front. ``begin``: the offset before
    the first entry of this generation. ``purged``: stamp of the newest entry removed by a forced
    rollback, 0 without one. A reader from before it may lack messages. ``repaired``: spans of ms,
    ends included, with ids from before a repair of times ahead. An id within one is of this log
    only if an entry has it.
    """

    front: Mark
    head: Mark
    at: Mark
    now_ms: int
    begin: int = 0
    purged: int = 0
    repaired: Repaired = ()

    def is_old(self, ms: int, sequence: int) -> bool:
        """Return whether this id is from before a repair. ``at``: the answer for the id."""
        return is_in(ms, self.repaired) and (self.at.ms, self.at.sequence) != (ms, sequence)

    def is_beyond(self, ms: int) -> bool:
        """Return whether no entry of this log ever had an id of this time: see ``is_beyond``."""
        return is_beyond(ms, self.head.ms, self.now_ms)


def is_beyond(ms: int, head_ms: int, now_ms: int) -> bool:
    """Return whether an id of this time is from before a repair of times ahead.

    Later times than MAX_ID_MS are in no id: readers ask with them for later messages.
    """
    return max(head_ms, now_ms) + MAX_LEAD_MS < ms < MAX_ID_MS


def is_in(ms: int, spans: Repaired) -> bool:
    return any(first <= ms <= last for first, last in spans)

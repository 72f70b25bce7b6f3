"""Which events are acknowledged, and the position from which nothing is lost. No I/O."""

import threading
from collections import OrderedDict
from typing import NamedTuple


class _Entry(NamedTuple):
    event_id: str
    acked: bool


class Acks:
    """Events in the order they were handed out. Any thread may call any method.

    ``position`` is the id of the last event before the oldest one that is not acknowledged: a stream resumed there brings
    that one again. In a replication many events share an id, and resuming at it brings all of them again.
    """

    def __init__(self, position: str) -> None:
        self.position = position
        self.unacked = 0
        self._lock = threading.Lock()
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._latest = 0

    def handed_out(self, sequence: int, event_id: str) -> None:
        """``sequence`` ascends from call to call, also to ``passed``."""
        with self._lock:
            self._entries[sequence] = _Entry(event_id, acked=False)
            self._latest = sequence
            self.unacked += 1

    def passed(self, sequence: int, event_id: str) -> None:
        """The stream has reached a position; nobody needs to acknowledge it."""
        with self._lock:
            if not self._entries:
                self.position = event_id
                return
            last = next(reversed(self._entries))
            if self._entries[last].acked:  # what is before it decides: the newer position takes its place
                del self._entries[last]
            self._entries[sequence] = _Entry(event_id, acked=True)

    def ack(self, sequence: int) -> bool:
        """Whether ``position`` moved. An event may be acknowledged twice. Raises ValueError for one never handed out."""
        with self._lock:
            if sequence > self._latest:
                raise ValueError("this event was not handed out by this consumer")
            entry = self._entries.get(sequence)
            if entry is None or entry.acked:
                return False
            self._entries[sequence] = _Entry(entry.event_id, acked=True)
            self.unacked -= 1
            moved = False
            while self._entries:
                oldest = next(iter(self._entries))
                if not self._entries[oldest].acked:
                    break
                self.position = self._entries.pop(oldest).event_id
                moved = True
            return moved

"""Keeps the acknowledgements, and the position from which nothing is lost. No I/O."""

import threading
from dataclasses import dataclass
from typing import Optional


@dataclass(slots=True, eq=False)
class _Unacked:
    passed: str
    """The last id before the next unacknowledged event."""
    earlier: Optional["_Unacked"]
    later: Optional["_Unacked"] = None


class Acks:
    """Acknowledgements of events. Thread-safe. Only unacknowledged events take memory.

    ``position`` is the id of the last event before the oldest unacknowledged one: a stream resumed
    there repeats that event. In a replication many events share an id, and resuming at the id
    repeats them all.
    """

    def __init__(self, position: str) -> None:
        self.position = position
        self._lock = threading.Lock()
        self._unacked: dict[int, _Unacked] = {}
        self._newest: _Unacked | None = None
        self._latest = 0

    @property
    def unacked(self) -> int:
        """Number of unacknowledged events."""
        return len(self._unacked)

    def handed_out(self, sequence: int, event_id: str) -> None:
        """``sequence`` ascends from call to call."""
        with self._lock:
            event = _Unacked(event_id, self._newest)
            if self._newest is not None:
                self._newest.later = event
            self._newest = self._unacked[sequence] = event
            self._latest = sequence

    def passed(self, event_id: str) -> None:
        """Note a position of the stream without an event. It needs no acknowledgement."""
        with self._lock:
            if self._newest is None:
                self.position = event_id
            else:
                self._newest.passed = event_id

    def ack(self, sequence: int) -> bool:
        """Return whether ``position`` moved. Raises ValueError for an event never handed out."""
        with self._lock:
            if sequence > self._latest:
                raise ValueError("this event was not handed out by this consumer")
            event = self._unacked.pop(sequence, None)
            if event is None:
                return False
            earlier, later = event.earlier, event.later
            if later is None:
                self._newest = earlier
            else:
                later.earlier = earlier
            if earlier is None:
                self.position = event.passed
                return True
            earlier.later, earlier.passed = later, event.passed
            return False

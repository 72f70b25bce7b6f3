"""Remembers when the log reached its offsets."""

import threading
import time
from bisect import bisect_right
from collections.abc import Callable

_LIMIT = 4096


class EntryAges:
    """Tells the age of entries, to the interval between two notes. Any thread may call it.

    Entries from before the first note count from it. ``clock``: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._ends: list[int] = []
        self._times: list[float] = []

    def note(self, end: int) -> None:
        """Note the offset behind the newest entry. Never smaller than before."""
        with self._lock:
            if self._ends and self._ends[-1] == end:
                return
            if len(self._ends) == _LIMIT:  # older notes become coarser
                del self._ends[: _LIMIT // 2 : 2], self._times[1 : _LIMIT // 2 + 1 : 2]
            self._ends.append(end)
            self._times.append(self._clock())

    def of(self, offset: int) -> float:
        """Return for how many seconds an entry has been in the log; 0: for less than an interval"""
        with self._lock:
            at = bisect_right(self._ends, offset)
            return self._clock() - self._times[at] if at < len(self._ends) else 0.0

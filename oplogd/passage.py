"""The time from an operation's arrival at this agent until its consumers can be sent it. No I/O.

One operation of each commit is timed, the one that came first, so that the cost does not grow with the number of operations.
The follower brings it back from the store; there it is recognised by its text. Only one operation is timed at a time.
"""

import time
from collections.abc import Callable, Iterable

from oplogd.histogram import Histogram
from oplogd.store import Entry

_LOST_SECONDS = 600.0
"""An operation that the follower has not brought by then will not come: another one is timed."""


class Passage:
    """``seconds``: what was measured so far."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = Histogram()
        self._clock = clock
        self._arrived = 0.0
        self._text: str | None = None

    def begin(self, data: bytes, arrived: float) -> None:
        """The operation with this data is about to be appended. It came at ``arrived``, a monotonic time in seconds."""
        if self._text is None or self._clock() - self._arrived > _LOST_SECONDS:
            self._text = data.decode()
            self._arrived = arrived

    def give_up(self) -> None:
        """The operation takes another way: it went to the spool, or the follower left out a part of the log."""
        self._text = None

    def end(self, entries: Iterable[Entry]) -> None:
        """Consumers can be sent these entries now."""
        text = self._text
        if text is None:
            return
        for entry in entries:
            if entry.data == text:
                self.seconds.observe(self._clock() - self._arrived)
                self._text = None
                return

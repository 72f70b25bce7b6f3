"""The time from an operation's arrival at this agent until it can be sent to consumers. No I/O.

The first operation of a commit is timed, one at a time, so the cost is independent of the number
of operations. The follower recognises the operation by its text.
"""

import time
from collections.abc import Callable, Iterable

from oplogd.store import Entry
from oplogd.watch.histogram import Histogram

# If the follower has not read the operation by then, another operation is timed.
_LOST_SECONDS = 600.0


class LatencyProbe:
    """Measures one operation at a time. ``seconds``: the times measured."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        seconds: Histogram | None = None,
    ) -> None:
        self.seconds = seconds or Histogram()
        self._clock = clock
        self._arrived = 0.0
        self._text: str | None = None

    def begin(self, data: bytes, arrived: float) -> None:
        """Time the operation with this data. It is about to be appended.

        ``arrived``: its arrival, in seconds of the monotonic clock.
        """
        if self._text is None or self._clock() - self._arrived > _LOST_SECONDS:
            self._text = data.decode()
            self._arrived = arrived

    def give_up(self) -> None:
        """Stop timing: the operation went to the spool, or the follower skipped part of the log."""
        self._text = None

    def end(self, entries: Iterable[Entry]) -> None:
        """Note the entries ready to be sent to consumers."""
        text = self._text
        if text is None:
            return
        for entry in entries:
            if entry.data == text:
                self.seconds.observe(self._clock() - self._arrived)
                self._text = None
                return

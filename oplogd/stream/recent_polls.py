"""Polls of topics without a feed: from the second one on, a topic is worth one."""

from collections import OrderedDict
from collections.abc import Callable

# A second poll within this many seconds of a first one creates a feed.
POLL_SECONDS = 10.0


class RecentPolls:
    """The logs polled within POLL_SECONDS, by ``clock``: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Time of the first poll, oldest first.
        self._polled: OrderedDict[int, float] = OrderedDict()

    def add(self, log: int) -> bool:
        """Note a poll. Return whether it is the second one."""
        now, polled = self._clock(), self._polled
        while polled and now - next(iter(polled.values())) > POLL_SECONDS:
            polled.popitem(last=False)
        if log in polled:
            return True
        polled[log] = now
        return False

    def forget(self, log: int) -> None:
        self._polled.pop(log, None)

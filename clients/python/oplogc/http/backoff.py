"""How long to wait before the next attempt."""

import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

BACKOFF = (1.0, 30.0)
"""Seconds of the first and of the longest pause, unless the program gives others."""

LONGEST_RETRY_AFTER = 3600.0
"""Seconds: no agent may keep a client away for longer."""


class Backoff:
    """Pauses in seconds from ``first`` to ``last``. They double, with jitter between clients."""

    def __init__(self, first: float, last: float) -> None:
        if not 0 < first <= last:
            raise ValueError(
                "backoff: two durations in seconds are needed, "
                "the first more than 0 and at most the second"
            )
        self._first = first
        self._last = last
        self._next = first

    def reset(self) -> None:
        self._next = self._first

    def next(self, at_least: float = 0.0) -> float:
        """Return the seconds to wait now. To ``at_least``, of the agent, up to a third is added."""
        own = min(self._last, self._next * random.uniform(1, 2))
        self._next = min(max(self._last / 2, self._first), self._next * 2)
        return max(own, at_least * random.uniform(1, 1.3))


def retry_after(header: str | None) -> float:
    """Return the seconds of a Retry-After header, an hour at most. 0: absent, invalid or past."""
    text = (header or "").strip()
    if text.isascii() and text.isdecimal():
        return min(float(text), LONGEST_RETRY_AFTER)
    try:
        date = parsedate_to_datetime(text)
        wait = (date if date.tzinfo else date.replace(tzinfo=UTC)) - datetime.now(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0.0
    return min(max(0.0, wait.total_seconds()), LONGEST_RETRY_AFTER)

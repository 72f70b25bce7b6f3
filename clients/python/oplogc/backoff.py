"""How long to wait before the next attempt."""

import random


class Backoff:
    """Seconds between ``first`` and ``last``, doubling with each attempt; jitter keeps a thousand clients apart."""

    def __init__(self, first: float, last: float) -> None:
        if not 0 < first <= last:
            raise ValueError(
                "backoff: two durations in seconds are needed, the first more than 0 and at most the second"
            )
        self._first = first
        self._last = last
        self._next = first

    def reset(self) -> None:
        self._next = self._first

    def next(self, at_least: float = 0.0) -> float:
        """Seconds to wait now. ``at_least`` is what the agent asked for; of that up to a third more."""
        own = min(self._last, self._next * random.uniform(1, 2))
        self._next = min(max(self._last / 2, self._first), self._next * 2)
        return max(own, min(at_least, 3600.0) * random.uniform(1, 1.3))


def retry_after(header: str | None) -> float:
    """Seconds from a Retry-After header; 0 where there is none or it is a date."""
    text = (header or "").strip()
    return float(text) if text.isascii() and text.isdecimal() else 0.0

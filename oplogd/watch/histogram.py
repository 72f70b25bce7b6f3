"""A histogram of durations, for metrics. No I/O."""

from bisect import bisect_left
from itertools import accumulate

# Upper bounds for commits, from a fast disk to a wait for a fail-over.
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Histogram:
    """Counts each duration, in seconds, at the smallest of ``bounds`` not below it."""

    __slots__ = ("_counts", "bounds", "sum")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self.bounds = bounds
        self.sum = 0.0
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds

    @property
    def count(self) -> int:
        return sum(self._counts)

    def buckets(self) -> dict[str, int]:
        """Return the number of durations up to each bound. The last, ``+Inf``, counts all."""
        return dict(zip([*map(repr, self.bounds), "+Inf"], accumulate(self._counts), strict=True))

"""A histogram of durations, for metrics. No I/O."""

import ctypes
from bisect import bisect_left
from itertools import accumulate

from oplogd.shared.tally import Tally

# Upper bounds for commits, from a fast disk to a wait for a fail-over.
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_LABELS = (*map(repr, SECONDS), "+Inf")


class Histogram(Tally):
    """Counts each duration, in seconds, at the smallest of SECONDS not below it."""

    _fields_ = (("sum", ctypes.c_double), ("counts", ctypes.c_int64 * len(_LABELS)))

    sum: float
    counts: "ctypes.Array[ctypes.c_int64]"

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.sum += seconds

    @property
    def count(self) -> int:
        return sum(self.counts)

    def buckets(self) -> dict[str, int]:
        """Return the number of durations up to each bound. The last, ``+Inf``, counts all."""
        return dict(zip(_LABELS, accumulate(self.counts), strict=True))

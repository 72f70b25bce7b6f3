"""The pass of a consumer: what lets it read, and for how long. No I/O."""

import random
from collections.abc import Hashable
from typing import NamedTuple

# A stream ends so long before the end of its pass, but at most this part of its life.
_SPREAD_SECONDS = 5.0
_SPREAD_PART = 0.1


class Pass(NamedTuple):
    """``credential``: what let the consumer in; None: everybody may read.

    ``until``: the end, in seconds since 1970; None: it has none. ``life``: its seconds from the
    begin to the end.
    """

    credential: Hashable = None
    until: float | None = None
    life: float = 0.0

    def seconds(self, now: float, tick: float) -> float:
        """Return after how many seconds to end the stream, never after the end of the pass.

        ``now``: in seconds since 1970. ``tick``: how often the end is looked at. The ends of many
        passes that end together are spread.
        """
        if self.until is None:
            return float("inf")
        spread = min(_SPREAD_SECONDS, self.life * _SPREAD_PART)
        soonest = 2 * tick  # a look may be late
        early = random.uniform(soonest, max(soonest, spread))
        return max(0.0, self.until - now - early)


FOR_EVER = Pass()

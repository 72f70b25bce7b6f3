"""Operations per second, for /status."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from oplogd.clock import SYSTEM, Clock

SECONDS = 10


class Rates(NamedTuple):
    """Operations per second, averaged over the last ten seconds."""

    received: float = 0.0
    ingested: float = 0.0
    sent: float = 0.0


class RateMeter:
    """Reads totals once per second. ``totals`` returns them in the order of ``Rates``."""

    def __init__(self, totals: Callable[[], tuple[int, int, int]], clock: Clock = SYSTEM) -> None:
        self.rates = Rates()
        self._totals = totals
        self._clock = clock
        self._history: deque[tuple[float, tuple[int, int, int]]] = deque(maxlen=SECONDS + 1)

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            self.measure()
            await self._clock.sleep(1)

    def measure(self) -> None:
        now, totals = self._clock.monotonic(), self._totals()
        self._history.append((now, totals))
        began, before = self._history[0]
        if now > began:
            pairs = zip(before, totals, strict=True)
            self.rates = Rates(*(round((b - a) / (now - began), 1) for a, b in pairs))

"""Time of tests within one process. It passes only when the test moves it."""

import asyncio
import heapq
import itertools

from oplogd.clock import Clock

START_MS = 1_700_000_000_000


class VirtualClock:
    """``ms``: time of day. ``seconds``: monotonic time. A test may set both.

    A larger ``ms`` says that time has passed, also by the boot clock. A smaller one sets the time
    of day back, as ``jump`` does in both directions.
    """

    def __init__(self, ms: int = START_MS, seconds: float = 1000.0) -> None:
        self._ms = ms
        self.seconds = seconds
        # Seconds that have passed by ``ms`` only.
        self._passed = 0.0
        self._numbers = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Event]] = []

    @property
    def clock(self) -> Clock:
        """The clock of a part whose durations and pauses are virtual, too."""
        return Clock(self.now_ms, self.monotonic, self.boot, self.sleep, self._server_ms)

    @property
    def dates(self) -> Clock:
        """The clock of a part that dates entries by this clock. Its durations are real."""
        return Clock(now_ms=self.now_ms, boot=self.boot, server_ms=self._server_ms)

    @property
    def ms(self) -> int:
        return self._ms

    @ms.setter
    def ms(self, ms: int) -> None:
        self._passed += max(0, ms - self._ms) / 1000
        self._ms = ms

    def jump(self, seconds: float) -> None:
        """Set the time of day. No time passes."""
        self._ms += round(seconds * 1000)

    def now_ms(self) -> int:
        return self._ms

    def boot(self) -> float:
        return self.seconds + self._passed

    def monotonic(self) -> float:
        return self.seconds

    def move(self, seconds: float) -> None:
        """Let time pass. Sleepers whose time has come wake up in the next turn of the loop."""
        self._ms += round(seconds * 1000)
        self.seconds += seconds
        while self._sleepers and self._sleepers[0][0] <= self.seconds:
            heapq.heappop(self._sleepers)[2].set()

    async def sleep(self, seconds: float) -> None:
        """Wait until ``move`` has let this time pass."""
        woken = asyncio.Event()
        heapq.heappush(self._sleepers, (self.seconds + seconds, next(self._numbers), woken))
        await woken.wait()

    def _server_ms(self, told: int) -> int:
        return self._ms

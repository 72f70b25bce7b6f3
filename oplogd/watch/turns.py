"""The CPU time that one turn of the event loop takes, seen by a timer.

A timer that fires late was due in the turn before it. This turn took at least the CPU time since
the last tick minus the interval. The lower bound is reported: at most an interval too little. Busy
neighbours lengthen a turn, but not its CPU time.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable

# Seconds between two ticks. Waking an idle process costs more than the tick itself.
BUSY = 0.02
IDLE = 0.05

# A loop is idle if it works for less than this part of the time.
_IDLE_PART = 0.05

_MINUTE = 60.0


class Turns:
    """Lower bounds in CPU seconds. Times are in seconds of a monotonic clock. No I/O.

    ``longest``: since the start. ``cpu``: CPU time of the thread at the last tick.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self.cpu = 0.0
        self._at = 0.0
        self._interval = IDLE
        # Time and length of turns of the last minute. No later turn was longer.
        self.recent: deque[tuple[float, float]] = deque()

    def begin(self, now: float, cpu: float) -> float:
        """Start to count. Return the seconds until the first tick."""
        self.cpu, self._at = cpu, now
        return self._interval

    def tick(self, now: float, cpu: float) -> float:
        """Note a tick of the timer. Return the seconds until the next tick.

        ``cpu``: CPU seconds of the loop's thread.
        """
        used, passed = cpu - self.cpu, now - self._at
        if (turn := used - self._interval) > 0:
            self.longest = max(self.longest, turn)
            while self.recent and self.recent[-1][1] <= turn:
                self.recent.pop()
            self.recent.append((now, turn))
        self._forget(now)
        self.cpu, self._at = cpu, now
        self._interval = IDLE if used <= passed * _IDLE_PART else BUSY
        return self._interval

    def longest_last_minute(self, now: float) -> float:
        """Return the longest turn of the last minute."""
        self._forget(now)
        return self.recent[0][1] if self.recent else 0.0

    def _forget(self, now: float) -> None:
        while self.recent and self.recent[0][0] < now - _MINUTE:
            self.recent.popleft()


async def watch_turns(
    turns: Turns,
    monotonic: Callable[[], float] = time.monotonic,
    cpu: Callable[[], float] = time.thread_time,
) -> None:
    """Tick until cancelled. A callback, not a task: a task would run a turn after its timer."""
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def tick() -> None:
        nonlocal timer
        timer = loop.call_later(turns.tick(monotonic(), cpu()), tick)

    timer = loop.call_later(turns.begin(monotonic(), cpu()), tick)
    try:
        await loop.create_future()
    finally:
        timer.cancel()

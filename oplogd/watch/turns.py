"""The CPU time that one turn of the event loop takes, seen by a timer.

A timer that fires late was due in the turn before it. This turn took at least the CPU time since
the last tick minus the interval. The lower bound is reported: at most an interval too little. Busy
neighbours lengthen a turn, but not its CPU time.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Self

from oplogd.shared.tally import Tally, tally

# Seconds between two ticks. Waking an idle process costs more than the tick itself.
BUSY = 0.02
IDLE = 0.05

# A loop is idle if it works for less than this part of the time.
_IDLE_PART = 0.05

_MINUTE = 60.0


@tally
class LoopTally(Tally):
    """CPU seconds of the loop's thread at its last tick, and of its longest turn."""

    cpu_seconds: float
    longest_turn_seconds: float

    def include(self, other: Self) -> None:
        longest = max(self.longest_turn_seconds, other.longest_turn_seconds)
        super().include(other)
        self.longest_turn_seconds = longest


class Turns:
    """Lower bounds in CPU seconds. Times are in seconds of a monotonic clock. No I/O.

    ``cpu``: CPU time of the thread at the last tick. ``counted`` may hold figures of an earlier
    process.
    """

    def __init__(self, counted: LoopTally | None = None) -> None:
        self._counted = counted or LoopTally()
        self._cpu_before = self._counted.cpu_seconds
        self.cpu = 0.0
        self._at = 0.0
        self._interval = IDLE
        # Time and length of turns of the last minute. No later turn was longer.
        self.recent: deque[tuple[float, float]] = deque()

    def begin(self, now: float, cpu: float) -> float:
        """Start to count. Return the seconds until the first tick."""
        self._note(now, cpu)
        return self._interval

    def tick(self, now: float, cpu: float) -> float:
        """Note a tick of the timer. Return the seconds until the next tick.

        ``cpu``: CPU seconds of the loop's thread.
        """
        used, passed = cpu - self.cpu, now - self._at
        if (turn := used - self._interval) > 0:
            if turn > self.longest:
                self._counted.longest_turn_seconds = turn
            while self.recent and self.recent[-1][1] <= turn:
                self.recent.pop()
            self.recent.append((now, turn))
        self._forget(now)
        self._note(now, cpu)
        self._interval = IDLE if used <= passed * _IDLE_PART else BUSY
        return self._interval

    @property
    def longest(self) -> float:
        """The longest turn since the start."""
        return self._counted.longest_turn_seconds

    def longest_last_minute(self, now: float) -> float:
        """Return the longest turn of the last minute."""
        self._forget(now)
        return self.recent[0][1] if self.recent else 0.0

    def _note(self, now: float, cpu: float) -> None:
        self.cpu, self._at = cpu, now
        self._counted.cpu_seconds = self._cpu_before + cpu

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

"""The clocks of the system as one value, the guard that compares them, and ages."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


def now_ms() -> int:
    """Return the time of day in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def boot_seconds() -> float:
    """Return a monotonic time including sleep of the machine, on systems with one."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


@dataclass(frozen=True, slots=True)
class Clock:
    """Functions to tell the time, and one to wait. Tests replace them by their own."""

    # Time of day in milliseconds since 1970. It may jump.
    now_ms: Callable[[], int] = now_ms

    # Seconds that never go back.
    monotonic: Callable[[], float] = time.monotonic

    # The same, but they also count while the machine sleeps.
    boot: Callable[[], float] = boot_seconds

    # Waits for seconds of ``monotonic``.
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    # Returns the time of day of another server from the one in its answer, in milliseconds.
    server_ms: Callable[[int], int] = int


SYSTEM = Clock()

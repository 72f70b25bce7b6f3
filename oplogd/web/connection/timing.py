"""The times of a connection: one timer, and the deadline of a body."""

import asyncio
from collections.abc import Callable
from typing import Literal

# Bytes per second a body must reach on average once ``--body-timeout`` is over.
MIN_BODY_RATE = 4096

TimerPurpose = Literal["headers", "body", "end"]


class Timer:
    """One timer, started for one purpose at a time. ``on_timeout`` is called with the purpose."""

    __slots__ = ("_handle", "_loop", "_on_timeout", "_purpose")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_timeout: Callable[[TimerPurpose], None]
    ) -> None:
        self._loop = loop
        self._on_timeout = on_timeout
        self._handle: asyncio.TimerHandle | None = None
        self._purpose: TimerPurpose | None = None

    def start(self, purpose: TimerPurpose, seconds: float) -> None:
        """Start the timer, unless it already runs for this purpose."""
        if purpose == self._purpose:
            return
        self.stop()
        self._purpose = purpose
        self._handle = self._loop.call_later(seconds, self._fire, purpose)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._purpose = None

    def end(self) -> None:
        """Stop it for good. Its connection is no longer in a cycle of references."""
        self.stop()
        self._on_timeout = _ignore

    def _fire(self, purpose: TimerPurpose) -> None:
        self._handle = self._purpose = None
        self._on_timeout(purpose)


class IdleTimer:
    """A timer that is restarted and cancelled by each request of a connection.

    The timer of the event loop stays: it looks at its end whether it is over.
    """

    __slots__ = ("_due", "_handle", "_loop", "_on_timeout", "_seconds")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float, on_timeout: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._on_timeout = on_timeout
        self._handle: asyncio.TimerHandle | None = None
        # None: it is cancelled.
        self._due: float | None = None

    def restart(self) -> None:
        self._due = self._loop.time() + self._seconds
        if self._handle is None:
            self._handle = self._loop.call_at(self._due, self._look)

    def cancel(self) -> None:
        self._due = None

    def end(self) -> None:
        """Cancel it for good, with the timer of the event loop. See ``Timer.end``."""
        self._due = None
        self._on_timeout = _ignore
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _look(self) -> None:
        self._handle = None
        if self._due is None:
            return
        if self._due > self._loop.time():
            self._handle = self._loop.call_at(self._due, self._look)
        else:
            self._due = None
            self._on_timeout()


class BodyDeadline:
    """Time at which a body is too slow. Every byte moves it, to at most ``seconds`` from now."""

    __slots__ = ("_due", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due = 0.0

    def restart(self, now: float) -> None:
        self._due = now + self._seconds

    def extend(self, now: float, count: int) -> None:
        """Count bytes of the body: each adds its time at MIN_BODY_RATE."""
        self._due = min(self._due + count / MIN_BODY_RATE, now + self._seconds)

    def left(self, now: float) -> float:
        """Return the seconds until the deadline, 0 or less once it is over."""
        return self._due - now


def _ignore(*_: TimerPurpose) -> None:
    """Do nothing: the connection has ended."""

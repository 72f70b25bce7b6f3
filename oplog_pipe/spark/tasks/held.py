"""Sinks and steps that a Python worker keeps open from task to task."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

IDLE_SECONDS = 60.0


class _Closable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=_Closable)


@dataclass
class _Kept:
    """``run``: of the query that made it. ``used``: seconds of a monotonic clock."""

    run: str
    thing: Any
    used: float


class Held:
    """Keeps one thing per place, and closes what no task has used for ``idle`` seconds.

    A worker runs one task at a time.
    """

    def __init__(self, idle: float = IDLE_SECONDS) -> None:
        self._idle = idle
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        self._timer: threading.Timer | None = None

    @contextmanager
    def use(self, place: str, run: str, make: Callable[[], T]) -> Iterator[T]:
        """Yield what an earlier task of this run has left at a place, else a new one.

        After a failure it is closed.
        """
        with self._lock:
            found = self._kept.pop(place, None)
        if found is not None and found.run != run:
            _close(found)
            found = None
        thing: T = make() if found is None else found.thing
        kept = _Kept(run, thing, 0.0)
        try:
            yield thing
        except BaseException:
            _close(kept)
            raise
        with self._lock:
            kept.used = time.monotonic()
            self._kept[place] = kept
            if self._timer is None:
                self._wait()

    def sweep(self) -> None:
        """Close what has been idle for long."""
        oldest = time.monotonic() - self._idle
        with self._lock:
            idle = [place for place, each in self._kept.items() if each.used <= oldest]
            closing = [self._kept.pop(place) for place in idle]
            self._timer = None
            if self._kept:
                self._wait()
        for each in closing:
            _close(each)

    def _wait(self) -> None:
        self._timer = threading.Timer(self._idle, self.sweep)
        self._timer.daemon = True
        self._timer.start()


def _close(kept: _Kept) -> None:
    with suppress(Exception):
        kept.thing.close()


HELD = Held()
"""Of this process."""

"""Attempts that are repeated while no agent and no store answers."""

import sys
import time
from collections.abc import Callable
from typing import TypeVar

from oplog_kit.backoff import Backoff
from oplog_kit.units import rough_duration
from oplog_sync.errors import UnreachableError
from oplogd.errors import StoreUnavailableError

# Seconds between two attempts.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0

_T = TypeVar("_T")


def patiently(
    call: Callable[[], _T],
    retry_for: float,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> _T:
    """Call until it succeeds, for ``retry_for`` seconds while agents or the store do not answer.

    Raises the last UnreachableError or StoreUnavailableError.
    """
    patience = Patience(retry_for, sleep=sleep, clock=clock)
    while True:
        try:
            return call()
        except (UnreachableError, StoreUnavailableError) as error:
            patience.wait(error)


class Patience:
    """Pauses between attempts, up to ``retry_for`` seconds since the last success."""

    def __init__(
        self,
        retry_for: float,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._retry_for = retry_for
        self._sleep = sleep
        self._clock = clock
        self._backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        self._since: float | None = None

    def succeed(self) -> None:
        self._since = None
        self._backoff.reset()

    def wait(self, error: Exception) -> None:
        """Pause before the next attempt. Raises UnreachableError if the time is over."""
        now = self._clock()
        if self._since is None:
            self._since = now
            wait = rough_duration(self._retry_for)
            print(f"oplog: {error}; asking again for {wait} (option retryFor)", file=sys.stderr)
        pause = min(self._backoff.pause, self._since + self._retry_for - now)
        if pause <= 0:
            tried = rough_duration(self._retry_for)
            raise UnreachableError(f"{error}; asked again for {tried} (option retryFor)") from error
        self._sleep(pause)
        self._backoff.grow()

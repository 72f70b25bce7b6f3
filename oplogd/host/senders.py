"""A problem that each sender has in an episode of its own."""

import logging
import time
from collections.abc import Callable

from oplogd.host.logs import Episode
from oplogd.host.networks import units_of

# Episodes of so many addresses are told apart. Those of others that come meanwhile share one.
MAX_ADDRESSES = 100

# Time between two looks for episodes that are over.
_LOOK_SECONDS = 1.0


class SenderEpisodes:
    """Logs a problem once per address and episode.

    ``problem`` is continued by the address. ``quiet``: seconds without an occurrence that end the
    episode of an address. ``count``: all occurrences. Call all methods from one thread.
    """

    def __init__(
        self,
        logger: logging.Logger,
        problem: str,
        *,
        quiet: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.count = 0
        self._logger = logger
        self._problem = problem
        self._quiet = quiet
        self._clock = clock
        self._looked_at = clock()
        self._others = self._episode("other addresses")
        self._episodes: dict[str, Episode] = {}

    def occurred(self, address: str, detail: str, times: int = 1) -> None:
        """Count an occurrence. The first one of an address in an episode is logged."""
        self.count += times
        self._forget_quiet()
        unit, _ = units_of(address)
        if unit not in self._episodes:
            if len(self._episodes) >= MAX_ADDRESSES:
                self._others.occurred(times, detail=f"such as {unit}: {detail}")
                return
            self._episodes[unit] = self._episode(unit)
        self._episodes[unit].occurred(times, detail=detail)

    def ended(self) -> None:
        """Log the end of episodes that were quiet for long enough. Call it after a success."""
        if self._episodes or self._others.active:
            self._forget_quiet()

    def _forget_quiet(self) -> None:
        now = self._clock()
        if now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        self._others.end()
        for unit, episode in list(self._episodes.items()):
            episode.end()
            if not episode.active:
                del self._episodes[unit]

    def _episode(self, address: str) -> Episode:
        problem = f"{self._problem} {address}"
        return Episode(self._logger, problem, quiet=self._quiet, clock=self._clock)

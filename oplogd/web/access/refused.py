"""Passwords that were refused: a count, and one log line per address and episode."""

import logging
from collections.abc import Callable

from oplogd.logs import Episode
from oplogd.web.access.attempts import units_of

# Episodes of so many addresses are told apart. Those of others that come meanwhile share one.
MAX_ADDRESSES = 100

QUIET_SECONDS = 60.0

# Time between two looks for episodes that are over.
_LOOK_SECONDS = 1.0

logger = logging.getLogger("oplogd.password")


class RefusedPasswords:
    """``count``: requests that carried a password and were refused for it.

    ``subject`` names the protected thing in messages. No message holds a password.
    """

    def __init__(self, subject: str, clock: Callable[[], float]) -> None:
        self.count = 0
        self._subject = subject
        self._clock = clock
        self._looked_at = clock()
        self._others = self._episode("other addresses")
        self._episodes: dict[str, Episode] = {}

    def occurred(self, address: str, reason: str) -> None:
        """Count a refusal. The first one of an address in an episode is logged."""
        self.count += 1
        self._forget_quiet()
        unit, _ = units_of(address)
        if unit not in self._episodes:
            if len(self._episodes) >= MAX_ADDRESSES:
                self._others.occurred(detail=f"such as {unit}: {reason}")
                return
            self._episodes[unit] = self._episode(unit)
        self._episodes[unit].occurred(detail=reason)

    def ended(self) -> None:
        """Log the end of episodes that were quiet for QUIET_SECONDS. Call it after a success."""
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
        problem = f"{self._subject}: refusing passwords from {address}"
        return Episode(logger, problem, quiet=QUIET_SECONDS, clock=self._clock)

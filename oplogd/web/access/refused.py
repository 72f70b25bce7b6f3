"""Passwords that were refused: a count, and one log line per address and episode."""

import logging
from collections.abc import Callable

from oplogd.host.senders import SenderEpisodes

QUIET_SECONDS = 60.0

logger = logging.getLogger("oplogd.password")


class RefusedPasswords:
    """``count``: requests that carried a password and were refused for it.

    ``subject`` names the protected thing in messages. No message holds a password.
    """

    def __init__(self, subject: str, clock: Callable[[], float]) -> None:
        self.count = 0
        self._episodes = SenderEpisodes(
            logger, f"{subject}: refusing passwords from", quiet=QUIET_SECONDS, clock=clock
        )

    def occurred(self, address: str, reason: str) -> None:
        """Count a refusal. The first one of an address in an episode is logged."""
        self.count += 1
        self._episodes.occurred(address, reason)

    def ended(self) -> None:
        """Log the end of episodes that were quiet for QUIET_SECONDS. Call it after a success."""
        self._episodes.ended()

"""The workers of an agent: what they share, and the place of one of them."""

import hmac
import secrets
from typing import NamedTuple

from oplogd.shared.journal import Journal
from oplogd.shared.places import SharedPlaces, WorkerPlaces


class Workers:
    """What the workers share. It is made before they are forked, and outlives each of them.

    ``count``: their number, at least 1. More than one need Linux. ``max_clients``: of all workers
    together; one worker alone does not need it.
    """

    def __init__(self, count: int = 1, *, max_clients: int = 10_000) -> None:
        self.count = count
        self._secret = secrets.token_bytes(32)
        self.places = SharedPlaces(count, max_clients) if count > 1 else None
        # The counted attempts of the passwords, by the subject of each.
        self.attempts = (
            {subject: Journal() for subject in ("reading", "writing")} if count > 1 else {}
        )

    def secret_of(self, purpose: str) -> bytes:
        """Return a secret of 32 bytes for a purpose, the same in all workers of this run."""
        return hmac.digest(self._secret, purpose.encode(), "sha256")

    def settle(self, number: int) -> None:
        """Give back what a worker that has died held. Call it before its successor starts."""
        if self.places is not None:
            self.places.clear(number)


class Worker(NamedTuple):
    """The place of one worker. A worker that has died is replaced in the same place.

    ``number``: 0 to ``count`` - 1.
    """

    workers: Workers
    number: int

    @property
    def places(self) -> WorkerPlaces | None:
        """The places of consumers, seen by this worker; None if it is alone."""
        shared = self.workers.places
        return None if shared is None else shared.of(self.number)

    @classmethod
    def alone(cls) -> "Worker":
        """Return the only worker of an agent."""
        return cls(Workers(), 0)

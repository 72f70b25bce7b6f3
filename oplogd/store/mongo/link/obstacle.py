"""The entry in the way of an insert."""

import random

from oplog_kit.backoff import Backoff
from oplogd.errors import StoreUnavailableError
from oplogd.store.mongo.link.link import Link

_JITTER_SECONDS = 0.02
_LAG_JITTER_SECONDS = 0.5


class Obstacle:
    """The last entry that was in the way of an insert.

    The primary has it. A majority may not have it yet, so the head may still be before it.
    """

    def __init__(self, link: Link, majority_seconds: float) -> None:
        self._link = link
        self._majority_seconds = majority_seconds
        self._offset = 0
        self._lags_since: float | None = None
        self._backoff = Backoff(_JITTER_SECONDS, _LAG_JITTER_SECONDS)

    async def met(self, offset: int) -> None:
        self._offset = offset
        await self._link.clock.sleep(random.uniform(0, self._backoff.pause))

    def compare(self, head: int) -> None:
        """Raise StoreUnavailableError if the head has been before the obstacle for too long."""
        if head >= self._offset:
            self._lags_since = None
            self._backoff.reset()
            return
        now = self._link.clock.monotonic()
        self._lags_since = self._lags_since or now
        self._backoff.grow()
        if now - self._lags_since > self._majority_seconds:
            raise StoreUnavailableError(
                f"MongoDB at {self._link.hosts}: no majority of the replica set has what its"
                " primary wrote"
            )

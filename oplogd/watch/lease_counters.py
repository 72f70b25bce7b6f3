"""Counts of leases and fences, as this agent sees them. No I/O."""

import time
from collections.abc import Callable
from typing import NamedTuple

from oplogd.store.leases import Lease


class LeaseCounts(NamedTuple):
    """Figures of this agent. Only ``held`` is no count since the start.

    ``held``: leases whose holder polls this agent. ``terms``: terms with which a holder has begun
    to poll this agent: it acquired or refreshed the lease, or polled another agent before.
    ``stale_publishes``: publishes that were refused because their term was over.
    """

    held: int
    polls: int
    terms: int
    stale_publishes: int


class _Held(NamedTuple):
    term: int
    # In seconds of the clock.
    until: float


class LeaseCounters:
    """Remembers held leases until they expire. ``clock`` returns seconds and never steps back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held: dict[str, _Held] = {}
        self._polls = 0
        self._terms = 0
        self._stale = 0

    @property
    def counts(self) -> LeaseCounts:
        self._drop_expired()
        return LeaseCounts(len(self._held), self._polls, self._terms, self._stale)

    def add_poll(self, holder: str, lease: Lease) -> None:
        """Count the answer to a poll by ``holder``."""
        self._polls += 1
        if lease.holder != holder:
            return
        before = self._held.get(lease.name)
        if before is None:
            self._drop_expired()
        if before is None or before.term != lease.term:
            self._terms += 1
        self._held[lease.name] = _Held(lease.term, self._clock() + lease.left_ms / 1000)

    def add_release(self, name: str) -> None:
        """Forget a lease that its holder has released."""
        self._held.pop(name, None)

    def add_stale_publish(self) -> None:
        self._stale += 1

    def _drop_expired(self) -> None:
        now = self._clock()
        for name in [name for name, held in self._held.items() if held.until <= now]:
            del self._held[name]

"""Counts of leases and fences, as this agent sees them. No I/O."""

import time
from collections.abc import Callable
from typing import NamedTuple

from oplogd.store.leases import Lease


class LeaseCounts(NamedTuple):
    """Figures of this agent: ``held`` is the present number, the others count since the start.

    ``held``: leases whose holder polls this agent. ``terms``: terms with which a holder has begun
    to poll this agent. Before, it acquired or refreshed the lease, or polled another agent.
    ``stale_publishes``: publishes refused because their term was over.
    """

    held: int
    polls: int
    terms: int
    stale_publishes: int


class LeaseCounters:
    """Remembers held leases until they expire. ``clock`` returns seconds and never steps back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Name -> term, and its end in seconds of the clock.
        self._held: dict[str, tuple[int, float]] = {}
        self._polls = self._terms = self._stale = 0

    @property
    def counts(self) -> LeaseCounts:
        self._drop_expired()
        return LeaseCounts(len(self._held), self._polls, self._terms, self._stale)

    def add_poll(self, holder: str, lease: Lease) -> None:
        """Count the answer to a poll by ``holder``."""
        self._polls += 1
        if lease.holder != holder:
            return
        term, _ = self._held.get(lease.name, (None, 0.0))
        if term is None:
            self._drop_expired()
        if term != lease.term:
            self._terms += 1
        self._held[lease.name] = lease.term, self._clock() + lease.left_ms / 1000

    def add_release(self, name: str) -> None:
        """Forget a released lease."""
        self._held.pop(name, None)

    def add_stale_publish(self) -> None:
        self._stale += 1

    def _drop_expired(self) -> None:
        now = self._clock()
        self._held = {name: held for name, held in self._held.items() if held[1] > now}

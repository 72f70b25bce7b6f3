"""Bindings with counts and times of the calls of another binding, for metrics."""

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

from prometheus_client import CollectorRegistry, Counter, Histogram

from oplog_relay.model.bindings import (
    LeaseClient,
    LeaseState,
    MeasurableOutbox,
    Outbox,
    Outcome,
    Publisher,
    Purged,
    Verdict,
)
from oplog_relay.model.errors import LeaseUnavailableError, OutboxError
from oplog_relay.model.row import Row

# Upper bounds in seconds, from a fast disk to the time-out of a request.
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_DATABASE = ("mark", "purge", "reset")


class Timings:
    """Times and failures of calls. ``failed``: the last failed call, empty: none."""

    def __init__(self, registry: CollectorRegistry, name: str) -> None:
        def histogram(metric: str, text: str) -> Histogram:
            made = Histogram(
                f"oplog_relay_{metric}_seconds", text, ["lease"],
                registry=registry, buckets=_BUCKETS,
            )  # fmt: skip
            return made.labels(name)

        self.publish = histogram("publish", "Duration of a request to an agent, failed ones too")
        self.mark = histogram("mark", "Duration of a mark, failed ones too")
        self.purge = histogram("purge", "Duration of a purge, failed ones too")
        polls = Counter(
            "oplog_relay_lease_polls", "Polls of the lease", ["lease", "result"], registry=registry
        )
        self.polls = {each: polls.labels(name, each) for each in ("leader", "waiting", "failed")}
        failures = Counter(
            "oplog_relay_failures",
            "Calls that a database or an agent did not confirm",
            ["lease", "call"],
            registry=registry,
        )
        self.failures = {each: failures.labels(name, each) for each in (*_DATABASE, "publish")}
        self.failed = ""

    def fail(self, call: str) -> None:
        self.failures[call].inc()
        self.failed = call

    @contextmanager
    def database(self, call: str) -> Iterator[None]:
        try:
            yield
        except OutboxError:
            self.fail(call)
            raise


class MeasuredOutbox:
    """Implements ``Outbox``, and ``MeasurableOutbox`` if the other one does."""

    def __init__(self, outbox: Outbox, timings: Timings) -> None:
        self._outbox = outbox
        self._timings = timings
        self.dispose = outbox.dispose
        if isinstance(outbox, MeasurableOutbox):
            self.backlog = outbox.backlog

    async def mark(
        self, leader_id: UUID, limit: int, number: int = 0, passed: Collection[str] = ()
    ) -> list[Row]:
        with self._timings.database("mark"), self._timings.mark.time():
            return await self._outbox.mark(leader_id, limit, number, passed)

    async def purge(self, leader_id: UUID, rows: Sequence[Row]) -> Purged:
        with self._timings.database("purge"), self._timings.purge.time():
            return await self._outbox.purge(leader_id, rows)

    async def reset(
        self, leader_id: UUID, *, rows: Sequence[Row] | None = None, key: str | None = None
    ) -> int:
        with self._timings.database("reset"):
            return await self._outbox.reset(leader_id, rows=rows, key=key)


class MeasuredLease:
    """Implements ``LeaseClient``."""

    def __init__(self, lease: LeaseClient, timings: Timings) -> None:
        self._lease = lease
        self._timings = timings
        self.release = lease.release
        self.close = lease.close

    async def poll(
        self, seconds: float, *, refresh: bool = False, note: str | None = None
    ) -> LeaseState:
        try:
            state = await self._lease.poll(seconds, refresh=refresh, note=note)
        except LeaseUnavailableError:
            self._timings.polls["failed"].inc()
            raise
        self._timings.polls["leader" if state.is_leader else "waiting"].inc()
        return state


class MeasuredPublisher:
    """Implements ``Publisher``."""

    def __init__(self, publisher: Publisher, timings: Timings) -> None:
        self._publisher = publisher
        self._timings = timings
        self.close = publisher.close

    async def publish(self, topic: str, rows: Sequence[Row], term: int) -> Outcome:
        began = time.monotonic()
        outcome = await self._publisher.publish(topic, rows, term)
        self._timings.publish.observe(time.monotonic() - began)
        if outcome.verdict is Verdict.UNCERTAIN:
            self._timings.fail("publish")
        return outcome

"""Bindings with counts and times of the calls of another binding, for metrics."""

import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import nullcontext
from typing import Any, ParamSpec, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram

from oplog_relay.model.bindings import (
    LeaseClient,
    LeaseState,
    MeasurableOutbox,
    Outbox,
    Outcome,
    Publisher,
    Verdict,
)
from oplog_relay.model.errors import LeaseUnavailableError, OutboxError
from oplog_relay.model.row import Row

# Upper bounds in seconds, from a fast disk to the time-out of a request.
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_TIMED = {
    "publish": "Duration of a request to an agent, failed ones too",
    "mark": "Duration of a mark, failed ones too",
    "purge": "Duration of a purge, failed ones too",
}
_P = ParamSpec("_P")
_R = TypeVar("_R")


class Timings:
    """Times and failures of calls. ``failed``: the last failed call, empty: none."""

    def __init__(self, registry: CollectorRegistry, name: str) -> None:
        self.times = {
            call: Histogram(
                f"oplog_relay_{call}_seconds", text, ["lease"], registry=registry, buckets=_BUCKETS
            ).labels(name)
            for call, text in _TIMED.items()
        }
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
        self.failures = {each: failures.labels(name, each) for each in (*_TIMED, "reset")}
        self.failed = ""

    def fail(self, call: str) -> None:
        self.failures[call].inc()
        self.failed = call

    def database(
        self, name: str, call: Callable[_P, Awaitable[_R]]
    ) -> Callable[_P, Coroutine[Any, Any, _R]]:
        """Return the call of a database, measured."""

        async def measured(*args: _P.args, **named: _P.kwargs) -> _R:
            try:
                with self.times[name].time() if name in self.times else nullcontext():
                    return await call(*args, **named)
            except OutboxError:
                self.fail(name)
                raise

        return measured


class MeasuredOutbox:
    """Implements ``Outbox``, and ``MeasurableOutbox`` if the other one does."""

    def __init__(self, outbox: Outbox, timings: Timings) -> None:
        self.mark = timings.database("mark", outbox.mark)
        self.purge = timings.database("purge", outbox.purge)
        self.reset = timings.database("reset", outbox.reset)
        self.dispose = outbox.dispose
        if isinstance(outbox, MeasurableOutbox):
            self.backlog = outbox.backlog


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
        self._timings.times["publish"].observe(time.monotonic() - began)
        if outcome.verdict is Verdict.UNCERTAIN:
            self._timings.fail("publish")
        return outcome

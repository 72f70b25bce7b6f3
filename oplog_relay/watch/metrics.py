"""The metrics of a relay for Prometheus."""

from collections.abc import Iterable
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from oplog_relay.model.bindings import Bindings
from oplog_relay.model.events import (
    Event,
    Handler,
    LeaderFenced,
    LeaderRefreshed,
    LeaderRevoked,
    MeterRead,
)
from oplog_relay.model.settings import RelaySettings
from oplog_relay.watch.measured import MeasuredLease, MeasuredPublisher, Timings, measured_outbox
from oplog_relay.watch.meter import Metered
from oplogc import __version__

_COUNTERS = {
    "relayed": ("rows_relayed", "Rows acknowledged by an agent and removed from the outbox"),
    "marked": ("rows_marked", "Rows marked, repeated ones included"),
    "refused": ("rows_refused", "Refusals of single rows by an agent, repeated ones included"),
    "forbidden": ("forbidden", "Requests that an agent refused whatever their rows"),
    "marks": ("marks", "Marks that succeeded, also those that found no row"),
    "acquired": ("leads_acquired", "Times that the relay began to lead"),
    "fenced": ("leads_fenced", "Times that the relay lost the lead instead of handing it over"),
}


class Watched(Metered, Protocol):
    """A relay with metrics."""

    @property
    def term(self) -> int: ...

    def on_event(self, handler: Handler) -> None: ...


class Metrics:
    """The metrics of one relay, in ``registry``.

    For an embedded relay::

        metrics = Metrics(settings)
        relay = Relay(settings, wrap=metrics.measured)
        metrics.watch(relay)
    """

    def __init__(self, settings: RelaySettings) -> None:
        self.registry = CollectorRegistry()
        self._name = settings.name
        self._timings = Timings(self.registry, settings.name)
        self._refreshes = Counter(
            "oplog_relay_refreshes",
            "Times that the leader took a new term, by the call that had failed",
            ["lease", "reason"],
            registry=self.registry,
        )

    def measured(self, bindings: Bindings) -> Bindings:
        """Return bindings with measured calls."""
        return Bindings(
            measured_outbox(bindings.outbox, self._timings),
            MeasuredLease(bindings.lease, self._timings),
            MeasuredPublisher(bindings.publisher, self._timings),
        )

    def watch(self, relay: Watched) -> None:
        """Add the figures of a relay. Call it once, before the relay starts."""
        relay.on_event(self._count)
        self._snapshot = _Snapshot(relay, self._name)
        self.registry.register(self._snapshot)

    def _count(self, event: Event) -> None:
        match event:
            case LeaderRefreshed():
                # No call has failed: a row was in flight for too long, or a term was lost.
                reason, self._timings.failed = self._timings.failed or "other", ""
                self.refreshed(reason)
            case MeterRead():
                self.read(event)
            case LeaderFenced() | LeaderRevoked():
                self.read(None)

    def refreshed(self, reason: str) -> None:
        self._refreshes.labels(self._name, reason).inc()

    def read(self, reading: MeterRead | None) -> None:
        self._snapshot.reading = reading


class _Snapshot(Collector):
    """``reading``: the last one of this relay as the leader."""

    def __init__(self, relay: Watched, name: str) -> None:
        self.reading: MeterRead | None = None
        self._relay = relay
        self._name = name

    def collect(self) -> Iterable[Metric]:
        relay, reading = self._relay, self.reading
        for counter, (name, text) in _COUNTERS.items():
            family = CounterMetricFamily(f"oplog_relay_{name}", text, labels=["lease"])
            family.add_metric([self._name], getattr(relay.counters, counter))
            yield family
        yield self._gauge("is_leader", "1 while this relay leads, else 0", relay.is_leader)
        yield self._gauge("term", "The present term, 0 while another relay leads", relay.term)
        yield self._gauge("in_flight", "Rows marked and not yet removed", relay.in_flight)
        yield self._gauge("in_flight_keys", "Keys of the rows in flight", relay.in_flight_keys)
        yield self._gauge(
            "blocked_keys", "Keys whose first row an agent refuses", len(relay.blocked)
        )
        if reading is not None and reading.backlog is not None:
            yield self._gauge("backlog_rows", "Rows in the outbox; of the leader", reading.backlog)
        if reading is not None and reading.oldest_seconds is not None:
            yield self._gauge(
                "oldest_row_seconds",
                "Age of the oldest row in the outbox, 0 without one; of the leader",
                reading.oldest_seconds,
            )
        info = GaugeMetricFamily(
            "oplog_relay_info", "Always 1; labels: lease, version", labels=["lease", "version"]
        )
        info.add_metric([self._name, __version__], 1)
        yield info

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"oplog_relay_{name}", text, labels=["lease"])
        family.add_metric([self._name], value)
        return family

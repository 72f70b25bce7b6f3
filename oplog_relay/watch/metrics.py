"""The metrics of a relay for Prometheus."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import Metric

from oplog_kit.metrics import Collected, MetricTable, metrics
from oplog_relay.model.bindings import Bindings
from oplog_relay.model.events import (
    Event,
    LeaderFenced,
    LeaderRefreshed,
    LeaderRevoked,
    MeterRead,
)
from oplog_relay.model.settings import RelaySettings
from oplog_relay.watch.measured import MeasuredLease, MeasuredOutbox, MeasuredPublisher, Timings
from oplog_relay.watch.meter import Metered
from oplogc import __version__

METRICS: MetricTable[Metered] = {
    "rows_relayed_total": (
        "Rows acknowledged by an agent and removed from the outbox",
        lambda it: it.counters.relayed,
    ),
    "rows_marked_total": ("Rows marked, repeated ones included", lambda it: it.counters.marked),
    "rows_refused_total": (
        "Refusals of single rows by an agent, repeated ones included",
        lambda it: it.counters.refused,
    ),
    "forbidden_total": (
        "Requests that an agent refused whatever their rows",
        lambda it: it.counters.forbidden,
    ),
    "marks_total": (
        "Marks that succeeded, also those that found no row",
        lambda it: it.counters.marks,
    ),
    "leads_acquired_total": (
        "Times that the relay began to lead",
        lambda it: it.counters.acquired,
    ),
    "leads_fenced_total": (
        "Times that the relay lost the lead instead of handing it over",
        lambda it: it.counters.fenced,
    ),
    "is_leader": ("1 while this relay leads, else 0", lambda it: it.is_leader),
    "term": ("The present term, 0 while another relay leads", lambda it: it.term),
    "in_flight": ("Rows marked and not yet removed", lambda it: it.in_flight),
    "in_flight_keys": ("Keys of the rows in flight", lambda it: it.in_flight_keys),
    "blocked_keys": ("Keys whose first row an agent refuses", lambda it: len(it.blocked)),
}
# Of the last reading of this relay as the leader.
OF_LEADER: MetricTable[MeterRead] = {
    "backlog_rows": ("Rows in the outbox; of the leader", lambda it: it.backlog),
    "oldest_row_seconds": (
        "Age of the oldest row in the outbox, 0 without one; of the leader",
        lambda it: it.oldest_seconds,
    ),
}
INFO: MetricTable[str] = {"info": ("Always 1; labels: lease, version", lambda it: 1)}


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
        self._reading: MeterRead | None = None
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
            MeasuredOutbox(bindings.outbox, self._timings),
            MeasuredLease(bindings.lease, self._timings),
            MeasuredPublisher(bindings.publisher, self._timings),
        )

    def watch(self, relay: Metered) -> None:
        """Add the figures of a relay. Call it once, before the relay starts."""
        relay.on_event(self.count)
        Collected(self.registry, lambda: self._collect(relay))

    def count(self, event: Event) -> None:
        """Note an event."""
        match event:
            case LeaderRefreshed():
                # No call has failed: a row was in flight for too long, or a term was lost.
                reason, self._timings.failed = self._timings.failed or "other", ""
                self._refreshes.labels(self._name, reason).inc()
            case MeterRead():
                self._reading = event
            case LeaderFenced() | LeaderRevoked():
                self._reading = None

    def _collect(self, relay: Metered) -> Iterator[Metric]:
        prefix, lease = "oplog_relay", [self._name]
        yield from metrics(prefix, METRICS, ["lease"], [(lease, relay)])
        if self._reading is not None:
            yield from metrics(prefix, OF_LEADER, ["lease"], [(lease, self._reading)])
        labels = ["lease", "version"]
        yield from metrics(prefix, INFO, labels, [([*lease, __version__], __version__)])

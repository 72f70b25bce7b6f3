"""The members of /status as metrics in Prometheus's text format."""

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from oplogd.stream.lags import Lags

COUNTERS = {
    "events_received": "Operations received by UDP and HTTP",
    "events_ingested": "Operations stored in the log",
    "events_error": "Operations refused as invalid",
    "events_discarded": "Operations dropped: the queue was full or the store was unreachable",
    "events_stale": "Operations refused because the term of their lease was over",
    "events_with_ignored_members": "Operations received with members that operations do not have",
    "events_spooled": "Operations put into the spool",
    "events_recovered": "Operations of an earlier process, found in the spool",
    "events_dropped_kernel": "Datagrams the kernel dropped before the agent read them",
    "datagrams_refused": "Datagrams refused as invalid",
    "events_sent": "Events sent to consumers",
    "connections": "Streams opened",
    "connections_refused": "Connections closed at once because few file descriptors were free",
    "topics_publishes": "Publishes whose messages are stored",
    "topics_messages_published": "Messages stored in topics",
    "topics_messages_refused": "Messages of publishes that failed",
    "topics_left_by_bytes": "Entries of topics that have left because of a bound in bytes",
    "topics_polls": "Polls answered",
    "topics_messages_polled": "Messages sent in answers to polls",
    "transactions_committed": "Transactions that this agent has committed",
    "transactions_aborted": "Transactions that this agent has aborted for a client",
    "transactions_timed_out": "Transactions that this agent has aborted because they were overdue",
    "loop_cpu_seconds": "CPU time of the event loop's thread",
    "leases_polls": "Polls of leases answered",
    "leases_terms": "Terms of leases with which a holder has begun to poll this agent",
    "leases_stale_publishes": "Publishes refused because the term of their lease was over",
}
GAUGES = {
    "uptime_seconds": "Seconds since the start",
    "queue_size": "Operations waiting to be stored",
    "queue_max_size": "Operations the queue can hold",
    "queue_bytes": "Bytes waiting to be stored",
    "queue_max_bytes": "Bytes the queue can hold",
    "spool_operations": "Operations in the spool, waiting for the store",
    "spool_bytes": "Bytes in the spool",
    "spool_max_bytes": "Bytes the spool may hold, 0 without one",
    "descriptors_open": "File descriptors that are open",
    "descriptors_limit": "File descriptors that may be open",
    "clients": "Consumers connected",
    "held_consumers": "Consumers that wait for the decision of a pointer",
    "consumer_lag_operations": "Largest lag of a consumer, in operations",
    "consumer_lag_seconds": "Largest lag of a consumer: age of its oldest unsent operation",
    "ring_operations": "Operations in the ring",
    "ring_max_operations": "Operations the ring holds when full",
    "ring_bytes": "Bytes in the ring",
    "ring_max_bytes": "Bytes the ring holds when full",
    "store_ops": "Operations in the log",
    "store_states": "Objects with a state, deleted ones included",
    "store_live": "Objects that exist",
    "store_deleted": "Deleted objects with a state (tombstones)",
    "store_bytes": "Size of the log in bytes, as counted for its limit",
    "store_max_bytes": "Size of the log at which its oldest operations are removed",
    "store_wal_bytes": "Size of the write-ahead log beside an SQLite file",
    "store_lag_fold": "Operations in the log and not yet folded into the states",
    "store_lag_follower": "Operations in the log that the follower has not read yet",
    "disk_free_bytes": "Free space on the disk of an SQLite file",
    "disk_free_in_file_bytes": "Free pages in an SQLite file, counted when its disk is short",
    "disk_needed_bytes": "Free space below which intake stops",
    "disk_reserve_bytes": "Size of the reserve beside an SQLite file",
    "disk_reserve_max_bytes": "Size of the reserve while the disk has room",
    "disk_intake_stopped": "1 while nothing is taken because the disk is full",
    "clock_paused": "1 while times or removals do not follow the wall clock, which has stepped; "
    "0 after a stop",
    "clock_step_seconds": "How far the wall clock stepped from the guarded time, 0 if it did not",
    "clock_ahead_seconds": "How far times in the store lead the guarded time, 0 up to a minute",
    "topics_count": "Topics in the store",
    "topics_numbers_used": "Numbers of logs in use, those of topics deleted lately included",
    "topics_numbers_free": "Numbers of logs that are free for other topics",
    "topics_bytes": "Bytes that all topics store",
    "topics_max_bytes": "Bytes that all topics may store, 0 without a bound",
    "topics_queue_size": "Messages waiting to be stored",
    "topics_queue_bytes": "Bytes of messages waiting to be stored",
    "topics_feeds": "Topics with messages in memory, because a consumer listens",
    "topics_feeds_bytes": "Bytes of messages in memory",
    "transactions_open": "Transactions in the store that are not decided",
    "transactions_oldest_open_seconds": "Age of the oldest transaction that is not decided",
    "pointers_open": "Pointers in the store that are not decided, each topic counted",
    "pointers_oldest_seconds": "Age of the oldest pointer that is not decided",
    "loop_longest_turn_seconds": "Longest turn of the event loop since the start, in CPU time of"
    " its thread, at least",
    "loop_longest_turn_seconds_last_minute": "Longest turn of the event loop in the last minute",
    "leases_held": "Leases whose holder polls this agent",
}
LABELLED = {
    "consumers_refused": ("reason", "Consumers that were not connected"),
    "bodies_refused": ("reason", "Requests with POST, PUT or DELETE refused for their content"),
    "passwords_refused": ("right", "Requests refused for a wrong password, or for too many"),
    "fallbacks": (
        "to",
        "Times a consumer continued from the store, or from states, because its position was gone",
    ),
}
DECISIONS = ("committed", "aborted", "timed_out")
HISTOGRAMS = {
    "commit_seconds": "Duration of a successful append to the store",
    "ingest_to_send_seconds": "Time from the arrival of an operation until it can be sent,"
    " measured for one operation of each commit",
}


def render(status: Mapping[str, Any], lags: Lags, by_topic: Iterable[Metric]) -> bytes:
    """Return the metrics. ``by_topic``: those with a label for each topic."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(status, lags, by_topic))
    return generate_latest(registry)


class _Snapshot(Collector):
    def __init__(self, status: Mapping[str, Any], lags: Lags, by_topic: Iterable[Metric]) -> None:
        self._status = status
        self._lags = lags
        self._by_topic = by_topic

    def collect(self) -> Iterable[Metric]:
        values = dict(_flatten(self._status))
        for name, text in COUNTERS.items():
            if values[name] is not None:  # some are kept in the store
                yield CounterMetricFamily(f"oplog_{name}", text, value=values[name])
        for name, (label, text) in LABELLED.items():
            counter = CounterMetricFamily(f"oplog_{name}", text, labels=[label])
            for value, count in self._status[name].items():
                counter.add_metric([value], count)
            yield counter
        decisions = CounterMetricFamily(
            "oplog_pointer_decisions",
            "Pointers that this agent has decided, each topic counted",
            labels=["decision"],
        )
        for decision in DECISIONS:
            decisions.add_metric([decision], values[f"pointers_{decision}"])
        yield decisions
        for name, text in HISTOGRAMS.items():
            histogram = self._status[name]
            buckets = list(histogram["buckets"].items())
            yield HistogramMetricFamily(
                f"oplog_{name}", text, buckets=buckets, sum_value=histogram["sum"]
            )
        for name, text in GAUGES.items():
            if (
                values.get(name) is not None
            ):  # some figures of the store are missing while it is unreachable or counts
                yield GaugeMetricFamily(f"oplog_{name}", text, value=values[name])
        yield from self._named()
        yield from self._by_topic
        up = 1 if self._status["status"] == "OK" else 0
        yield GaugeMetricFamily(
            "oplog_store_up", "1 while the store works, 0 while degraded", value=up
        )
        info = GaugeMetricFamily(
            "oplog_info",
            "Always 1; labels: version of the agent, kind of store",
            labels=["version", "store"],
        )
        info.add_metric([str(self._status["version"]), str(self._status["store"]["kind"])], 1)
        yield info

    def _named(self) -> Iterable[Metric]:
        count = GaugeMetricFamily(
            "oplog_named_consumers", "Consumers connected under a name", labels=["name"]
        )
        operations = GaugeMetricFamily(
            "oplog_named_consumer_lag_operations",
            "Like oplog_consumer_lag_operations, for the consumers of a name",
            labels=["name"],
        )
        seconds = GaugeMetricFamily(
            "oplog_named_consumer_lag_seconds",
            "Like oplog_consumer_lag_seconds, for the consumers of a name",
            labels=["name"],
        )
        for name, named in self._lags.names.items():
            count.add_metric([name], named.consumers)
            operations.add_metric([name], named.lag.operations)
            seconds.add_metric([name], named.lag.seconds)
        yield from (count, operations, seconds)
        yield GaugeMetricFamily(
            "oplog_consumer_names_left_out",
            "Names without metrics: only the 200 with the largest lag have them",
            value=self._lags.names_left_out,
        )


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}_")
        else:
            yield f"{prefix}{name}", value

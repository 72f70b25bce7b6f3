"""The snapshot of /status in Prometheus's text form."""

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

COUNTERS = {
    "events_received": "Operations that came in by UDP and HTTP",
    "events_ingested": "Operations stored",
    "events_error": "Operations refused as invalid",
    "events_discarded": "Operations dropped because the queue was full or the store away",
    "events_dropped_kernel": "Datagrams the kernel dropped before the agent read them",
    "events_sent": "Events sent to consumers",
    "connections": "Streams opened",
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
    "clients": "Consumers connected",
    "ring_operations": "Operations in the ring",
    "ring_max_operations": "Operations the ring holds when full",
    "ring_bytes": "Bytes in the ring",
    "ring_max_bytes": "Bytes the ring holds when full",
    "store_ops": "Operations in the log",
    "store_states": "Objects with a state, deleted ones included",
    "store_bytes": "Bytes that the log counts",
    "store_max_bytes": "Bytes the log may count before its oldest operations go",
    "store_lag_fold": "Operations in the log and not yet in the states",
    "store_lag_follower": "Operations in the log and not yet with this agent",
}


def render(status: Mapping[str, Any]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(status))
    return generate_latest(registry)


class _Snapshot(Collector):
    def __init__(self, status: Mapping[str, Any]) -> None:
        self._status = status

    def collect(self) -> Iterable[Metric]:
        values = dict(_flatten(self._status))
        for name, text in COUNTERS.items():
            yield CounterMetricFamily(f"oplog_{name}", text, value=values[name])
        for name, text in GAUGES.items():
            if name in values:  # the store's are missing while it is away
                yield GaugeMetricFamily(f"oplog_{name}", text, value=values[name])
        up = 1 if self._status["status"] == "OK" else 0
        yield GaugeMetricFamily("oplog_store_up", "1 while the store works, 0 while degraded", value=up)
        info = GaugeMetricFamily(
            "oplog_info", "Always 1; its labels tell the version and store", labels=["version", "store"]
        )
        info.add_metric([str(self._status["version"]), str(self._status["store"]["kind"])], 1)
        yield info


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}_")
        else:
            yield f"{prefix}{name}", value

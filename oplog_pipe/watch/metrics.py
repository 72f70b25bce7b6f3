"""The metrics of a pipe for Prometheus."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from oplog_kit.metrics import Collected, MetricTable, metrics
from oplog_pipe.model.status import LogStatus, PipeStatus, SinkStatus, SourceStatus

LOG: MetricTable[LogStatus] = {
    "log_oldest_offset": ("Oldest offset in the commit log", lambda it: it.oldest),
    "log_end_offset": ("Offset of the next entry of the commit log", lambda it: it.end),
    "log_compacted_offset": (
        "Up to this offset entries may be missing; -1: none is",
        lambda it: it.compacted,
    ),
    "log_bytes": ("Size of the commit log", lambda it: it.bytes),
    "log_max_bytes": ("Bound of the commit log; missing: none", lambda it: it.max_bytes),
    "log_full": (
        "1 while the sources wait until the commit log has room, else 0",
        lambda it: it.waits is not None,
    ),
    "log_segments": ("Segments of the commit log", lambda it: it.segments),
}
SOURCE: MetricTable[SourceStatus] = {
    "source_connected": ("1 while a stream is open, else 0", lambda it: it.connected),
    "source_received_total": ("Messages received", lambda it: it.received),
    "source_filtered_total": (
        "Messages received that the namespace of the source does not match",
        lambda it: it.filtered,
    ),
    "source_copying": ("1 while a copy is under way, else 0", lambda it: it.phase == "copy"),
    "source_copied_messages": ("Messages of the present or last copy", lambda it: it.copied),
    "source_copy_size_messages": (
        "Messages that the present or last copy has, as the agent said at its beginning",
        lambda it: it.copy_total,
    ),
    "source_newest_timestamp_seconds": (
        "Timestamp of the last message, in seconds since 1970",
        lambda it: None if it.newest_ms is None else it.newest_ms / 1000,
    ),
}
SINK: MetricTable[SinkStatus] = {
    "sink_offset": ("Last acknowledged offset; -1: none", lambda it: it.offset),
    "sink_flushed_offset": ("Last acknowledged offset on disk; -1: none", lambda it: it.flushed),
    "sink_lag_entries": ("Entries that are not acknowledged", lambda it: it.lag),
    "sink_lag_seconds": (
        "Age of the oldest entry that is not acknowledged, 0 without one",
        lambda it: it.lag_seconds,
    ),
    "sink_recovering": (
        "1 while the sink takes its backlog one message at a time after a start, else 0",
        lambda it: it.phase == "recovery",
    ),
    "sink_parked": (
        "1 while the sink has failed, keeps its place and is tried again, else 0",
        lambda it: it.phase == "parked",
    ),
    "sink_failing": (
        "1 while a failure is tried again, or has stopped the sink, else 0",
        lambda it: it.error is not None,
    ),
    "sink_written_total": ("Messages that the sink took", lambda it: it.written),
    "sink_filtered_total": (
        "Messages dropped by namespaces, transforms and fetches",
        lambda it: it.filtered,
    ),
    "sink_dead_letters_total": ("Messages written to the dead-letter file", lambda it: it.dead),
    "sink_copies_not_whole": (
        "Sources whose last copy lacked messages for the sink and removed nothing",
        lambda it: len(it.not_whole),
    ),
    "sink_copy_due": (
        "1 while the sink has given up its place and has not begun to get a copy, else 0",
        lambda it: it.copy_due,
    ),
    "sink_retries_total": ("Repeated calls after transient failures", lambda it: it.retries),
}
INFO: MetricTable[PipeStatus] = {"info": ("Always 1; label: version", lambda it: 1)}


def registry_of(status: Callable[[], PipeStatus]) -> CollectorRegistry:
    """Return a registry with the metrics of a pipe."""
    registry = CollectorRegistry()
    Collected(registry, lambda: _metrics(status()))
    return registry


def _metrics(found: PipeStatus) -> Iterator[Metric]:
    prefix = "oplog_pipe"
    yield from metrics(prefix, INFO, ["version"], [([found.version], found)])
    yield from metrics(prefix, LOG, [], [] if found.log is None else [([], found.log)])
    yield from metrics(prefix, SOURCE, ["source"], [([each.name], each) for each in found.sources])
    yield from metrics(prefix, SINK, ["sink"], [([each.name], each) for each in found.sinks])

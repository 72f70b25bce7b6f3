"""The metrics in Prometheus's text format. Each is declared once, in METRICS.

The page of the reference and the checks of dashboard and alerts come from the same declarations.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from prometheus_client import generate_latest
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


class Declared(NamedTuple):
    """A metric. ``path``: the place of its value in the figures, with dots between members.

    ``kind``: its type in Prometheus. With ``labels``, the value is a mapping from values of the
    labels to numbers. ``unit``: ``bytes``, ``seconds``, or empty for a number of objects.
    """

    kind: str
    path: str
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""

    @property
    def sample(self) -> str:
        """The name in queries. A histogram has it with a suffix."""
        return f"oplog_{self.path.replace('.', '_')}{'_total' if self.kind == 'counter' else ''}"

    def read(self, figures: Mapping[str, Any]) -> Metric | None:
        """Return the samples, None if the figures lack the value: the store did not answer."""
        value: Any = figures
        for member in self.path.split("."):
            value = value.get(member)
            if value is None:
                return None
        if self.kind == "histogram":
            buckets = list(value["buckets"].items())
            return HistogramMetricFamily(self.sample, self.help, buckets, value["sum"])
        family = Metric(self.sample.removesuffix("_total"), self.help, self.kind)
        for labels, number in value.items() if self.labels else [((), value)]:
            given = (labels,) if isinstance(labels, str) else labels
            family.add_sample(self.sample, dict(zip(self.labels, given, strict=True)), number)
        return family


_counter = partial(Declared, "counter")
_gauge = partial(Declared, "gauge")
_bytes = partial(_gauge, unit="bytes")
_seconds = partial(_gauge, unit="seconds")
_histogram = partial(Declared, "histogram", unit="seconds")

METRICS = (
    _counter("events_received", "Operations received by UDP and HTTP"),
    _counter("events_ingested", "Operations stored in the log"),
    _counter("events_error", "Operations refused as invalid"),
    _counter(
        "events_discarded", "Operations dropped: the queue was full or the store was unreachable"
    ),
    _counter("events_stale", "Operations refused because the term of their lease was over"),
    _counter(
        "events_with_ignored_members",
        "Operations received with members that operations do not have",
    ),
    _counter("events_spooled", "Operations put into the spool"),
    _counter("events_recovered", "Operations of an earlier process, found in the spool"),
    _counter("events_dropped_kernel", "Datagrams the kernel dropped before the agent read them"),
    _counter("datagrams_refused", "Datagrams refused as invalid"),
    _counter("events_sent", "Events sent to consumers"),
    _counter("connections", "Streams opened"),
    _counter(
        "connections_refused", "Connections closed at once because few file descriptors were free"
    ),
    _counter("topics.publishes", "Publishes whose messages are stored"),
    _counter("topics.messages_published", "Messages stored in topics"),
    _counter("topics.messages_refused", "Messages of publishes that failed"),
    _counter(
        "topics.left_by_bytes", "Entries of topics that have left because of a bound in bytes"
    ),
    _counter("topics.polls", "Polls answered"),
    _counter("topics.messages_polled", "Messages sent in answers to polls"),
    _counter("transactions.committed", "Transactions that this agent has committed"),
    _counter("transactions.aborted", "Transactions that this agent has aborted for a client"),
    _counter(
        "transactions.timed_out",
        "Transactions that this agent has aborted because they were overdue",
    ),
    _counter("loop.cpu_seconds", "CPU time of the event loop's thread", unit="seconds"),
    _counter("leases.polls", "Polls of leases answered"),
    _counter("leases.terms", "Terms of leases with which a holder has begun to poll this agent"),
    _counter(
        "leases.stale_publishes", "Publishes refused because the term of their lease was over"
    ),
    _counter("consumers_refused", "Consumers that were not connected", ("reason",)),
    _counter(
        "bodies_refused", "Requests with POST, PUT or DELETE refused for their content", ("reason",)
    ),
    _counter(
        "passwords_refused", "Requests refused for a wrong password, or for too many", ("right",)
    ),
    _counter(
        "fallbacks",
        "Times a consumer continued from the store, or from states, because its position was gone",
        ("to",),
    ),
    _counter(
        "pointer_decisions",
        "Pointers that this agent has decided, each topic counted",
        ("decision",),
    ),
    _histogram("commit_seconds", "Duration of a successful append to the store"),
    _histogram(
        "write_wait_seconds",
        "Time that a worker waits for its turn to write to the SQLite file; only with several",
    ),
    _histogram(
        "ingest_to_send_seconds",
        "Time from the arrival of an operation until it can be sent,"
        " measured for one operation of each commit",
    ),
    _seconds("uptime_seconds", "Seconds since the start"),
    _gauge("queue_size", "Operations waiting to be stored"),
    _gauge("queue_max_size", "Operations the queue can hold"),
    _bytes("queue_bytes", "Bytes waiting to be stored"),
    _bytes("queue_max_bytes", "Bytes the queue can hold"),
    _gauge("spool.operations", "Operations in the spool, waiting for the store"),
    _bytes("spool.bytes", "Bytes in the spool"),
    _bytes("spool.max_bytes", "Bytes the spool may hold, 0 without one"),
    _gauge("descriptors.open", "File descriptors that are open"),
    _gauge("descriptors.limit", "File descriptors that may be open"),
    _gauge("clients", "Consumers connected"),
    _gauge("held_consumers", "Consumers that wait for the decision of a pointer"),
    _gauge("consumer_lag.operations", "Largest lag of a consumer, in operations"),
    _seconds(
        "consumer_lag.seconds", "Largest lag of a consumer: age of its oldest unsent operation"
    ),
    _gauge("ring.operations", "Operations in the ring"),
    _gauge("ring.max_operations", "Operations the ring holds when full"),
    _bytes("ring.bytes", "Bytes in the ring"),
    _bytes("ring.max_bytes", "Bytes the ring holds when full"),
    _gauge("store.ops", "Operations in the log"),
    _gauge("store.states", "Objects with a state, deleted ones included"),
    _gauge("store.live", "Objects that exist"),
    _gauge("store.deleted", "Deleted objects with a state (tombstones)"),
    _bytes("store.bytes", "Size of the log in bytes, as counted for its limit"),
    _bytes("store.max_bytes", "Size of the log at which its oldest operations are removed"),
    _bytes("store.wal_bytes", "Size of the write-ahead log beside an SQLite file"),
    _gauge("store.lag.fold", "Operations in the log and not yet folded into the states"),
    _gauge("store.lag.follower", "Operations in the log that the follower has not read yet"),
    _bytes("disk.free_bytes", "Free space on the disk of an SQLite file"),
    _bytes(
        "disk.free_in_file_bytes", "Free pages in an SQLite file, counted when its disk is short"
    ),
    _bytes("disk.needed_bytes", "Free space below which intake stops"),
    _bytes("disk.reserve_bytes", "Size of the reserve beside an SQLite file"),
    _bytes("disk.reserve_max_bytes", "Size of the reserve while the disk has room"),
    _gauge("disk.intake_stopped", "1 while nothing is taken because the disk is full"),
    _gauge(
        "clock.paused",
        "1 while times or removals do not follow the wall clock, which has stepped; 0 after a stop",
    ),
    _seconds(
        "clock.step_seconds",
        "How far the wall clock stepped from the guarded time, 0 if it did not",
    ),
    _seconds(
        "clock.ahead_seconds", "How far times in the store lead the guarded time, 0 up to a minute"
    ),
    _gauge("topics.count", "Topics in the store"),
    _gauge(
        "topics.numbers_used", "Numbers of logs in use, those of topics deleted lately included"
    ),
    _gauge("topics.numbers_free", "Numbers of logs that are free for other topics"),
    _bytes("topics.bytes", "Bytes that all topics store"),
    _bytes("topics.max_bytes", "Bytes that all topics may store, 0 without a bound"),
    _gauge("topics.queue_size", "Messages waiting to be stored"),
    _bytes("topics.queue_bytes", "Bytes of messages waiting to be stored"),
    _gauge("topics.feeds", "Topics with messages in memory, because a consumer listens"),
    _bytes("topics.feeds_bytes", "Bytes of messages in memory"),
    _gauge("transactions.open", "Transactions in the store that are not decided"),
    _seconds(
        "transactions.oldest_open_seconds", "Age of the oldest transaction that is not decided"
    ),
    _gauge("pointers.open", "Pointers in the store that are not decided, each topic counted"),
    _seconds("pointers.oldest_seconds", "Age of the oldest pointer that is not decided"),
    _seconds(
        "loop.longest_turn_seconds",
        "Longest turn of the event loop since the start, in CPU time of its thread, at least",
    ),
    _seconds(
        "loop.longest_turn_seconds_last_minute", "Longest turn of the event loop in the last minute"
    ),
    _gauge("leases.held", "Leases whose holder polls this agent"),
    _gauge("named_consumers", "Consumers connected under a name", ("name",)),
    _gauge(
        "named_consumer_lag.operations",
        "Like oplog_consumer_lag_operations, for the consumers of a name",
        ("name",),
    ),
    _seconds(
        "named_consumer_lag.seconds",
        "Like oplog_consumer_lag_seconds, for the consumers of a name",
        ("name",),
    ),
    _gauge(
        "consumer_names_left_out",
        "Names without metrics: only the 200 with the largest lag have them",
    ),
    _gauge("positions.consumers", "Named consumers in the store"),
    _seconds("positions.lag_seconds", "The largest oplog_position_lag_seconds"),
    _seconds("positions.left_seconds", "The smallest oplog_position_left_seconds"),
    _gauge(
        "positions.left_out",
        "Named consumers without metrics: those with the largest lag have them",
    ),
    _gauge(
        "position.lag",
        "Entries of a shard behind the acknowledged position of a named consumer",
        ("consumer", "shard"),
    ),
    _seconds("position.lag_seconds", "Age of the oldest of them", ("consumer", "shard")),
    _seconds(
        "position.left_seconds",
        "Time until the oldest of them leaves the log; missing while nothing leaves soon",
        ("consumer", "shard"),
    ),
    _counter(
        "topic.messages_published",
        "Messages stored in a topic; topics without a label of their own: _other",
        ("topic",),
    ),
    _counter("topic.messages_polled", "Messages sent in answers to polls of a topic", ("topic",)),
    _gauge("topic.streams", "Streams of a topic", ("topic",)),
    *(
        Declared(kind, f"worker.{name}", text, ("worker",), unit)
        for kind, name, text, unit in (
            ("gauge", "up", "1 while the worker answers; only with several workers", ""),
            ("counter", "restarts", "Times the worker has died, also before it served", ""),
            ("gauge", "uptime_seconds", "Seconds since the start of the worker", "seconds"),
            ("gauge", "clients", "Consumers connected to the worker", ""),
            ("gauge", "queue_size", "Operations waiting in the worker", ""),
            ("gauge", "descriptors_open", "File descriptors that are open in the worker", ""),
            ("counter", "connections", "Streams opened in the worker", ""),
            ("counter", "events_received", "Operations received by the worker", ""),
            ("counter", "events_ingested", "Operations stored by the worker", ""),
            ("counter", "events_discarded", "Operations dropped by the worker", ""),
            ("counter", "events_sent", "Events sent by the worker", ""),
            ("counter", "cpu_seconds", "CPU time of the worker's event loop", "seconds"),
            (
                "gauge",
                "longest_turn_seconds",
                "Longest turn of the worker's event loop since the start of the agent",
                "seconds",
            ),
        )
    ),
    _gauge(
        "credential_files_broken",
        "Files of passwords and rights that are missing or invalid; their last content is in use",
    ),
    _gauge("store_up", "1 while the store works, 0 while degraded"),
    _gauge("info", "Always 1; labels: version of the agent, kind of store", ("version", "store")),
)


class _Families(Collector):
    def __init__(self, figures: Mapping[str, Any]) -> None:
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        families = (each.read(self._figures) for each in METRICS)
        return [family for family in families if family is not None]


def render(figures: Mapping[str, Any]) -> bytes:
    """Return all metrics as text."""
    return generate_latest(_Families(figures))

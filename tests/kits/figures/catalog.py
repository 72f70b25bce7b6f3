"""The benchmarks that ``make bench`` runs, in the order of the table, and the plots of figures."""

from typing import NamedTuple


class Benchmark(NamedTuple):
    """A module of ``tests.bench`` with its arguments."""

    title: str
    module: str
    arguments: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        return " ".join(("python -m", f"tests.bench.{self.module}", *self.arguments))


class Plot(NamedTuple):
    """A plot of the figures of a benchmark with one of the units."""

    title: str
    benchmark: str
    units: tuple[str, ...]


BENCHMARKS = {
    "http": Benchmark("Intake over HTTP", "bench_http"),
    "workers": Benchmark("Two workers beside one process", "bench_workers", ("--rate", "10000")),
    "udp": Benchmark("Intake over UDP", "bench_udp"),
    "fanout": Benchmark("1,000 consumers at 1,000 operations/s", "bench_fanout"),
    "filters": Benchmark(
        "10,000 consumers with a filter each", "bench_fanout",
        ("--filters", "10000", "--operations", "100"),
    ),
    "consumers": Benchmark("Idle consumers, and the start of a stream", "bench_consumers"),
    "groups": Benchmark("Acknowledgements of named consumers", "bench_groups"),
    "rights": Benchmark("A token each beside one password", "bench_rights"),
    "shards": Benchmark("Readers of a shard each beside readers of everything", "bench_shards"),
    "replication": Benchmark("Replications beside live consumers", "bench_replication"),
    "topics": Benchmark("Topics", "bench_topics"),
    "transactions": Benchmark("Transactions", "bench_transactions"),
    "pointers": Benchmark("Messages under a pointer", "bench_pointers"),
    "commits": Benchmark("One large commit to committed streams", "bench_commits"),
    "relay": Benchmark("The relay", "bench_relay"),
    "pipe": Benchmark("The pipe", "bench_pipe"),
    "fetch": Benchmark("The pipe's step fetch", "bench_fetch"),
    "spark_pipe": Benchmark("The pipe on Spark", "bench_spark_pipe"),
    "spark": Benchmark("A Spark stream of an oplog", "bench_spark"),
    "spark_sink": Benchmark("A streaming query into a topic", "bench_spark_sink"),
    "sync": Benchmark("oplog-sync on Spark", "bench_sync"),
    "emit": Benchmark("Corrections beside posts", "bench_emit"),
    "producer": Benchmark("The Python producer", "bench_producer"),
    "size": Benchmark("Bytes on disk", "bench_size"),
}  # fmt: skip

# Modules that only people run, with the reason.
BY_HAND = {"bench_change": "it compares with another checkout"}

PLOTS = {
    "http": Plot("Intake over HTTP", "http", ("requests/s",)),
    "topics": Plot("Publishing to topics", "topics", ("messages/s",)),
    "fanout": Plot("Fan-out to 1,000 consumers", "fanout", ("ms", "CPU s")),
    "consumers": Plot("Private memory of an idle consumer", "consumers", ("KiB",)),
    "relay": Plot("From an outbox to a consumer", "relay", ("rows/s",)),
    "sync": Plot("Comparing a dump with a store", "sync", ("s", "MiB")),
}

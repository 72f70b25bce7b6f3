"""Metrics for Prometheus from tables."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

T = TypeVar("T")

# Metric without its prefix -> help text, and the value; None: no sample. A name with "_total" is a
# counter.
MetricTable = Mapping[str, tuple[str, Callable[[T], float | None]]]


class Collected(Collector):
    """The metrics from ``collect`` at each request."""

    def __init__(
        self, registry: CollectorRegistry, collect: Callable[[], Iterable[Metric]]
    ) -> None:
        self._collect = collect
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering does not collect."""
        return ()

    def collect(self) -> Iterable[Metric]:
        return self._collect()


def metrics(
    prefix: str,
    table: MetricTable[T],
    labels: Sequence[str],
    rows: Sequence[tuple[Sequence[str], T]],
) -> Iterator[Metric]:
    """Yield the metrics of a table. ``rows``: values of the labels, and the measured object."""
    for name, (text, value_of) in table.items():
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        family = kind(f"{prefix}_{name}", text, labels=labels)
        for values, each in rows:
            if (value := value_of(each)) is not None:
                family.add_metric(values, value)
        yield family

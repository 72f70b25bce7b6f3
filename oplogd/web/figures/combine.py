"""Combines the figures of several workers to those of the agent."""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from oplogd.stream.lags import MeasuredLag, Named, larger
from oplogd.web.figures.consumers import MAX_CONSUMERS
from oplogd.web.figures.worker import Told

_MAX_DATAGRAMS = 20

# The largest of these counts for the agent. All other gauges are summed.
_LARGEST = {"consumer_lag", "longest_turn_seconds_last_minute"}

_Members = dict[str, Any]


def combined(gauges: Sequence[_Members]) -> _Members:
    """Return the gauges of all workers together. None is an unknown figure."""
    first, *more = gauges
    for each in more:
        first = _both(first, each, "")
    return first


def _both(one: Any, other: Any, name: str) -> Any:
    if isinstance(one, dict):
        return {key: _both(one[key], other[key], name if name in _LARGEST else key) for key in one}
    if one is None or other is None:
        return None
    if name in _LARGEST:
        return max(one, other)
    return round(one + other, 3) if isinstance(one, float) else one + other


def combined_clock(clocks: Sequence[_Members]) -> _Members:
    """Return the clock that has stepped furthest, a paused one first."""
    worst = max(clocks, key=lambda each: (each["paused"], abs(each["step_seconds"])))
    return worst | {"ahead_seconds": max(each["ahead_seconds"] for each in clocks)}


def combined_troubles(told: Mapping[int, Told]) -> list[str]:
    """Return the troubles. Those that not all workers have name the workers."""
    found: dict[str, list[str]] = {}
    for number, each in told.items():
        for trouble in each.troubles:
            found.setdefault(trouble, []).append(str(number))
    return [
        trouble if len(having) == len(told) else f"{trouble} (worker {', '.join(having)})"
        for trouble, having in found.items()
    ]


def combined_names(told: Sequence[Told]) -> dict[str, Named]:
    """Return the consumers of each name."""
    first, *more = (each.named for each in told)
    if not more:
        return first
    named = dict(first)
    for each in more:
        for name, (consumers, lag) in each.items():
            count, before = named.get(name, Named(0, MeasuredLag(0, 0.0)))
            named[name] = Named(count + consumers, larger(before, lag))
    return named


def combined_streams(told: Sequence[Told]) -> Counter[str]:
    """Return the number of streams by topic."""
    streams: Counter[str] = Counter()
    for each in told:
        streams.update(each.streams)
    return streams


def private_members(told: Mapping[int, Told], *, many: bool) -> _Members:
    """Return the consumers with the largest lags, and the last refused datagrams.

    ``many``: each names its worker.
    """
    consumers = [each for by in told.values() for each in by.consumers]
    datagrams: list[_Members] = [each for by in told.values() for each in by.refused_datagrams]
    if many:
        for number, by in told.items():
            for each in (*by.consumers, *by.refused_datagrams):
                each["worker"] = number
        consumers = heapq.nlargest(MAX_CONSUMERS, consumers, key=_lag)
        datagrams.sort(key=lambda each: str(each["time"]), reverse=True)
    clients = sum(each.gauges["clients"] for each in told.values())
    return {
        "consumers": consumers,
        "consumers_left_out": clients - len(consumers),
        "refused_datagrams": datagrams[:_MAX_DATAGRAMS],
    }


def _lag(consumer: _Members) -> tuple[int, float]:
    lag = consumer["lag"]
    return lag["operations"], lag["seconds"]

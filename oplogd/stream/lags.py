"""The lags of all connected consumers, the largest, and the largest of each name."""

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.follower import Pace

# Most names in the answer of ``shown_names``.
MAX_NAMES = 200


class MeasuredLag(NamedTuple):
    """A ``Lag`` at some time: operations not yet sent, and the age of the oldest in seconds."""

    operations: int
    seconds: float


class Named(NamedTuple):
    """The number of consumers of one name, and their largest lag."""

    consumers: int
    lag: MeasuredLag


class Lags(NamedTuple):
    """``each``: every consumer with its lag; the negated id makes the tuples sortable.

    ``largest``: most operations and most seconds, maybe of two consumers. ``named``: by name.
    """

    each: list[tuple[MeasuredLag, int, StreamConsumer]]
    largest: MeasuredLag
    named: dict[str, Named]


async def survey(consumers: Iterable[StreamConsumer], now_ms: int) -> Lags:
    """Measure the lag of every consumer, with pauses for the event loop."""
    each: list[tuple[MeasuredLag, int, StreamConsumer]] = []
    named: dict[str, Named] = {}
    largest = MeasuredLag(0, 0.0)
    pace = Pace()
    for consumer in list(consumers):
        lag = measure(consumer, now_ms)
        each.append((lag, -consumer.id, consumer))
        if lag.operations:
            largest = larger(largest, lag)
        if consumer.name:
            count, before = named.get(consumer.name, Named(0, MeasuredLag(0, 0.0)))
            named[consumer.name] = Named(count + 1, larger(before, lag))
        await pace.rest()
    return Lags(each, largest, named)


def shown_names(named: dict[str, Named]) -> tuple[dict[str, Named], int]:
    """Return at most MAX_NAMES with the largest lags, and the number of others."""
    worst = heapq.nsmallest(
        MAX_NAMES, named.items(), key=lambda item: (-item[1].lag.seconds, item[0])
    )
    return dict(sorted(worst)), len(named) - len(worst)


def measure(consumer: StreamConsumer, now_ms: int) -> MeasuredLag:
    """Return a consumer's lag with the age of its oldest operation."""
    lag = consumer.lag()
    return MeasuredLag(
        lag.operations, max(0, now_ms - lag.oldest_ms) / 1000 if lag.operations else 0.0
    )


def larger(one: MeasuredLag, other: MeasuredLag) -> MeasuredLag:
    """Return the most operations and the most seconds of two lags."""
    return MeasuredLag(max(one.operations, other.operations), max(one.seconds, other.seconds))

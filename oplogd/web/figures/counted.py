"""The counters of all workers, and of each of them, for /status."""

from collections.abc import Iterable
from typing import Any

from oplogd.watch.histogram import Histogram
from oplogd.web.figures.worker import Told
from oplogd.workers.tallies import Tallies
from oplogd.workers.workers import Workers

_Members = dict[str, Any]


def total(tallies: Iterable[Tallies]) -> Tallies:
    """Return the sum of the counters of all workers."""
    first, *more = tallies
    if not more:
        return first
    found = Tallies()
    found.assign(first)
    for each in more:
        found.include(each)
    return found


def ingest_members(tallies: Tallies) -> _Members:
    counters = tallies.ingest
    return {
        "events_received": counters.received,
        "events_ingested": counters.ingested,
        "events_error": counters.error,
        "events_discarded": counters.discarded,
        "events_stale": counters.stale,
        "events_with_ignored_members": counters.ignoring,
        "events_spooled": counters.spooled,
        "events_recovered": counters.recovered,
        "events_dropped_kernel": tallies.datagrams.dropped,
        "datagrams_refused": tallies.datagrams.refused,
    }


def refusal_members(tallies: Tallies) -> _Members:
    refused = tallies.requests_refused
    return {
        "connections_refused": refused.connections,
        "bodies_refused": refused.bodies.members(),
        "passwords_refused": {"read": refused.read, "write": refused.write},
    }


def histogram_members(histogram: Histogram) -> _Members:
    return {
        "count": histogram.count,
        "sum": round(histogram.sum, 6),
        "buckets": histogram.buckets(),
    }


def worker_members(workers: Workers, number: int, tallies: Tallies, told: Told | None) -> _Members:
    """Return the figures by which an operator compares workers.

    ``told`` None: it is silent, so its present state is unknown.
    """
    life = workers.lives[number]
    gauges = told.gauges if told else {}
    is_known = workers.is_alive(number)
    return {
        "number": number,
        "pid": life.pid if is_known else None,
        "uptime_seconds": round(workers.monotonic() - life.began, 1) if is_known else None,
        "restarts": life.deaths,
        "silent": told is None,
        "clients": gauges.get("clients"),
        "queue_size": gauges.get("queue_size"),
        "descriptors_open": gauges["descriptors"]["open"] if told else None,
        "connections": tallies.streams.connections,
        "events_received": tallies.ingest.received,
        "events_ingested": tallies.ingest.ingested,
        "events_discarded": tallies.ingest.discarded,
        "events_sent": tallies.streams.events_sent,
        "cpu_seconds": round(tallies.loop.cpu_seconds, 3),
        "longest_turn_seconds": round(tallies.loop.longest_turn_seconds, 4),
    }


def by_worker(workers: list[dict[str, Any]]) -> dict[str, dict[str, int | float]]:
    """Return the numbers of the workers by member, then by worker. Unknown ones are missing."""
    found: dict[str, dict[str, int | float]] = {"up": {}}
    for each in workers:
        number = str(each["number"])
        found["up"][number] = int(not each["silent"])
        for name, value in each.items():
            if value is not None:
                found.setdefault(name, {})[number] = value
    return found

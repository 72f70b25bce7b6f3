"""A snapshot of the agent, for /status and /metrics."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from oplogd import __version__
from oplogd.clock import Clock
from oplogd.errors import StoreUnavailableError
from oplogd.host.descriptors import Descriptors
from oplogd.ingest.counters import Counters
from oplogd.ingest.fenced import FencedQueue
from oplogd.ingest.queue import IngestQueue
from oplogd.ingest.spool import Spool
from oplogd.ingest.udp import UdpIngest
from oplogd.model.event_id import format_id
from oplogd.store import Store, StoreStats
from oplogd.stream.hub import Hub
from oplogd.stream.lags import Lags, survey
from oplogd.stream.ring.ring import Ring
from oplogd.watch.health import Health
from oplogd.watch.histogram import Histogram
from oplogd.watch.latency import LatencyProbe
from oplogd.watch.lease_counters import LeaseCounters
from oplogd.watch.turns import Turns
from oplogd.web.figures.asked import Asked
from oplogd.web.figures.clock import ClockFigures
from oplogd.web.figures.consumers import consumer_members, lag_members
from oplogd.web.figures.topics import TopicFigures
from oplogd.web.figures.transactions import PointerFigures, TransactionFigures
from oplogd.web.http.redact import without_folders

_Members = dict[str, Any]


class StoreProbe:
    """Asks the store how it is. Messages never name the folders of ``private_files``."""

    def __init__(
        self,
        store: Store,
        health: Health,
        ring: Ring,
        private_files: Collection[Path | None],
        clock: ClockFigures,
    ) -> None:
        self._store = store
        self._location = Asked(store.locate)
        self._stats = Asked(store.stats)
        self._clock = clock
        self._health = health
        self._ring = ring
        self._private_files = private_files

    async def trouble(self) -> str | None:
        """Return why the store or a part of the agent does not work, None if all do."""
        try:
            await self._location.answer()
        except StoreUnavailableError as error:
            return str(error)
        return self._health.trouble

    async def members(self) -> tuple[list[str], _Members]:
        """Return all troubles, and the member ``store``.

        If the store does not answer, that is only its kind, and its identity if that is known.
        """
        stats: StoreStats | None = None
        troubles = self._health.troubles
        try:
            stats = await self._stats.answer()
        except StoreUnavailableError as error:
            troubles = [str(error), *troubles]
        identity = self._store.identity
        members = {
            "kind": self._store.kind,
            **({"identity": identity} if identity else {}),
            **(self._figures(stats) if stats else {}),
        }
        return [self._redacted(trouble) for trouble in dict.fromkeys(troubles)], members

    def _figures(self, stats: StoreStats) -> _Members:
        warnings = [
            self._redacted(warning) for warning in (*stats.warnings, *self._clock.warnings())
        ]
        head = self._ring.head.offset
        newest = stats.newest.offset if stats.newest else head
        return {
            "ops": stats.operations,
            "states": stats.states,
            "live": None if stats.deleted is None else stats.states - stats.deleted,
            "deleted": stats.deleted,
            "bytes": stats.bytes,
            "max_bytes": stats.max_bytes,
            **({} if stats.wal_bytes is None else {"wal_bytes": stats.wal_bytes}),
            "oldest_id": format_id(stats.oldest) if stats.oldest else None,
            "newest_id": format_id(stats.newest) if stats.newest else None,
            **({"warnings": warnings} if warnings else {}),
            "lag": {"fold": stats.lag, "follower": max(0, newest - head)},
        }

    def _redacted(self, text: str) -> str:
        return without_folders(text, self._private_files)


class StatusReport:
    """Collects the members of /status from all parts. They contain no setting, so no secret.

    ``started`` is in monotonic seconds.
    """

    def __init__(
        self,
        *,
        store: StoreProbe,
        counters: Counters,
        queue: IngestQueue,
        fenced: FencedQueue,
        udp: UdpIngest,
        spool: Spool | None,
        latency: LatencyProbe,
        turns: Turns,
        ring: Ring,
        hub: Hub,
        topics: TopicFigures,
        transactions: TransactionFigures,
        pointers: PointerFigures,
        leases: LeaseCounters,
        descriptors: Descriptors,
        disk: Callable[[], _Members | None],
        bodies_refused: Mapping[str, int],
        passwords_refused: Callable[[], Mapping[str, int]],
        rates: Callable[[], Mapping[str, float]],
        started: float,
        clock: Clock,
        clock_figures: ClockFigures,
    ) -> None:
        self._clock = clock
        self._clock_figures = clock_figures
        self._store = store
        self._counters = counters
        self._queue = queue
        self._fenced = fenced
        self._udp = udp
        self._spool = spool
        self._latency = latency
        self._turns = turns
        self._ring = ring
        self._hub = hub
        self._topics = topics
        self._transactions = transactions
        self._pointers = pointers
        self._leases = leases
        self._descriptors = descriptors
        self._disk = disk
        self._bodies_refused = bodies_refused
        self._passwords_refused = passwords_refused
        self._rates = rates
        self._started = started

    async def lags(self) -> Lags:
        return await survey(self._hub.consumers, self._clock.now_ms())

    async def members(self, lags: Lags) -> _Members:
        """Return the members for everybody."""
        (troubles, store), topics, transactions, pointers = await asyncio.gather(
            self._store.members(),
            self._topics.members(),
            self._transactions.members(),
            self._pointers.members(),
        )
        return {
            "status": "DEGRADED" if troubles else "OK",
            **({"reason": "; ".join(troubles)} if troubles else {}),
            "version": __version__,
            "uptime_seconds": round(self._clock.monotonic() - self._started, 1),
            **self._ingest_members(),
            **self._stream_members(lags),
            "connections_refused": self._descriptors.refused,
            "descriptors": await self._descriptors.members(),
            "bodies_refused": dict(self._bodies_refused),
            "passwords_refused": dict(self._passwords_refused()),
            "commit_seconds": _histogram(self._counters.commit_seconds),
            "ingest_to_send_seconds": _histogram(self._latency.seconds),
            "loop": self._loop_members(),
            "rates": dict(self._rates()),
            "store": store,
            **({"disk": disk} if (disk := self._disk()) else {}),
            "clock": self._clock_figures.members(),
            "topics": topics,
            "transactions": transactions,
            "pointers": pointers,
            "leases": self._leases.counts._asdict(),
        }

    async def private_members(self, lags: Lags) -> _Members:
        """Return the members only for clients that may read the stream."""
        datagrams = self._udp.refused.described()
        return {**await consumer_members(lags), "refused_datagrams": datagrams}

    def _loop_members(self) -> _Members:
        turns = self._turns
        return {
            "cpu_seconds": round(turns.cpu, 3),
            "longest_turn_seconds": round(turns.longest, 4),
            "longest_turn_seconds_last_minute": round(
                turns.longest_last_minute(time.monotonic()), 4
            ),
        }

    def _ingest_members(self) -> _Members:
        counters, queue, fenced = self._counters, self._queue, self._fenced
        spool = self._spool
        return {
            "events_received": counters.received,
            "events_ingested": counters.ingested,
            "events_error": counters.error,
            "events_discarded": counters.discarded,
            "events_stale": counters.stale,
            "events_with_ignored_members": counters.ignoring,
            "events_spooled": counters.spooled,
            "events_recovered": counters.recovered,
            "events_dropped_kernel": self._udp.kernel_drops(),
            "datagrams_refused": self._udp.refused.count,
            "queue_size": queue.operations + fenced.count,
            "queue_max_size": queue.max_operations,
            "queue_bytes": queue.bytes + fenced.bytes,
            "queue_max_bytes": queue.max_bytes,
            "spool": {
                "operations": counters.in_spool,
                "bytes": spool.bytes if spool else 0,
                "max_bytes": spool.max_bytes if spool else 0,
            },
        }

    def _stream_members(self, lags: Lags) -> _Members:
        hub, ring = self._hub, self._ring
        return {
            "events_sent": hub.counters.events_sent,
            "clients": len(hub.consumers),
            "held_consumers": hub.held,
            "connections": hub.connections,
            "consumer_lag": lag_members(lags.largest),
            "consumers_refused": hub.refused,
            "fallbacks": {"store": hub.counters.to_store, "states": hub.counters.to_states},
            "ring": {
                "operations": len(ring.window),
                "max_operations": ring.max_entries,
                "bytes": ring.window.size,
                "max_bytes": ring.max_bytes,
            },
        }


def _histogram(histogram: Histogram) -> _Members:
    return {
        "count": histogram.count,
        "sum": round(histogram.sum, 6),
        "buckets": histogram.buckets(),
    }

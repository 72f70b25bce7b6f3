"""The figures of the agent: a nested mapping, of which /status and /metrics show members."""

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path
from time import monotonic
from typing import Any

from oplogd import __version__
from oplogd.agent import Agent
from oplogd.clock.guard import GuardedClock, text_of
from oplogd.clock.keeper import ClockKeeper
from oplogd.errors import StoreUnavailableError
from oplogd.model.event_id import format_id
from oplogd.store import StoreStats
from oplogd.stream.lags import Lags, survey
from oplogd.watch.histogram import Histogram
from oplogd.web.figures.consumers import consumer_members, lag_members
from oplogd.web.figures.question import DecidedFigures, Question
from oplogd.web.figures.topics import TopicFigures
from oplogd.web.http.problem import without_folders

_Members = dict[str, Any]


class StatusReport:
    """Collects figures from all parts of the agent. They contain no setting, so no secret.

    Messages never name the folders of ``private_files``. ``refusals``: returns the members about
    refused requests.
    """

    def __init__(
        self,
        agent: Agent,
        private_files: Collection[Path | None],
        refusals: Callable[[], _Members],
    ) -> None:
        store = agent.store
        self._agent = agent
        self._private_files = private_files
        self._location = Question(store.locate)
        self._store_stats = Question(store.stats)
        self._refusals = refusals
        self._topics = TopicFigures(store.topics, agent.topics, agent.feeds, agent.hub)
        self._transactions = DecidedFigures(
            store.transactions, "transactions", "oldest_open_seconds", agent.clock
        )
        self._pointers = DecidedFigures(store.pointers, "pointers", "oldest_seconds", agent.clock)

    async def trouble(self) -> str | None:
        """Return why the store or a part of the agent does not work, None if all do."""
        try:
            await self._location.answer()
        except StoreUnavailableError as error:
            return str(error)
        return self._agent.health.trouble

    async def lags(self) -> Lags:
        """Measure the lag of each consumer."""
        return await survey(self._agent.hub.consumers, self._agent.clock.now_ms())

    async def members(self, lags: Lags) -> _Members:
        """Return the members of /status for all clients."""
        agent, turns = self._agent, self._agent.turns
        (troubles, store), topics, transactions, pointers = await asyncio.gather(
            self._store_members(),
            self._topics.members(),
            self._transactions.members(),
            self._pointers.members(),
        )
        return {
            "status": "DEGRADED" if troubles else "OK",
            **({"reason": "; ".join(troubles)} if troubles else {}),
            "version": __version__,
            "uptime_seconds": round(agent.clock.monotonic() - agent.started, 1),
            **_ingest_members(agent),
            **_stream_members(agent, lags),
            "connections_refused": agent.descriptors.refused,
            "descriptors": await agent.descriptors.members(),
            **self._refusals(),
            "commit_seconds": _histogram(agent.counters.commit_seconds),
            "ingest_to_send_seconds": _histogram(agent.latency.seconds),
            "loop": {
                "cpu_seconds": round(turns.cpu, 3),
                "longest_turn_seconds": round(turns.longest, 4),
                "longest_turn_seconds_last_minute": round(
                    turns.longest_last_minute(monotonic()), 4
                ),
            },
            "rates": agent.rates._asdict(),
            "store": store,
            **({"disk": disk} if (disk := agent.gate.members()) else {}),
            "clock": clock_members(agent.store.clock, agent.clock_keeper),
            "topics": topics,
            "transactions": transactions,
            "pointers": pointers,
            "leases": agent.leases.counts._asdict(),
        }

    async def private_members(self, lags: Lags) -> _Members:
        """Return the members of /status only for clients with the right to read the stream."""
        datagrams = self._agent.udp.refused.described()
        return {**await consumer_members(lags), "refused_datagrams": datagrams}

    async def figures(self) -> _Members:
        """Return the members of /status for all clients, and the members only of /metrics."""
        lags = await self.lags()
        members = await self.members(lags)
        decided = ("committed", "aborted", "timed_out")
        names = lags.names.items()
        return members | {
            "pointer_decisions": {name: members["pointers"][name] for name in decided},
            "named_consumers": {name: each.consumers for name, each in names},
            "named_consumer_lag": {
                "operations": {name: each.lag.operations for name, each in names},
                "seconds": {name: each.lag.seconds for name, each in names},
            },
            "consumer_names_left_out": lags.names_left_out,
            "topic": self._topics.by_topic(),
            "store_up": members["status"] == "OK",
            "info": {(__version__, members["store"]["kind"]): 1},
        }

    async def _store_members(self) -> tuple[list[str], _Members]:
        """Return all troubles, and the member ``store``.

        If the store does not answer, the member has only its kind and its identity, if known.
        """
        store, stats = self._agent.store, None
        troubles = self._agent.health.troubles
        try:
            stats = await self._store_stats.answer()
        except StoreUnavailableError as error:
            troubles = [str(error), *troubles]
        members = {
            "kind": store.kind,
            **({"identity": store.identity} if store.identity else {}),
            **(self._from_stats(stats) if stats else {}),
        }
        return [self._redacted(trouble) for trouble in dict.fromkeys(troubles)], members

    def _from_stats(self, stats: StoreStats) -> _Members:
        clock = clock_warnings(self._agent.store.clock, self._agent.clock_keeper)
        warnings = [self._redacted(warning) for warning in (*stats.warnings, *clock)]
        head = self._agent.ring.head.offset
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


def _ingest_members(agent: Agent) -> _Members:
    counters, queue, fenced, spool = agent.counters, agent.queue, agent.fenced, agent.spool
    return {
        "events_received": counters.received,
        "events_ingested": counters.ingested,
        "events_error": counters.error,
        "events_discarded": counters.discarded,
        "events_stale": counters.stale,
        "events_with_ignored_members": counters.ignoring,
        "events_spooled": counters.spooled,
        "events_recovered": counters.recovered,
        "events_dropped_kernel": agent.udp.kernel_drops(),
        "datagrams_refused": agent.udp.refused.count,
        "queue_size": agent.queued,
        "queue_max_size": queue.max_operations,
        "queue_bytes": queue.bytes + fenced.bytes,
        "queue_max_bytes": queue.max_bytes,
        "spool": {
            "operations": counters.in_spool,
            "bytes": spool.bytes if spool else 0,
            "max_bytes": spool.max_bytes if spool else 0,
        },
    }


def _stream_members(agent: Agent, lags: Lags) -> _Members:
    hub, ring = agent.hub, agent.ring
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


def clock_members(clock: GuardedClock, keeper: ClockKeeper) -> _Members:
    """Return the member ``clock`` of /status."""
    step = clock.step()
    return {
        "paused": 0 if step is None or step.is_stop else 1,
        "waiting": [] if step is None else list(step.waiting),
        "step_seconds": 0.0 if step is None else step.seconds,
        "from": None if step is None else text_of(step.from_ms),
        "to": None if step is None else text_of(step.to_ms),
        "ahead_seconds": keeper.ahead_ms // 1000,
    }


def clock_warnings(clock: GuardedClock, keeper: ClockKeeper) -> list[str]:
    """Return sentences for people."""
    step = clock.step()
    warnings = [] if keeper.warning is None else [keeper.warning]
    if step is not None and not step.is_stop:
        stepped = (
            f"the clock stepped by {step.seconds:+.0f} s, from {text_of(step.from_ms)} to"
            f" {text_of(step.to_ms)}: {' and '.join(step.waiting)} do not follow it yet"
        )
        return [stepped, *warnings]
    return warnings

"""What /status and /metrics tell: one snapshot of the agent."""

import asyncio
import time
from typing import Any

from oplogd import __version__
from oplogd.agent import Agent
from oplogd.errors import StoreUnavailableError
from oplogd.event_id import format_id
from oplogd.histogram import Histogram
from oplogd.store import StoreStats
from oplogd.stream.lags import Lags
from oplogd.web.consumers import lag_members
from oplogd.web.redact import without_folders

STORE_TIMEOUT_SECONDS = 2.0


async def store_trouble(agent: Agent) -> str | None:
    """Ask the store itself; what is wrong with it, None if nothing."""
    try:
        async with asyncio.timeout(STORE_TIMEOUT_SECONDS):
            await agent.store.locate()
    except StoreUnavailableError as error:
        return str(error)
    except TimeoutError:
        return f"the store did not answer within {STORE_TIMEOUT_SECONDS:g} s"
    return agent.health.trouble


async def status(agent: Agent, lags: Lags) -> dict[str, Any]:
    """The members of /status that everybody may see. They hold no setting, so no secret."""
    stats: StoreStats | None = None
    troubles = agent.health.troubles
    try:
        async with asyncio.timeout(STORE_TIMEOUT_SECONDS):
            stats = await agent.store.stats()
    except StoreUnavailableError as error:
        troubles = [str(error), *troubles]
    except TimeoutError:
        troubles = [f"the store did not answer within {STORE_TIMEOUT_SECONDS:g} s", *troubles]
    files = (agent.settings.store, agent.settings.spool)
    reasons = [without_folders(trouble, files) for trouble in dict.fromkeys(troubles)]
    counters, queue, ring, hub = agent.counters, agent.queue, agent.ring, agent.hub
    return {
        "status": "DEGRADED" if troubles else "OK",
        **({"reason": "; ".join(reasons)} if troubles else {}),
        "version": __version__,
        "uptime_seconds": round(time.monotonic() - agent.started, 1),
        "events_received": counters.received,
        "events_ingested": counters.ingested,
        "events_error": counters.error,
        "events_discarded": counters.discarded,
        "events_spooled": counters.spooled,
        "events_recovered": counters.recovered,
        "events_dropped_kernel": agent.udp.kernel_drops(),
        "datagrams_refused": agent.udp.refused.count,
        "events_sent": hub.counts.events_sent,
        "queue_size": queue.operations,
        "queue_max_size": queue.max_operations,
        "queue_bytes": queue.bytes,
        "queue_max_bytes": queue.max_bytes,
        "spool": {
            "operations": counters.in_spool,
            "bytes": agent.spool.bytes if agent.spool else 0,
            "max_bytes": agent.spool.max_bytes if agent.spool else 0,
        },
        "clients": len(hub.consumers),
        "connections": hub.connections,
        "consumer_lag": lag_members(lags.largest),
        "consumers_refused": hub.refused,
        "fallbacks": {"store": hub.counts.to_store, "states": hub.counts.to_states},
        "commit_seconds": _histogram(counters.commit_seconds),
        "ingest_to_send_seconds": _histogram(agent.passage.seconds),
        "rates": agent.rates._asdict(),
        "ring": {
            "operations": len(ring.window),
            "max_operations": ring.max_entries,
            "bytes": ring.window.size,
            "max_bytes": ring.max_bytes,
        },
        "store": {"kind": agent.store.kind, **(_store(stats, agent) if stats else {})},
    }


def _histogram(histogram: Histogram) -> dict[str, Any]:
    return {
        "count": histogram.count,
        "sum": round(histogram.sum, 6),
        "buckets": histogram.buckets(),
    }


def _store(stats: StoreStats, agent: Agent) -> dict[str, Any]:
    warnings = [
        without_folders(warning, (agent.settings.store, agent.settings.spool))
        for warning in stats.warnings
    ]
    newest = stats.newest.offset if stats.newest else agent.ring.head.offset
    return {
        "ops": stats.operations,
        "states": stats.states,
        "live": None if stats.deleted is None else stats.states - stats.deleted,
        "deleted": stats.deleted,
        "bytes": stats.bytes,
        "max_bytes": stats.max_bytes,
        "oldest_id": format_id(stats.oldest) if stats.oldest else None,
        "newest_id": format_id(stats.newest) if stats.newest else None,
        **({"warnings": warnings} if warnings else {}),
        "lag": {"fold": stats.lag, "follower": max(0, newest - agent.ring.head.offset)},
    }

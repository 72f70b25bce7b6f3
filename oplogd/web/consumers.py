"""The connected consumers for /status: who they are, what they want and how far behind they are."""

import heapq
from collections.abc import Iterable
from typing import Any

from oplogd.agent import Agent
from oplogd.operation import format_ms, now_ms
from oplogd.stream.consumer import Consumer
from oplogd.stream.pace import Pace

MAX_CONSUMERS = 1_000
_MAX_VALUES = 10
_MAX_VALUE = 100
"""A filter may be as long as a URL; of each list so many values and characters are shown."""


async def consumers(agent: Agent) -> dict[str, Any]:
    """Members for /status: those that lag most first, at most MAX_CONSUMERS, and how many more there are."""
    now = now_ms()
    everyone: list[tuple[int, float, int, Consumer]] = []
    pace = Pace()
    for consumer in list(agent.hub.consumers):
        everyone.append((*_lag(consumer, now), -consumer.id, consumer))
        await pace.rest()
    worst = heapq.nlargest(MAX_CONSUMERS, everyone)
    members: list[dict[str, Any]] = []
    for count, age, _, consumer in worst:
        await pace.rest()
        members.append(_describe(consumer, count, age))
    return {"consumers": members, "consumers_left_out": len(everyone) - len(members)}


def _lag(consumer: Consumer, now: int) -> tuple[int, float]:
    """Operations not handed out yet, and the age of the oldest of them in seconds."""
    lag = consumer.lag()
    return lag.operations, max(0, now - lag.oldest_ms) / 1000 if lag.operations else 0.0


def _describe(consumer: Consumer, operations: int, seconds: float) -> dict[str, Any]:
    filter_ = consumer.view.filter
    types, parents = _shown(filter_.types), _shown(filter_.parents)
    left_out = len(filter_.types) + len(filter_.parents) - len(types) - len(parents)
    return {
        "id": consumer.id,
        "address": consumer.address,
        "filter": {"types": types, "parents": parents, "left_out": left_out},
        "phase": consumer.phase,
        "position": consumer.position,
        "lag": {"operations": operations, "seconds": round(seconds, 3)},
        "sent": consumer.sent,
        "connected_since": format_ms(int(consumer.connected_at * 1000)),
    }


def _shown(values: Iterable[str]) -> list[str]:
    shown = heapq.nsmallest(_MAX_VALUES, values)
    return [value if len(value) <= _MAX_VALUE else f"{value[: _MAX_VALUE - 1]}…" for value in shown]

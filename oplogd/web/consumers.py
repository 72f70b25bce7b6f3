"""The connected consumers for /status: who they are, what they want and how far behind they are."""

import asyncio
import heapq
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from oplogd.agent import Agent
from oplogd.operation import format_ms, now_ms
from oplogd.stream.consumer import Consumer

MAX_CONSUMERS = 1_000
_A_TURN = 250
"""Consumers looked at in one turn of the event loop: ten thousand at once would keep it from all else for 100 ms."""

_T = TypeVar("_T")
_MAX_VALUES = 10
_MAX_VALUE = 100
"""A filter may be as long as a URL; of each list so many values and characters are shown."""


async def consumers(agent: Agent) -> dict[str, Any]:
    """Members for /status: those that lag most first, at most MAX_CONSUMERS, and how many more there are."""
    now = now_ms()
    everyone: list[tuple[int, float, int, Consumer]] = []
    for batch in _batched(list(agent.hub.consumers)):
        everyone += [(*_lag(consumer, now), -consumer.id, consumer) for consumer in batch]
        await asyncio.sleep(0)
    worst = heapq.nlargest(MAX_CONSUMERS, everyone)
    members: list[dict[str, Any]] = []
    for rows in _batched(worst):
        await asyncio.sleep(0)
        members += [_describe(consumer, count, age) for count, age, _, consumer in rows]
    return {"consumers": members, "consumers_left_out": len(everyone) - len(members)}


def _batched(items: list[_T]) -> Iterator[list[_T]]:
    return (items[first : first + _A_TURN] for first in range(0, len(items), _A_TURN))


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

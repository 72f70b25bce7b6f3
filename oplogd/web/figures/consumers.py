"""The connected consumers for /status: identity, filter and lag."""

import heapq
from collections.abc import Iterable
from typing import Any

from oplogd.model.names import OPLOG
from oplogd.model.operation import format_ms
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.follower import Pace
from oplogd.stream.lags import Lags, MeasuredLag

MAX_CONSUMERS = 1_000

# A filter may be as long as a URL. Maximum values shown per list, and maximum length of each.
_MAX_VALUES = 10
_MAX_VALUE_LENGTH = 100
# Sets that few filters have.
_FEW = ("within", "ids", "events")


async def consumer_members(lags: Lags) -> dict[str, Any]:
    """Return the MAX_CONSUMERS with the largest lag for /status, and the number left out."""
    pace = Pace()
    members: list[dict[str, Any]] = []
    for lag, _, consumer in heapq.nlargest(MAX_CONSUMERS, lags.each):
        await pace.rest()
        members.append(_describe(consumer, lag))
    return {"consumers": members, "consumers_left_out": len(lags.each) - len(members)}


def _describe(consumer: StreamConsumer, lag: MeasuredLag) -> dict[str, Any]:
    filter_ = consumer.view.filter
    lists = {
        "types": filter_.types,
        "parents": filter_.parents,
        **{name: values for name in _FEW if (values := getattr(filter_, name))},
    }
    shown = {name: _shown(values) for name, values in lists.items()}
    left_out = sum(len(values) - len(shown[name]) for name, values in lists.items())
    shard = {} if filter_.shard is None else {"shard": str(filter_.shard)}
    topic: dict[str, Any] = {}
    if consumer.topic != OPLOG:
        held_by = None if consumer.held_by is None else str(consumer.held_by)
        topic = {"topic": str(consumer.topic), "held_by": held_by}
    return {
        "id": consumer.id,
        "name": consumer.name,
        **topic,
        "address": consumer.address,
        "filter": {**shown, "left_out": left_out, **shard},
        "phase": consumer.phase.name,
        "position": consumer.phase.position,
        "lag": lag_members(lag),
        "sent": consumer.sent,
        "connected_since": format_ms(int(consumer.connected_at * 1000)),
    }


def lag_members(lag: MeasuredLag) -> dict[str, int | float]:
    return {"operations": lag.operations, "seconds": round(lag.seconds, 3)}


def _shown(values: Iterable[str]) -> list[str]:
    return [_cut(value) for value in heapq.nsmallest(_MAX_VALUES, values)]


def _cut(value: str) -> str:
    return value if len(value) <= _MAX_VALUE_LENGTH else f"{value[: _MAX_VALUE_LENGTH - 1]}…"

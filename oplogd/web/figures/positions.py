"""The figures of the positions that named consumers have acknowledged."""

from typing import Any

from oplogd.clock import Clock
from oplogd.model.consumer import ShardKey
from oplogd.topics.consumers.figures import ConsumerFigures, Figures
from oplogd.topics.consumers.lags import ShardLag
from oplogd.topics.consumers.service import NamedConsumers

_Numbers = dict[tuple[str, str], float]


class PositionFigures:
    """The figures of the store: each agent on it tells the same."""

    def __init__(self, consumers: NamedConsumers, clock: Clock) -> None:
        self._figures = ConsumerFigures(consumers, clock)
        self._found: Figures | None = None

    async def members(self) -> dict[str, Any]:
        """Return the members, without names. None: unknown, the store does not answer."""
        found = self._found = await self._figures.figures()
        largest = found and found.largest
        return {
            "consumers": found and found.consumers,
            "lag": largest and largest.entries,
            "lag_seconds": largest and round(largest.seconds, 3),
            "left_seconds": largest and largest.left_seconds,
            "left_out": found and found.left_out,
        }

    def by_shard(self) -> dict[str, _Numbers]:
        """Return the figures of single shards, as of the last call of ``members``."""
        shown: dict[ShardKey, ShardLag] = self._found.shown if self._found else {}
        left = {key: lag.left_seconds for key, lag in shown.items()}
        return {
            "lag": {_labels(key): lag.entries for key, lag in shown.items()},
            "lag_seconds": {_labels(key): round(lag.seconds, 3) for key, lag in shown.items()},
            "left_seconds": {_labels(key): each for key, each in left.items() if each is not None},
        }


def _labels(key: ShardKey) -> tuple[str, str]:
    return key.name, str(key.shard)

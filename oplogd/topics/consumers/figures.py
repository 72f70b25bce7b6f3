"""The figures of all named consumers, for /status and /metrics."""

import asyncio
import heapq
import logging
from typing import NamedTuple

from oplogd.clock import Clock
from oplogd.errors import PositionError, StoreUnavailableError, TopicNotFoundError
from oplogd.model.consumer import ShardKey
from oplogd.model.names import TopicName
from oplogd.store.consumers import ConsumerRow
from oplogd.stream.follower import Pace
from oplogd.topics.consumers.lags import NO_LAG, Retention, ShardLag
from oplogd.topics.consumers.positions import Positions
from oplogd.topics.consumers.service import NamedConsumers

# Most names with figures of their own, and most shards of all of them.
MAX_NAMES = 200
MAX_SHARDS = 2_000

# Figures stay fresh for so many seconds, or longer: measuring takes this part of the time at most.
FRESH_SECONDS = 1.0
_PART = 0.05

# Longest wait for new figures. After it the last ones are told, until the new ones are there.
WAIT_SECONDS = 2.0

_PAGE = 200

logger = logging.getLogger("oplogd.consumers")


class Figures(NamedTuple):
    """``consumers``: number of all. ``shown``: lags of those that are furthest behind.

    ``largest``: the largest of each figure. ``left_out``: names without figures of their own.
    """

    consumers: int
    shown: dict[ShardKey, ShardLag]
    largest: ShardLag
    left_out: int


class _Log(NamedTuple):
    """The positions of a log, and the one behind its newest entry."""

    positions: Positions
    head: str


class ConsumerFigures:
    """Measures all named consumers. The longer it takes, the less often."""

    def __init__(self, consumers: NamedConsumers, clock: Clock) -> None:
        self._consumers = consumers
        self._clock = clock
        # Monotonic time until when the figures are fresh.
        self._fresh_until = float("-inf")
        self._found: Figures | None = None
        self._measuring: asyncio.Task[None] | None = None

    async def figures(self) -> Figures | None:
        """Return fresh figures, or the last ones while measuring takes long.

        None: the store does not answer, or the first measuring takes long.
        """
        task = self._measuring
        if task is None or task.done():
            if self._clock.monotonic() < self._fresh_until:
                return self._found
            task = self._measuring = asyncio.create_task(self._renew(), name="named consumers")
            await asyncio.wait({task}, timeout=WAIT_SECONDS)
        return self._found

    async def _renew(self) -> None:
        began = self._clock.monotonic()
        try:
            self._found = await self._measure()
        except StoreUnavailableError:
            self._found = None
        except Exception as error:
            logger.error("the figures of named consumers are unknown", exc_info=error)
            self._found = None
        now = self._clock.monotonic()
        self._fresh_until = now + max(FRESH_SECONDS, (now - began) / _PART)

    async def _measure(self) -> Figures:
        consumers, pace = self._consumers, Pace()
        count, after = 0, ""
        logs: dict[TopicName, _Log | None] = {}
        worst: list[tuple[float, str, list[ShardLag]]] = []
        retention: Retention | None = None
        largest = NO_LAG
        while rows := await consumers.select(after, _PAGE):
            retention = retention or await consumers.lags.retention()
            for row in rows:
                lags = await self._lags(row, logs, retention)
                largest = _larger(largest, lags)
                item = max(lag.seconds for lag in lags), row.consumer.name, lags
                keep = heapq.heappush if len(worst) < MAX_NAMES else heapq.heappushpop
                keep(worst, item)
                await pace.rest()
            count, after = count + len(rows), rows[-1].consumer.name
        shown: dict[ShardKey, ShardLag] = {}
        names = 0
        for _, name, lags in sorted(worst, reverse=True):
            if len(shown) + len(lags) <= MAX_SHARDS:
                names += 1
                shown |= {ShardKey(name, number): lag for number, lag in enumerate(lags)}
        return Figures(count, shown, largest, count - names)

    async def _lags(
        self, row: ConsumerRow, logs: dict[TopicName, _Log | None], retention: Retention
    ) -> list[ShardLag]:
        """Return the lags of a consumer. Most shards at the head of their log cost no look-up."""
        settings = row.consumer.settings
        if settings.log not in logs:
            try:
                positions = await self._consumers.positions_of(settings)
                logs[settings.log] = _Log(positions, await positions.now())
            except TopicNotFoundError:
                logs[settings.log] = None
        log = logs[settings.log]
        if log is None:
            return [NO_LAG] * settings.shards
        lags = []
        for number, shard in enumerate(row.shards):
            is_at_head = len(shard.position) == len(log.head) and shard.position >= log.head
            if is_at_head:
                lags.append(NO_LAG)
            else:
                found = self._consumers.lags.of(settings, log.positions, number, shard, retention)
                try:
                    lags.append(await found)
                except (PositionError, TopicNotFoundError):  # damaged, or deleted meanwhile
                    lags.append(NO_LAG)
        return lags


def _larger(one: ShardLag, others: list[ShardLag]) -> ShardLag:
    left = [each.left_seconds for each in (one, *others) if each.left_seconds is not None]
    return ShardLag(
        max(one.entries, *(each.entries for each in others)),
        max(one.seconds, *(each.seconds for each in others)),
        False,
        min(left, default=None),
    )

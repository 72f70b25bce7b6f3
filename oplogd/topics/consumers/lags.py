"""How far the positions of a named consumer are behind its log."""

import math
from typing import NamedTuple

from oplogd.model.consumer import ConsumerSettings, ShardPosition
from oplogd.model.event_id import EventId, Mark
from oplogd.store import Store
from oplogd.store.topics import Topic
from oplogd.stream.feeds import Feeds
from oplogd.stream.phases.start import sought
from oplogd.stream.ring.filters import Filter
from oplogd.stream.ring.ring import Ring
from oplogd.topics.consumers.positions import MessagePositions, OplogPositions, Positions


class ShardLag(NamedTuple):
    """Entries of a shard behind its position, and the age of the oldest in seconds.

    ``estimated``: the share of one shard in all entries behind the position. ``left_seconds``: time
    until the oldest leaves the log, at the present rate; None: nothing leaves soon.
    """

    entries: int
    seconds: float
    estimated: bool
    left_seconds: float | None = None


NO_LAG = ShardLag(0, 0.0, False)

# The oplog loses old operations soon if so much of its room is used.
_FULL = 0.9


# An entry leaves soon if this part of its time in the log has passed.
_SOON = 0.5


class Retention(NamedTuple):
    """How long logs keep entries. ``is_full``: each operation makes the oldest one leave the oplog.

    ``ttl``: time to live in seconds of topics without their own.
    """

    is_full: bool
    ttl: int


class _Ends(NamedTuple):
    """The last entry at or before a position, the newest one of the log, and the oldest one."""

    at: Mark
    head: Mark
    oldest: Mark | None
    now_ms: int


class Lags:
    """Measures positions. ``ring``: of the oplog."""

    def __init__(self, store: Store, ring: Ring, feeds: Feeds) -> None:
        self._store = store
        self._ring = ring
        self._feeds = feeds

    async def retention(self) -> Retention:
        """Ask the store how long logs keep entries."""
        stats = await self._store.stats()
        is_full = stats.bytes >= _FULL * stats.max_bytes > 0
        return Retention(is_full, await self._store.topics.default_ttl())

    async def of(
        self,
        settings: ConsumerSettings,
        positions: Positions,
        number: int,
        shard: ShardPosition,
        retention: Retention,
    ) -> ShardLag:
        """Return the lag of one shard."""
        if isinstance(positions, MessagePositions):
            ends = await self._ends_of_topic(positions, shard.position)
            ring = self._ring_of(positions.topic)
        else:
            assert isinstance(positions, OplogPositions)
            ends = await self._ends_of_oplog(positions, shard.position)
            ring = self._ring
        if ends.at.offset >= ends.head.offset:
            return NO_LAG
        found = _in_memory(ring, filter_of(settings, number), ends) if ring else None
        if found is None:
            entries = math.ceil((ends.head.offset - ends.at.offset) / settings.shards)
            found = entries, await self._next_ms(positions, ends), True
        entries, ms, estimated = found
        if not entries:
            return NO_LAG
        seconds = max(0, ends.now_ms - ms) / 1000 if ms else 0.0
        if positions.topic is None:
            left = _left_in_oplog(ends) if retention.is_full else None
        else:
            ttl = retention.ttl if positions.topic.ttl is None else positions.topic.ttl
            left = max(0.0, ttl - seconds) if seconds >= ttl * _SOON else None
        return ShardLag(entries, seconds, estimated, left)

    async def _next_ms(self, positions: Positions, ends: _Ends) -> int:
        """Return the time of the entry behind a position, of any shard. 0: it has gone."""
        if isinstance(positions, MessagePositions):
            entries = await positions.log.read(ends.at.offset, 1)
            return entries[0].written_ms or entries[0].ms if entries else 0
        return (await self._store.locate(ends.at.offset + 1)).at_ms or 0

    async def _ends_of_oplog(self, positions: OplogPositions, position: str) -> _Ends:
        at = positions.parse(position)
        offset = at.offset if isinstance(at, EventId) else 0
        bounds = await self._store.locate(offset)
        if isinstance(at, EventId) and offset <= bounds.head.offset:
            return _Ends(Mark(offset, at.ms), bounds.head, bounds.oldest, bounds.now_ms)
        mark = Mark(0, 0)
        if not isinstance(at, EventId) and at.ms:
            mark = await self._store.seek(at.ms - 1)
        oldest = bounds.oldest.offset - 1 if bounds.oldest else bounds.head.offset
        mark = mark._replace(offset=max(mark.offset, oldest))
        return _Ends(mark, bounds.head, bounds.oldest, bounds.now_ms)

    async def _ends_of_topic(self, positions: MessagePositions, position: str) -> _Ends:
        at = positions.parse(position)
        bounds = await positions.log.locate(*sought(at))
        return _Ends(bounds.at, bounds.head, None, bounds.now_ms)

    def _ring_of(self, topic: Topic) -> Ring | None:
        feed = self._feeds.get(topic.log)
        return feed.ring if feed is not None and feed.is_started else None


def filter_of(settings: ConsumerSettings, number: int) -> Filter:
    """Return the filter of the readers of one shard."""
    if settings.is_of_oplog:
        return Filter(settings.types, settings.parents, shard=settings.shard(number))
    return Filter(committed=settings.is_committed, shard=settings.shard(number))


def _left_in_oplog(ends: _Ends) -> float | None:
    """Return the seconds until the next operation leaves the oplog, as fast as it was filled."""
    oldest, head = ends.oldest, ends.head
    if oldest is None or head.offset <= oldest.offset:
        return None
    length, before = head.offset - oldest.offset, max(0, ends.at.offset + 1 - oldest.offset)
    if before > length * (1 - _SOON):
        return None
    return before * (head.ms - oldest.ms) / 1000 / length


def _in_memory(ring: Ring, filter_: Filter, ends: _Ends) -> tuple[int, int, bool] | None:
    """Return the entries behind a position, the time of the first, and whether they are estimated.

    None: memory does not know them.
    """
    after = ends.at.offset
    if after < ring.base or after > ring.head.offset or ring.head.offset < ends.head.offset:
        return None
    view = ring.views.get(filter_)
    if view is not None and (not view.postings or after >= view.start):
        entries, ms = view.remaining(after)
        return entries, ms, False
    return None

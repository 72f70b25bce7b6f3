"""The figures of topics for /status and /metrics."""

import heapq
from collections import Counter
from collections.abc import Mapping
from typing import Any

from oplogd.errors import StoreUnavailableError
from oplogd.model.names import OPLOG
from oplogd.store.numbers import MAX_LOG
from oplogd.store.topics import Topics
from oplogd.stream.feeds import Feeds
from oplogd.stream.hub import Hub
from oplogd.topics.counters import LABELS, OTHER
from oplogd.topics.parts import TopicParts
from oplogd.web.figures.question import Question


class TopicFigures:
    """Reads figures only: it consumes no message and changes no counter."""

    def __init__(self, topics: Topics, parts: TopicParts, feeds: Feeds, hub: Hub) -> None:
        self._stats = Question(topics.stats)
        self._parts = parts
        self._feeds = feeds
        self._hub = hub

    async def members(self) -> dict[str, Any]:
        """Return the members, without names of topics. None: unknown, the store does not answer."""
        queue, feeds = self._parts.queue, self._feeds.stats
        try:
            stats = await self._stats.answer()
        except StoreUnavailableError:  # the member ``store`` gives the reason
            stats = None
        return {
            "count": stats and stats.topics,
            "numbers_used": stats and stats.numbers,
            "numbers_free": stats and MAX_LOG - stats.numbers,
            "bytes": stats and stats.bytes,
            "max_bytes": stats and (stats.max_bytes or 0),
            "left_by_bytes": stats and stats.left,
            **self._parts.counters.counts._asdict(),
            "queue_size": queue.count,
            "queue_bytes": queue.bytes,
            "feeds": feeds.feeds,
            "feeds_bytes": feeds.bytes,
        }

    def by_topic(self) -> dict[str, Mapping[str, int]]:
        """Return the figures of each of the busiest topics."""
        counters = self._parts.counters
        return {
            "messages_published": counters.published.shown(),
            "messages_polled": counters.polled.shown(),
            "streams": self._streams(),
        }

    def _streams(self) -> Mapping[str, int]:
        counts = Counter(
            consumer.topic for consumer in self._hub.consumers if consumer.topic != OPLOG
        )
        most = heapq.nlargest(LABELS, counts.items(), key=lambda each: (each[1], each[0]))
        shown = {str(name): count for name, count in most}
        return {**shown, OTHER: counts.total() - sum(shown.values())}

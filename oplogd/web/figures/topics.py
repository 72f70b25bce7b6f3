"""The figures of topics for /status and /metrics."""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from oplogd.errors import StoreUnavailableError
from oplogd.model.names import OPLOG
from oplogd.store.numbers import MAX_LOG
from oplogd.store.topics import Topics, TopicStats
from oplogd.stream.feeds import Feeds
from oplogd.stream.hub import Hub
from oplogd.topics.counters import LABELS, OTHER
from oplogd.topics.parts import TopicParts
from oplogd.web.figures.asked import Asked


class TopicFigures:
    """Reads figures only: it consumes no message and changes no counter."""

    def __init__(self, topics: Topics, parts: TopicParts, feeds: Feeds, hub: Hub) -> None:
        self._stats = Asked(topics.stats)
        self._parts = parts
        self._feeds = feeds
        self._hub = hub

    async def members(self) -> dict[str, Any]:
        """Return the members for everybody: no name of a topic. Those of the store may be None."""
        queue, feeds = self._parts.queue, self._feeds.stats
        stats = await self._known_stats()
        return {
            "count": stats and stats.topics,
            "numbers_used": stats and stats.numbers,
            "numbers_free": stats and MAX_LOG - stats.numbers,
            "bytes": stats and stats.octets,
            "max_bytes": stats and (stats.max_bytes or 0),
            "left_by_bytes": stats and stats.left,
            **self._parts.counters.counts._asdict(),
            "queue_size": queue.count,
            "queue_bytes": queue.bytes,
            "feeds": feeds.feeds,
            "feeds_bytes": feeds.bytes,
        }

    async def _known_stats(self) -> TopicStats | None:
        try:
            return await self._stats.answer()
        except StoreUnavailableError:  # the store's own figures tell it
            return None

    def metrics(self) -> Iterable[Metric]:
        """Return the metrics with a label for each of the busiest topics."""
        counters = self._parts.counters
        yield _counter(
            "oplog_topic_messages_published",
            "Messages stored in a topic; topics without a label of their own: _other",
            counters.published.shown(),
        )
        yield _counter(
            "oplog_topic_messages_polled",
            "Messages sent in answers to polls of a topic",
            counters.polled.shown(),
        )
        streams = GaugeMetricFamily("oplog_topic_streams", "Streams of a topic", labels=["topic"])
        for name, count in self._streams().items():
            streams.add_metric([name], count)
        yield streams

    def _streams(self) -> Mapping[str, int]:
        counts = Counter(
            consumer.topic for consumer in self._hub.consumers if consumer.topic != OPLOG
        )
        most = heapq.nlargest(LABELS, counts.items(), key=lambda each: (each[1], each[0]))
        shown = {str(name): count for name, count in most}
        return {**shown, OTHER: counts.total() - sum(shown.values())}


def _counter(name: str, text: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=["topic"])
    for topic, count in counts.items():
        family.add_metric([topic], count)
    return family

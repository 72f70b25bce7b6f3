"""The figures of topics for /status and /metrics."""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from oplogd.errors import StoreUnavailableError
from oplogd.model.names import OPLOG
from oplogd.shared.page import Page
from oplogd.store.numbers import MAX_LOG
from oplogd.store.topics import Topics
from oplogd.stream.hub import Hub
from oplogd.topics.counters import LABELS, OTHER, ByTopic, TopicCounters, saved_in
from oplogd.web.figures.question import Question


class TopicFigures:
    """The figures of the store. Reading them changes no counter."""

    def __init__(self, topics: Topics) -> None:
        self._stats = Question(topics.stats)

    async def members(self) -> dict[str, Any]:
        """Return the members, without names of topics. None: unknown, the store does not answer."""
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
        }


def streams_of(hub: Hub) -> dict[str, int]:
    """Return the number of streams by topic."""
    return Counter(str(each.topic) for each in hub.consumers if each.topic != OPLOG)


def by_topic(
    own: TopicCounters, pages: Sequence[Page], streams: Counter[str]
) -> dict[str, Mapping[str, int]]:
    """Return the figures of each of the busiest topics. ``pages``: of all workers if many."""
    most = heapq.nlargest(LABELS, streams.items(), key=lambda each: (each[1], each[0]))
    shown = dict(most)
    saved = [saved_in(page) for page in pages] or [
        ByTopic(own.published.shown(), own.polled.shown())
    ]
    return {
        "messages_published": _summed(each.published for each in saved),
        "messages_polled": _summed(each.polled for each in saved),
        "streams": {**shown, OTHER: streams.total() - sum(shown.values())},
    }


def _summed(shown: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    found: Counter[str] = Counter({OTHER: 0})
    for each in shown:
        found.update(each)
    return found

"""The front of a topic: which of its entries are gone."""

from collections.abc import Mapping

from oplogd.clock.rule import MAX_LEAD_MS
from oplogd.event_id import Mark
from oplogd.store.mongo.search import LookUp, last_before
from oplogd.store.mongo.topics.layout import Document, floor_of, number


class Front:
    """The topic's document, and the rule that tells which of its entries are gone."""

    def __init__(self, catalogue: Document, document: Document, now_ms: int) -> None:
        own = document["ttl"]
        ttl = number(catalogue, "default_ttl") if own is None else own
        self.floor = floor_of(document)
        self._expired = max(self.floor.offset, number(document, "expired"))
        self.oldest_ms = now_ms - 1000 * ttl
        self._latest_ms = now_ms + MAX_LEAD_MS

    def may_be_gone(self, mark: Mark) -> bool:
        """Return whether an entry is gone, or its stamp is ahead and does not tell it."""
        return self.is_gone(mark) or self.is_ahead(mark)

    def is_ahead(self, mark: Mark) -> bool:
        return mark.ms > self._latest_ms

    def is_gone(self, mark: Mark) -> bool:
        return mark.offset <= self._expired or mark.ms < self.oldest_ms


async def last_written_before(
    low: Mark, newest: Mark, oldest_ms: int, look_up: LookUp, written: Mapping[int, int]
) -> Mark:
    """Return the last mark of an entry written before a time; ``low`` if there is none.

    For a log whose newest stamp is ahead. ``look_up`` notes times of writing in ``written``, by
    offset. Entries without that time were stamped while the clock was ahead: before all others.
    """

    def is_before(mark: Mark) -> bool:
        return written.get(mark.offset, 0) < oldest_ms

    await look_up([newest.offset])
    if newest.offset not in written or newest.offset == low.offset:
        return low
    front = newest
    if not is_before(newest):
        front = await last_before(low, newest, is_before, look_up)
    return front if front.offset in written else low

"""The front of a topic."""

from collections.abc import Iterable, Mapping

from oplogd.clock.ages import MAX_LEAD_MS, Present
from oplogd.model.event_id import Mark
from oplogd.store.mongo.link import topic_layout as layout
from oplogd.store.mongo.link.layout import Document
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.search import LookUp, last_before


class Front:
    """The topic's document, with the rule of the entries that are gone."""

    def __init__(self, catalogue: Document, document: Document, present: Present) -> None:
        own = document["ttl"]
        ttl = layout.number(catalogue, "default_ttl") if own is None else own
        self.floor = layout.floor_of(document)
        self.repaired = [(first, last) for first, last in catalogue.get("repaired", ())]
        self.purged = layout.number(document, "purged") if "purged" in document else 0
        self._expired = max(self.floor.offset, layout.number(document, "expired"))
        self.present = present
        # Entries dated before this are gone, and those with a time in the store before the other
        # one.
        self.oldest_date = present.ms - 1000 * ttl
        self.oldest_ms = present.ages.oldest(self.oldest_date)
        self._latest_ms = present.ms + MAX_LEAD_MS

    def may_be_gone(self, mark: Mark) -> bool:
        """Return whether an entry is gone, or its stamp is ahead and does not tell it."""
        return self.is_gone(mark) or self.is_ahead(mark)

    def is_ahead(self, mark: Mark) -> bool:
        return mark.ms > self._latest_ms

    def date(self, document: Document) -> int:
        """Return the start of the topic's time to live for an entry."""
        return self.present.date(layout.number(document, "ts"), document.get("t", 0))

    def is_gone(self, mark: Mark) -> bool:
        return mark.offset <= self._expired or mark.ms < self.oldest_ms


async def marks_at(
    link: Link, log: int, offsets: Iterable[int], written: dict[int, int] | None = None
) -> dict[int, Mark]:
    """Look up the marks of entries by offset. Note their times of writing in ``written``."""
    keys = [layout.place(log, offset) for offset in offsets]
    found: dict[int, Mark] = {}
    async for each in link.entries.find({"_id": {"$in": keys}}, layout.MARK_FIELDS):
        mark = layout.mark_of(each)
        found[mark.offset] = mark
        if written is not None and "t" in each:
            written[mark.offset] = layout.number(each, "t")
    return found


async def mark_at(link: Link, log: int, offset: int) -> Mark | None:
    """Return the mark of an entry, None if the entry is gone."""
    return (await marks_at(link, log, [offset])).get(offset)


async def last_written_before(
    low: Mark, newest: Mark, rule: Front, look_up: LookUp, times: Mapping[int, int]
) -> Mark:
    """Return the last mark of an entry gone by its time of writing; else ``low``.

    For a log whose newest stamp is ahead. ``look_up`` notes times of writing in ``times``, by
    offset. Entries without such a time were stamped while the clock was ahead: before all others.
    """

    def is_before(mark: Mark) -> bool:
        return times.get(mark.offset, 0) < rule.oldest_ms

    await look_up([newest.offset])
    if newest.offset not in times or newest.offset == low.offset:
        return low
    front = await last_before(low, newest, is_before, look_up)
    return front if front.offset in times and rule.is_ahead(front) else low

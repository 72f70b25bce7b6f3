"""The topics whose stamps are ahead. Their logs are noted in the store, for later starts.

Only logs in use by an agent are known. Looking up the heads of all topics would cost a request for
each.
"""

from collections.abc import Sequence

from pymongo import UpdateOne

from oplogd.clock.rule import MAX_LEAD_MS
from oplogd.model.message_id import stamp, unstamp
from oplogd.store.mongo.link import topic_layout as layout
from oplogd.store.mongo.link.damage import whole
from oplogd.store.mongo.link.layout import CLOCK, Document
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.topics.catalogue import Catalogue
from oplogd.store.mongo.topics.heads import TopicHeads

# Noted logs.
_MOST = 100

# Entries of one step of a repair.
_STEP = 100


class AheadTopics:
    def __init__(self, link: Link, catalogue: Catalogue, heads: TopicHeads) -> None:
        self._link = link
        self._catalogue = catalogue
        self._heads = heads
        # Logs noted or found by this agent. None: the agent has not looked yet.
        self._noted: set[int] | None = None

    async def newest_ms(self) -> int:
        """Return the newest time ahead, or of deleted topics."""
        latest = await self._link.now_ms() + MAX_LEAD_MS
        if self._noted is None:
            row = await self._link.meta.find_one({"_id": CLOCK}, {"ahead": 1}) or {}
            logs = row.get("ahead")
            found = map(whole, logs if isinstance(logs, list) else ())
            self._noted = {log for log in found if log is not None}
        if self._noted:
            await self._heads.newest(self._noted)
        ahead = self._heads.past(latest)
        noted, chosen = set(sorted(ahead)[:_MOST]), {"_id": CLOCK}
        if new := noted - self._noted:
            change = {"$addToSet": {"ahead": {"$each": sorted(new)}}}
            await self._link.meta.update_one(chosen, change, upsert=True)
        if gone := self._noted - noted:
            await self._link.meta.update_one(chosen, {"$pull": {"ahead": {"$in": sorted(gone)}}})
        self._noted = noted
        return max([await self._catalogue.ended_ms(), *ahead.values()])

    async def repair(self) -> None:
        """Repair the topics whose stamps are ahead, as a part of a new epoch. May be repeated.

        No agent runs meanwhile. Entries keep their offsets, and get stamps of the present. Their
        own times to live move along, so they begin again with the topic's. The span of the old
        stamps is stored: a reader with an id in it gets a gap unless an entry has this id.
        """
        now = stamp(await self._link.now_ms(), 0)
        await self._note_span(now)
        async for page in self._catalogue.pages():
            heads = await self._heads.newest([layout.log_of(each) for each in page])
            for document in page:
                head = heads.logs.get(layout.log_of(document))
                # An interrupted run may have moved all entries, and not yet ``purged``.
                newest = max(layout.stamp_of(head.mark), _purged(document)) if head else 0
                if newest - stamp(MAX_LEAD_MS, 0) > now:
                    await self._repair(document, now)
                    self._heads.forget(layout.log_of(document))
        topics = self._link.topics
        await topics.update_one({"_id": layout.CATALOGUE}, {"$min": {"ended_stamp": now}})
        await topics.delete_many({"_id": {"$gt": "!", "$lt": layout.CATALOGUE}})
        await self._catalogue.bump()

    async def _note_span(self, now: int) -> None:
        """Keep the span of the stamps ahead: see ``TopicBounds.repaired``."""
        topics = self._link.topics
        newest = max(now, stamp(await self._catalogue.ended_ms(), 0))
        async for each in topics.find({"_id": {"$gt": "!", "$lt": layout.CATALOGUE}}):
            newest = max(newest, layout.number(each, "stamp"))
        async for page in self._catalogue.pages():
            heads = await self._heads.newest([layout.log_of(each) for each in page])
            newest = max([newest, *(layout.stamp_of(each.mark) for each in heads.logs.values())])
        if newest > now:
            span = [unstamp(now)[0], unstamp(newest)[0]]
            await topics.update_one({"_id": layout.CATALOGUE}, {"$addToSet": {"repaired": span}})

    async def _repair(self, topic: Document, now: int) -> None:
        entries, log = self._link.entries, layout.log_of(topic)
        first: int | None = None
        purged, moved = _purged(topic), 0
        floor = min(now, layout.number(topic, "floor_stamp"))
        # Entries behind the floor, too: the sweep removes records by their dates.
        following, after = max(now, floor + 1), 0
        # The bytes of the topic are counted anew: their segments have the old times.
        await self._catalogue.update(topic, {"$set": {"floor_stamp": floor, "sizes": []}})
        while True:
            chosen = entries.find(
                {"_id": layout.places_of(log, after)}, {"ts": 1, "q": 1, "expires": 1}
            )
            if not (found := await chosen.sort("_id", 1).limit(_STEP).to_list()):
                break
            after = layout.number_and_offset(found[-1]["_id"])[1]
            ahead = [each for each in found if first is not None or _stamp(each) > now]
            for each in found[: len(found) - len(ahead)]:
                following = max(following, _stamp(each) + 1)
            if ahead:
                first = first or after
                await entries.bulk_write(_changes(ahead, following))
                own = (own for own, each in enumerate(ahead, following) if _stamp(each) >= purged)
                moved = moved or next(own, 0)
                following += len(ahead)
        if purged > now:  # readers from before the removed entries learn of it as before
            await self._catalogue.update(topic, {"$set": {"purged": moved or following}})


def _purged(topic: Document) -> int:
    return whole(topic.get("purged")) or 0


def _changes(entries: Sequence[Document], first: int) -> list[UpdateOne]:
    changes = []
    for own, each in enumerate(entries, first):
        ms, sequence = unstamp(own)
        members = {"ts": ms, "q": sequence}
        if "expires" in each:
            members["expires"] = each["expires"] - layout.number(each, "ts") + ms
        change: Document = {"$set": members, "$unset": {"t": ""}}
        changes.append(UpdateOne({"_id": each["_id"]}, change))
    return changes


def _stamp(document: Document) -> int:
    return stamp(layout.number(document, "ts"), layout.number(document, "q"))

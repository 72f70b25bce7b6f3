"""The topics whose heads are ahead. Their logs are noted in the store, for later starts.

Looking up the heads of all topics would cost a request for each. So only those are known that an
agent has used.
"""

from oplogd.clock.ages import MAX_LEAD_MS
from oplogd.store.mongo.link.damage import whole
from oplogd.store.mongo.link.layout import CLOCK
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.topics.catalogue import Catalogue
from oplogd.store.mongo.topics.heads import TopicHeads

# Logs that are noted.
_MOST = 100


class AheadTopics:
    def __init__(self, link: Link, catalogue: Catalogue, heads: TopicHeads) -> None:
        self._link = link
        self._catalogue = catalogue
        self._heads = heads
        # Logs that this agent has noted or found; None: it has not looked yet.
        self._noted: set[int] | None = None

    async def newest_ms(self) -> int:
        """Return the newest time that is ahead, or of deleted topics. Raises PyMongo's errors."""
        latest = await self._link.now_ms() + MAX_LEAD_MS
        if self._noted is None:
            row = await self._link.meta.find_one({"_id": CLOCK}, {"ahead": 1}) or {}
            logs = row.get("ahead")
            found = map(whole, logs if isinstance(logs, list) else ())
            self._noted = {log for log in found if log is not None}
        if self._noted:
            await self._heads.newest(self._noted)
        ahead = self._heads.past(latest)
        await self._note(self._noted, set(sorted(ahead)[:_MOST]))
        return max([await self._catalogue.ended_ms(), *ahead.values()])

    async def _note(self, before: set[int], ahead: set[int]) -> None:
        chosen = {"_id": CLOCK}
        if new := ahead - before:
            change = {"$addToSet": {"ahead": {"$each": sorted(new)}}}
            await self._link.meta.update_one(chosen, change, upsert=True)
        if gone := before - ahead:
            await self._link.meta.update_one(chosen, {"$pull": {"ahead": {"$in": sorted(gone)}}})
        self._noted = ahead

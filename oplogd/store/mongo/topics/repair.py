"""The repair of topics whose stamps are ahead, as a part of a new epoch. No agent runs meanwhile.

Entries keep their offsets, and get stamps of the present. Their own times to live move along, so
they begin again with the topic's. Positions in the old stamps are past the head by far: a reader
that has one gets a gap. It may be repeated.
"""

from collections.abc import Sequence

from pymongo import UpdateOne

from oplogd.clock.rule import MAX_LEAD_MS
from oplogd.message_id import stamp, unstamp
from oplogd.store.mongo.link import Link
from oplogd.store.mongo.topics.catalogue import Catalogue
from oplogd.store.mongo.topics.heads import TopicHeads
from oplogd.store.mongo.topics.layout import (
    CATALOGUE,
    Document,
    log_and_offset,
    number,
    places_of,
)

# Entries of one step.
_STEP = 100


class StampRepair:
    """Methods raise PyMongo's errors, and StoreUnavailableError."""

    def __init__(self, link: Link, catalogue: Catalogue, heads: TopicHeads) -> None:
        self._link = link
        self._catalogue = catalogue
        self._heads = heads

    async def run(self) -> None:
        now = stamp(await self._link.now_ms(), 0)
        async for page in self._catalogue.pages():
            heads = await self._heads.newest([number(each, "log") for each in page])
            for document in page:
                head = heads.logs.get(document["log"])
                if head and stamp(head.mark.ms - MAX_LEAD_MS, head.mark.sequence) > now:
                    await self._repair(document, now)
                    self._heads.forget(document["log"])
        topics = self._link.topics
        await topics.update_one({"_id": CATALOGUE}, {"$min": {"ended_stamp": now}})
        await topics.delete_many({"_id": {"$gt": "!", "$lt": CATALOGUE}})
        await self._catalogue.bump()

    async def _repair(self, topic: Document, now: int) -> None:
        entries, log = self._link.entries, topic["log"]
        first: int | None = None
        floor = min(now, number(topic, "floor_stamp"))
        following, after = max(now, floor + 1), number(topic, "floor")
        while True:
            chosen = entries.find({"_id": places_of(log, after)}, {"ts": 1, "q": 1, "expires": 1})
            if not (found := await chosen.sort("_id", 1).limit(_STEP).to_list()):
                break
            after = log_and_offset(found[-1]["_id"])[1]
            ahead = [each for each in found if first is not None or _stamp(each) > now]
            for each in found[: len(found) - len(ahead)]:
                following = max(following, _stamp(each) + 1)
            if ahead:
                first = first or after
                await entries.bulk_write(_changes(ahead, following))
                following += len(ahead)
        same = {"_id": topic["_id"], "log": log}
        await self._link.topics.update_one(same, {"$set": {"floor_stamp": floor}})


def _changes(entries: Sequence[Document], first: int) -> list[UpdateOne]:
    changes = []
    for own, each in enumerate(entries, first):
        ms, sequence = unstamp(own)
        members = {"ts": ms, "q": sequence}
        if "expires" in each:
            members["expires"] = each["expires"] - number(each, "ts") + ms
        change: Document = {"$set": members, "$unset": {"t": ""}}
        changes.append(UpdateOne({"_id": each["_id"]}, change))
    return changes


def _stamp(document: Document) -> int:
    return stamp(number(document, "ts"), number(document, "q"))

"""Removing the entries of topics that nobody can read any more.

A writer may pause between reading the head and inserting. If the front passed its place meanwhile,
the insert would meet no duplicate key. So a sweep removes only entries below a head that an earlier
sweep saw ``Timing.settle_seconds`` ago, and a writer that paused for long checks the floor. For the
same reason a deleted topic goes so long after its deletion.

The newest entry of a log always stays: it shows the log's last time and sequence. Records of
transactions stay for another 20 minutes: a transaction lasts at most 15, and its commit brings them
back for readers that had passed their place. COMMIT entries stay as long, so none leaves before its
records: an agent that slept since the decision may write it again, and it must not bring them back.

PUBLISH entries and the decisions about pointers stay as long, too, for readers that have an entry
and ask for its stored messages or its decision. The messages leave with their PUBLISH entry, and
what is left of a pointer with its decision. The entries of aborted pointers are voided.
"""

from collections.abc import Awaitable, Callable

from oplogd.event_id import Mark
from oplogd.store.mongo.lease import Lease
from oplogd.store.mongo.link import Link
from oplogd.store.mongo.pointers.leaving import Leaving
from oplogd.store.mongo.timing import Timing
from oplogd.store.mongo.topics.catalogue import Catalogue
from oplogd.store.mongo.topics.heads import TopicHeads
from oplogd.store.mongo.topics.layout import (
    CATALOGUE,
    END,
    RESERVATIONS,
    Document,
    is_publish,
    log_of,
    log_reserved,
    number_and_offset,
    numbered,
    places_of,
    reserved,
    stamp_of,
    topic_of,
)
from oplogd.store.mongo.topics.log import Front, TopicReader
from oplogd.store.numbers import REST_MS, may_follow
from oplogd.store.topics import MAX_OFFSET, EntryKind

# Entries of one step.
_STEP = 500

# Time that these entries of transactions stay after the front has passed them.
_RECORDS_STAY_MS = 20 * 60_000
_STAYING = (EntryKind.DEFERRED, EntryKind.COMMIT, EntryKind.PUBLISH)


class Sweeper:
    """Methods raise PyMongo's errors. Only the holder of the lease sweeps."""

    def __init__(
        self,
        link: Link,
        catalogue: Catalogue,
        heads: TopicHeads,
        reader: TopicReader,
        forget: Callable[[int, Mark], Awaitable[None]],
        lease: Lease,
        timing: Timing,
        leaving: Leaving,
    ) -> None:
        self._link = link
        self._catalogue = catalogue
        self._heads = heads
        self._reader = reader
        self._forget = forget
        self._lease = lease
        self._leaving = leaving
        self._settle_seconds = timing.settle_seconds
        # Per log with entries to remove: offset of a head, and the time at which it was seen.
        self._seen: dict[int, tuple[int, float]] = {}

    async def sweep(self) -> int:
        """See ``Topics.sweep``."""
        count = 0
        if not self._lease.held:
            self._seen.clear()
            return 0
        default = await self._link.topics.find_one({"_id": CATALOGUE})
        if default is None:
            return 0
        await self._leaving.void_aborted(lambda: self._lease.held)
        seen: dict[int, tuple[int, float]] = {}
        async for page in self._catalogue.pages():
            now_ms = await self._link.now_ms()
            rules = {log_of(each): Front(default, each, now_ms) for each in page}
            firsts = await self._reader.firsts(rules)
            for document in page:
                log = log_of(document)
                rule = rules[log]
                is_due = log in firsts and rule.is_gone(firsts[log])
                if is_due and self._lease.held:
                    count += await self._sweep_topic(document, rule, firsts[log], seen)
                elif document.get("left") and not document.get("shed") and self._lease.held:
                    count += await self.remove_past(document, rule, rule.floor.offset - 1)
        self._seen = seen
        return count + await self._sweep_deleted()

    async def _sweep_topic(
        self, document: Document, rule: Front, first: Mark, seen: dict[int, tuple[int, float]]
    ) -> int:
        """Raise the floor of a topic to its front, then remove the entries up to there."""
        topic = topic_of(document)
        head = (await self._heads.newest([topic.log])).logs.get(topic.log)
        if head is None or head.is_ended:
            if head is not None:
                await self._forget(topic.log, head.mark)
            return 0
        now = self._link.clock.boot()
        noted = self._seen.get(topic.log, (head.mark.offset, now))
        is_settled = now - noted[1] >= self._settle_seconds
        seen[topic.log] = (head.mark.offset, now) if is_settled else noted
        if not is_settled:
            return 0
        front = await self._reader.front(topic, rule, first)
        if front.offset > noted[0]:
            at = await self._reader.mark_at(topic, noted[0])
            if at is None and document.get("shed"):
                return 0  # what left by bytes is removed by ``bounds``
            front = at or rule.floor
        if front.offset > rule.floor.offset:
            floor = {"floor": front.offset, "floor_stamp": stamp_of(front)}
            same = {"_id": document["_id"], **numbered(topic.log)}
            await self._link.topics.update_one(same, {"$max": floor})
        return await self.remove_past(document, rule, min(front.offset, head.mark.offset - 1))

    async def remove_past(self, document: Document, rule: Front, upto: int) -> int:
        """Remove the entries of a topic up to an offset. Note whether some must stay for now."""
        log = log_of(document)
        front_ms = max(rule.oldest_ms, rule.floor.ms)
        count, has_left = await self._remove(log, upto, front_ms - _RECORDS_STAY_MS)
        if has_left != bool(document.get("left")) and self._lease.held:
            same = {"_id": document["_id"], **numbered(log)}
            await self._link.topics.update_one(same, {"$set": {"left": has_left}})
        return count

    async def _remove(
        self, log: int, upto: int, records_before_ms: float = float("inf")
    ) -> tuple[int, bool]:
        """Remove the entries of a log up to an offset in small steps.

        Younger ones of transactions stay. Return the number of entries removed, and whether some
        have stayed.
        """
        count, after, has_left = 0, 0, False
        members = {"kind": 1, "ts": 1, "x": 1, "d": 1}
        while self._lease.held:
            chosen = {"_id": places_of(log, after, upto)}
            found = self._link.entries.find(chosen, members).sort("_id", 1).limit(_STEP)
            if not (entries := await found.to_list()):
                break
            after = number_and_offset(entries[-1]["_id"])[1]
            gone = [each for each in entries if not _stays(each) or each["ts"] < records_before_ms]
            has_left |= len(gone) < len(entries)
            keys = [each["_id"] for each in gone]
            await self._leaving.remove_stored(log, gone)
            if keys:
                removed = await self._link.entries.delete_many({"_id": {"$in": keys}})
                count += removed.deleted_count - sum(each["kind"] == END for each in gone)
        return count, has_left

    async def _sweep_deleted(self) -> int:
        """Remove the logs of topics that were deleted long ago. Free numbers after their rest."""
        now_ms = await self._link.now_ms()
        if self._lease.held:
            rested = {**RESERVATIONS, "swept": {"$lte": now_ms - REST_MS}}
            await self._link.topics.delete_many(rested)
        settled_ms = now_ms - int(1000 * self._settle_seconds)
        deleted = {**RESERVATIONS, "ended": {"$lte": settled_ms}, "swept": None}
        count = 0
        for each in await self._link.topics.find(deleted).sort("_id", 1).to_list():
            log = log_reserved(each)
            head = await self._heads.by_range(log)
            # A deletion that was cut here may have left the name. Later no end of the log shows it.
            await self._catalogue.free(each["name"], log)
            count += (await self._remove(log, MAX_OFFSET))[0]
            await self._leaving.remove_log(log)
            if self._lease.held and (head is None or may_follow(log, head.mark.offset)):
                swept = {"$set": {"swept": await self._link.now_ms()}}
                await self._link.topics.update_one(reserved(log), swept)
        return count


def _stays(document: Document) -> bool:
    """Return whether an entry stays for a while although the front has passed it."""
    kind = document["kind"]
    return (
        kind in _STAYING
        or (kind == EntryKind.ABORT and "d" in document)
        or (kind == EntryKind.VOID and is_publish(document.get("x")))
    )

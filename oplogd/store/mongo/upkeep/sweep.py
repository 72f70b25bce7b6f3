"""Removing unreachable entries of topics.

A writer may pause between reading the head and inserting. If the front passed its place meanwhile,
the insert would meet no duplicate key. So a sweep removes only entries below a head that an earlier
sweep saw ``Timing.settle_seconds`` ago, and a writer checks the floor after a long pause. For the
same reason a deleted topic goes so long after its deletion.

The newest entry of a log always stays: it shows the log's last time and sequence. Records of
transactions stay for another 20 minutes: a transaction lasts at most 15, and its commit brings them
back for readers past their place. Those of a transaction still open, or committed past the
front, stay however old they are: a stop ends no transaction. COMMIT entries stay as long, so none
leaves before its records: an agent that slept since the decision may write it again, and it must
not bring them back.

PUBLISH entries and the decisions about pointers stay as long, too, for readers that have an entry
and ask for its stored messages or its decision. The messages leave with their PUBLISH entry, and
the rest of a pointer with its decision. The entries of aborted pointers are voided.
"""

from oplogd.clock.ages import MAX_LEAD_MS
from oplogd.store.mongo.decisions.leaving import Leaving
from oplogd.store.mongo.link import topic_layout as layout
from oplogd.store.mongo.link.layout import Document
from oplogd.store.mongo.link.lease import FoldLease
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.reading.topic_log import TopicReader
from oplogd.store.mongo.topics.catalogue import Catalogue
from oplogd.store.mongo.topics.front import Front, mark_at
from oplogd.store.mongo.topics.heads import TopicHeads
from oplogd.store.mongo.upkeep.look_ups import LookUps
from oplogd.store.numbers import REST_MS, may_follow
from oplogd.store.topics import MAX_OFFSET, RECORDS_STAY_MS, EntryKind

# Entries of one step.
_STEP = 500

# These entries stay for ``RECORDS_STAY_MS``.
_STAYING = (EntryKind.DEFERRED, EntryKind.COMMIT, EntryKind.PUBLISH)


class Sweeper:
    """Only the holder of the lease sweeps."""

    def __init__(
        self,
        link: Link,
        catalogue: Catalogue,
        heads: TopicHeads,
        reader: TopicReader,
        lease: FoldLease,
        leaving: Leaving,
    ) -> None:
        self._link = link
        self._catalogue = catalogue
        self._heads = heads
        self._reader = reader
        self._lease = lease
        self._leaving = leaving
        self._look_ups = LookUps(link)
        self._settle_seconds = link.timing.settle_seconds
        # Per log with entries to remove: offset of a head, and the time at which it was seen.
        self._seen: dict[int, tuple[int, float]] = {}

    async def sweep(self) -> int:
        count = 0
        if not self._lease.held:
            self._seen.clear()
            return 0
        default = await self._link.topics.find_one({"_id": layout.CATALOGUE})
        if default is None:
            return 0
        await self._leaving.void_aborted(lambda: self._lease.held)
        seen: dict[int, tuple[int, float]] = {}
        async for page in self._catalogue.pages():
            now = await self._link.removal()
            rules = {layout.log_of(each): Front(default, each, now) for each in page}
            firsts = await self._reader.firsts(rules)
            for document in page:
                log = layout.log_of(document)
                rule = rules[log]
                is_due = log in firsts and rule.may_be_gone(firsts[log])
                if is_due and self._lease.held:
                    count += await self._sweep_topic(document, rule, seen)
                elif document.get("left") and not document.get("shed") and self._lease.held:
                    count += await self.remove_past(document, rule, rule.floor.offset - 1)
        self._seen = seen
        return count + await self._sweep_deleted()

    async def _sweep_topic(
        self, document: Document, rule: Front, seen: dict[int, tuple[int, float]]
    ) -> int:
        """Raise the floor of a topic to its front, then remove the entries up to there."""
        topic = layout.topic_of(document)
        head = await self._heads.of(topic.log)
        if head is None or head.is_ended:
            if head is not None:
                await self._catalogue.forget(topic.log, head.mark)
            return 0
        now = self._link.clock.boot()
        noted = self._seen.get(topic.log, (head.mark.offset, now))
        is_settled = now - noted[1] >= self._settle_seconds
        seen[topic.log] = (head.mark.offset, now) if is_settled else noted
        if not is_settled:
            return 0
        front = await self._reader.front(topic, rule, rule.floor)
        if front.offset > noted[0]:
            at = await mark_at(self._link, topic.log, noted[0])
            if at is None and document.get("shed"):
                return 0  # ``bounds`` removes entries that left by bytes
            front = at or rule.floor
        if front.offset > rule.floor.offset:
            floor = {"floor": front.offset, "floor_stamp": layout.stamp_of(front)}
            await self._catalogue.update(document, {"$max": floor})
        upto = min(front.offset, head.mark.offset - 1)
        return await self.remove_past(document, rule, upto, front.offset)

    async def remove_past(self, document: Document, rule: Front, upto: int, front: int = 0) -> int:
        """Remove the entries of a topic up to an offset. Note whether some must stay for now.

        ``front``: if it is past the floor of the rule.
        """
        log, front = layout.log_of(document), max(front, rule.floor.offset)
        date = await self._front_date(log, rule)
        count, has_left = await self._remove(log, upto, rule, date - RECORDS_STAY_MS, front)
        if has_left != bool(document.get("left")) and self._lease.held:
            await self._catalogue.update(document, {"$set": {"left": has_left}})
        return count

    async def _front_date(self, log: int, rule: Front) -> int:
        """Return a date: the front has passed all entries before it, in order."""
        if rule.floor.ms <= rule.oldest_ms:
            return rule.oldest_date
        # A bound in bytes raised the floor.
        first = await self._link.entries.find_one(
            {"_id": layout.place(log, rule.floor.offset + 1)}, {"ts": 1, "t": 1}
        )
        at = rule.oldest_date if first is None else min(rule.date(first), rule.present.ms)
        return max(rule.oldest_date, at)

    async def _remove(
        self, log: int, upto: int, rule: Front | None = None, stay_from: int = 0, front: int = 0
    ) -> tuple[int, bool]:
        """Remove the entries of a log up to an offset in small steps.

        Those of transactions stay if dated from a time on; without a rule none does. Return the
        number of removed entries, and whether some have stayed.
        """
        count, after, has_left = 0, 0, False
        members = {"kind": 1, "ts": 1, "x": 1, "d": 1, "t": 1}
        while self._lease.held:
            chosen = {"_id": layout.places_of(log, after, upto)}
            found = self._link.entries.find(chosen, members).sort("_id", 1).limit(_STEP)
            if not (entries := await found.to_list()):
                break
            after = layout.number_and_offset(entries[-1]["_id"])[1]
            gone = [
                each
                for each in entries
                if rule is None or not _stays(each) or rule.date(each) < stay_from
            ]
            if rule is not None:
                gone = await self._not_needed(log, gone, front)
            has_left |= len(gone) < len(entries)
            keys = [each["_id"] for each in gone]
            await self._leaving.remove_stored(log, gone)
            if keys:
                removed = await self._link.entries.delete_many({"_id": {"$in": keys}})
                count += removed.deleted_count - sum(each["kind"] == layout.END for each in gone)
        return count, has_left

    async def _not_needed(self, log: int, entries: list[Document], front: int) -> list[Document]:
        """Leave out the records of open transactions, and of COMMIT entries past the front."""
        txns = {
            layout.owner_of(each["x"]) for each in entries if each["kind"] == EntryKind.DEFERRED
        }
        if not txns:
            return entries
        needed = await self._look_ups.not_over(log, txns, front)
        return [
            each
            for each in entries
            if each["kind"] != EntryKind.DEFERRED or layout.owner_of(each["x"]) not in needed
        ]

    async def _date_again(self, *names: str) -> None:
        """Let entries dated by a clock ahead begin now: or they stay until then."""
        now_ms = await self._link.now_ms()
        for name in names:
            wrong = {**layout.RESERVATIONS, name: {"$gt": now_ms + MAX_LEAD_MS}}
            await self._link.topics.update_many(wrong, {"$set": {name: now_ms}})

    async def _sweep_deleted(self) -> int:
        """Remove the logs of topics deleted long ago. Free numbers after their rest."""
        if self._lease.held:
            rested_ms = await self._link.before_ms(REST_MS)
            await self._link.topics.delete_many(
                {**layout.RESERVATIONS, "swept": {"$lte": rested_ms}}
            )
        await self._date_again("ended", "swept")
        settled_ms = await self._link.before_ms(int(1000 * self._settle_seconds))
        deleted = {**layout.RESERVATIONS, "ended": {"$lte": settled_ms}, "swept": None}
        count = 0
        for each in await self._link.topics.find(deleted).sort("_id", 1).to_list():
            log = layout.log_reserved(each)
            head = await self._heads.by_range(log)
            # A deletion cut here may have left the name. Later no end of the log shows it.
            await self._catalogue.free(each["name"], log)
            count += (await self._remove(log, MAX_OFFSET))[0]
            await self._leaving.remove_log(log)
            if self._lease.held and (head is None or may_follow(log, head.mark.offset)):
                swept = {"$set": {"swept": await self._link.now_ms()}}
                await self._link.topics.update_one(layout.reserved(log), swept)
        return count


def _stays(document: Document) -> bool:
    """Return whether an entry stays for a while although the front has passed it."""
    kind = document["kind"]
    return (
        kind in _STAYING
        or (kind == EntryKind.ABORT and "d" in document)
        or (kind == EntryKind.VOID and layout.is_publish(document.get("x")))
    )

"""The bounds in bytes of topics. The holder of the lease counts new entries, and raises floors.

A raised floor hides its entries from all agents at once. They are removed when no writer can insert
at their places any more, as by the sweep. The front stops before an entry that readers of an open
or just decided pointer, or of a just decided commit, need. The front passes the records of
transactions, which stay as long as after a sweep. Those of a transaction still open, or whose
COMMIT entry is past the front, go on counting: ``kept`` in the topic's document, ``[{txn:
hexadecimal digits, octets}, ...]``.

``full`` in the catalogue: ``[{log, reason}, ...]``, log 0 for all topics together. Every agent
reads it and refuses publishes.
"""

import heapq
from collections.abc import Awaitable, Callable, Sequence

from oplogd.errors import TopicFullError
from oplogd.model.event_id import Mark
from oplogd.store.bounds import RECORDS_FILL, full_topic, full_total, slack
from oplogd.store.mongo.link import topic_layout as layout
from oplogd.store.mongo.link.layout import Document
from oplogd.store.mongo.link.lease import FoldLease
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.topics.catalogue import Catalogue
from oplogd.store.mongo.topics.front import Front, mark_at
from oplogd.store.mongo.topics.heads import TopicHeads
from oplogd.store.mongo.topics.segments import (
    Sized,
    counted,
    has_one,
    members,
    passed,
    segments_of,
    size_of,
    total,
)
from oplogd.store.mongo.upkeep.look_ups import LookUps

# Entries of one topic in a round. The others come in the next one.
_ROUND = 50_000

# Removes the entries of a topic up to an offset: the document, the rule, the offset.
Remove = Callable[[Document, Front, int], Awaitable[int]]


class Bounds:
    def __init__(
        self,
        link: Link,
        catalogue: Catalogue,
        heads: TopicHeads,
        remove: Remove,
        waiting: Callable[[int], Awaitable[int]],
        lease: FoldLease,
    ) -> None:
        self._link = link
        self._look_ups = LookUps(link)
        self._catalogue = catalogue
        self._heads = heads
        self._remove = remove
        self._waiting = waiting
        self._lease = lease
        self._settle_seconds = link.timing.settle_seconds
        self._pace_seconds = link.timing.bounds_seconds
        self._next = float("-inf")
        # Reasons why publishes are refused, by log.
        self._full: dict[int, str] = {}
        # Per log with hidden entries still there: a floor, and when it was seen.
        self._left: dict[int, tuple[int, float]] = {}

    def reason(self, log: int) -> str | None:
        """Return why a publish to a topic is refused, None if it is not."""
        return self._full.get(0) or self._full.get(log) if self._full else None

    def require_room(self, *logs: int) -> None:
        """Raises TopicFullError."""
        for log in logs:
            if (reason := self.reason(log)) is not None:
                raise TopicFullError(reason)

    async def shrink(self) -> int:
        wanted = {"full": 1, "topics_max_bytes": 1, "default_ttl": 1, "octets": 1}
        catalogue = await self._link.topics.find_one({"_id": layout.CATALOGUE}, wanted)
        if catalogue is None:
            return 0
        self._full = {
            layout.number(each, "log"): str(each["reason"]) for each in catalogue.get("full") or []
        }
        now = self._link.clock.monotonic()
        if not self._lease.held or now < self._next:
            return 0
        self._next = now + self._pace_seconds
        return await self._keep(catalogue)

    async def _keep(self, catalogue: Document) -> int:
        most = catalogue.get("topics_max_bytes")
        full: dict[int, str] = {}
        sized: list[Sized] = []
        removed = 0
        chosen = None if most is not None else {"$or": [{"max_bytes": {"$gt": 0}}, {"shed": True}]}
        async for page in self._catalogue.pages(chosen):
            heads = (await self._heads.newest(list(map(layout.log_of, page)))).logs
            for document in page:
                head = heads.get(layout.log_of(document))
                if head is None or head.is_ended or not self._lease.held:
                    continue
                await self._remove_left(catalogue, document, head.mark)
                found = await self._count(document, head.mark, most)
                bound = document.get("max_bytes")
                if bound is not None and found.size > bound:
                    before = found.floor.offset
                    excess = found.size - bound
                    found, held_by = await self._shed(found, excess + slack(bound))
                    if held_by is not None and await self._spare(found) > bound:
                        excess = found.size - bound
                        found, held_by = await self._shed(found, excess, newest=True)
                    removed += found.floor.offset - before
                    if held_by is not None and found.size > bound:
                        full[found.log] = full_topic(
                            layout.name_of(document["_id"]), bound, held_by
                        )
                sized.append(found)
        if most is not None:
            before = passed(sized)
            sized = await self._keep_total(sized, most)
            removed += passed(sized) - before
        size = size_of(sized)
        if most is not None and size > most:
            full[0] = full_total(most)
        await self._note(catalogue, full, size)
        return removed

    # --- Counting ---

    async def _count(self, document: Document, head: Mark, most: int | None) -> Sized:
        """Count the new entries of a topic."""
        log, floor = layout.log_of(document), layout.floor_of(document)
        known = segments = segments_of(document, floor.offset)
        bound = document.get("max_bytes") or most or 0
        after = max(floor.offset, segments[-1].last if segments else 0)
        end = min(head.offset, after + _ROUND)
        while after < end and (entries := await self._look_ups.sizes(log, after, end)):
            segments = counted(segments, entries, bound)
            after = entries[-1].last
        given = {
            str(each["txn"]): layout.number(each, "octets") for each in document.get("kept") or []
        }
        record_bytes = await self._look_ups.still_counted(log, given, floor.offset)
        if (
            segments != known
            or len(segments) != len(document.get("sizes") or [])
            or record_bytes != given
        ):
            await self._save(document, members(segments, record_bytes))
        return Sized(document, log, head, floor, segments, record_bytes, await self._waiting(log))

    # --- Leaving ---

    async def _shed(
        self, topic: Sized, wanted: int, most: int = 1 << 62, *, newest: bool = False
    ) -> tuple[Sized, str | None]:
        """Let the oldest segments leave until ``wanted`` bytes have, at most ``most`` segments.

        The newest entry stays, unless ``newest`` is set. Return the reason if no more may leave.
        """
        head, segments = topic.head.offset, list(topic.segments)
        floor, record_bytes = topic.floor.offset, dict(topic.record_bytes)
        held_by = None
        least = topic.size - wanted
        while topic.waiting + total(segments) + sum(record_bytes.values()) > least and most > 0:
            last = min(segments[0].last, head - (not newest)) if segments else floor
            if last <= floor:
                needed = segments and await self._look_ups.needed(topic.log, floor, head)
                held_by = needed or RECORDS_FILL
                break
            if held_by := await self._look_ups.needed(topic.log, floor, last):
                break
            for txn, size in (await self._look_ups.records(topic.log, floor, last)).items():
                record_bytes[txn] = record_bytes.get(txn, 0) + size
            record_bytes = await self._look_ups.still_counted(topic.log, record_bytes, last)
            is_whole = segments[0].last == last
            segments = (
                segments[1:] if is_whole else await self._look_ups.sizes(topic.log, last, head)
            )
            floor, most = last, most - 1
        if floor == topic.floor.offset:
            return topic, held_by
        mark = await mark_at(self._link, topic.log, floor)
        if mark is None:
            return topic, held_by
        update = {**members(segments, record_bytes), "shed": True}
        await self._save(
            topic.document, update, {"floor": floor, "floor_stamp": layout.stamp_of(mark)}
        )
        await self._link.topics.update_one(
            {"_id": layout.CATALOGUE}, {"$inc": {"turn": 1, "left": floor - topic.floor.offset}}
        )
        return topic._replace(floor=mark, segments=segments, record_bytes=record_bytes), held_by

    async def _keep_total(self, topics: Sequence[Sized], most: int) -> list[Sized]:
        """Let the oldest segments of all topics leave while they exceed their bound together."""
        excess = size_of(topics) - most
        if excess <= 0:
            return [*topics]
        remaining = await self._shed_oldest(topics, excess + slack(most))
        if size_of(remaining) <= most or size_of(filter(has_one, remaining)) <= most:
            return remaining
        spare = [await self._spare(each) for each in remaining]
        if (alone := sum(spare) - most) <= 0:
            return remaining
        newest = [each for each, size in zip(remaining, spare, strict=True) if size]
        others = [each for each, size in zip(remaining, spare, strict=True) if not size]
        return others + await self._shed_oldest(newest, alone, newest=True)

    async def _shed_oldest(
        self, topics: Sequence[Sized], wanted: int, *, newest: bool = False
    ) -> list[Sized]:
        """Let the oldest segments of all topics leave until ``wanted`` bytes have."""
        current = [*topics]
        fronts = [
            (each.segments[0].ms, place) for place, each in enumerate(current) if each.segments
        ]
        heapq.heapify(fronts)
        while fronts and wanted > 0 and self._lease.held:
            _, place_ = heapq.heappop(fronts)
            topic = current[place_]
            left, held_by = await self._shed(topic, wanted, most=1, newest=newest)
            wanted -= topic.size - left.size
            current[place_] = left
            if held_by is None and left is not topic and left.segments:
                heapq.heappush(fronts, (left.segments[0].ms, place_))
        return current

    async def _spare(self, topic: Sized) -> int:
        """Return the bytes of the newest entry, if it alone is left and may leave."""
        log, floor, head = topic.log, topic.floor.offset, topic.head.offset
        if not has_one(topic) or await self._look_ups.needed(log, floor, head):
            return 0
        if await self._look_ups.records(log, floor, head):
            return 0
        record_bytes = await self._look_ups.still_counted(log, topic.record_bytes, head)
        return topic.size - topic.waiting - sum(record_bytes.values())

    async def _remove_left(self, catalogue: Document, document: Document, head: Mark) -> None:
        """Remove entries gone for long enough."""
        log, floor = layout.log_of(document), layout.floor_of(document).offset
        if not document.get("shed"):
            self._left.pop(log, None)
            return
        now = self._link.clock.boot()
        upto, seen_at = self._left.setdefault(log, (floor, now))
        if now - seen_at < self._settle_seconds:
            return
        del self._left[log]
        rule = Front(catalogue, document, await self._link.removal())
        await self._remove(document, rule, min(upto, head.offset - 1))
        if upto == floor:
            await self._link.topics.update_one(
                {"_id": document["_id"], **layout.numbered(log), "floor": floor},
                {"$set": {"shed": False}},
            )

    # --- Documents ---

    async def _save(
        self,
        document: Document,
        update: Document,
        most: Document | None = None,
    ) -> None:
        await self._catalogue.update(document, {"$set": update, **({"$max": most} if most else {})})
        document |= update | (most or {})

    async def _note(self, catalogue: Document, full: dict[int, str], size: int) -> None:
        """Tell all agents which topics are full."""
        self._full = full
        listed = [{"log": log, "reason": reason} for log, reason in full.items()]
        if listed != (catalogue.get("full") or []) or size != catalogue.get("octets", 0):
            update = {"$set": {"full": listed, "octets": size}}
            await self._link.topics.update_one({"_id": layout.CATALOGUE}, update)

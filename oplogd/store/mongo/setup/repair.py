"""Repair: rebuild the log from a collection set aside, without losing an entry.

Before the first collection is renamed, the row in ``oplog_meta`` gets a note (``repair``). It names
the collections set aside and stays until the new log is in place. Meanwhile no agent reads or
writes the log (``Log.row``). A repair may be cut off after any command: any holder of the lease can
continue it. The new log is filled under another name, with its index, and renamed when it is
complete, so no late insert of a writer can get into the middle of it.
"""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from bson.datetime_ms import DatetimeMS
from pymongo.asynchronous.collection import AsyncCollection

from oplogd.errors import StoreUnavailableError
from oplogd.model.event_id import MAX_OFFSET, Mark
from oplogd.store.mongo.link import layout
from oplogd.store.mongo.link.layout import Document
from oplogd.store.mongo.link.lease import HoldLease
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.log.log import Log, LogRow

# Beginnings of the names of collections: a log without its index, the log of an earlier epoch, and
# the new log until it is complete.
WITHOUT_INDEX_PREFIX = f"{layout.LOG}_without_index_at_"
SET_ASIDE_PREFIX = f"{layout.LOG}_set_aside_at_"
_NEW_LOG_PREFIX = f"{layout.LOG}_being_made_"
_BATCH = 200
# Renew the lease after reading this many entries.
_HOLD_EVERY = 5_000
logger = logging.getLogger("oplogd.store")


class Scan(NamedTuple):
    """The content of a collection without our index.

    ``is_dense``: the offsets ascend by one, reach the checkpoint, and end each id, so the entries
    can stay as they are. ``last``: the largest mark of an entry whose id ends with its offset.
    ``unfolded``: number of offsets past the checkpoint. ``without``: number of entries without an
    offset.
    """

    is_dense: bool
    last: Mark
    unfolded: int
    without: int


class Repair:
    """Only the holder of the lease calls ``finish``."""

    def __init__(self, link: Link, log: Log, lost: Callable[[int], None]) -> None:
        """``lost`` is called with the number of entries neither folded nor stored."""
        self._link = link
        self._log = log
        self._lost = lost

    async def begin(self, aside: str, size: int, epoch_ms: int | None = None) -> None:
        """Note to set the log aside as ``aside`` and rebuild it.

        ``size``: the cap in bytes, 0 for a plain log. ``epoch_ms``: begin of a new epoch. The
        states get this time, and only unfolded entries go into the new log. None: all entries go
        there.
        """
        repair: Document = {
            "id": aside,
            "size": size,
            "epoch": epoch_ms,
            "sources": [{"name": aside}],
        }
        await self._link.meta.update_one(
            {"_id": layout.LOG, "repair": {"$exists": False}}, {"$set": {"repair": repair}}
        )

    async def finish(self, hold: HoldLease) -> None:
        """Carry out the noted repair, if there is one, to its end."""
        while (
            row := await self._link.meta.find_one(
                {"_id": layout.LOG, "repair": {"$exists": True}}, {"writers": 0}
            )
        ) is not None:
            await self._step(row, row["repair"], hold)

    async def scan(
        self, collection: AsyncCollection[Document], row: LogRow, hold: HoldLease
    ) -> Scan:
        """Read offsets and ids in the order of the ids. They are indexed and sort in log order."""
        dense, last, unfolded, without = True, Mark(0, 0), 0, 0
        previous = 0
        number = 0
        async for document in collection.find({}, {"n": 1}).sort("_id", 1):
            number += 1
            if number % _HOLD_EVERY == 0:
                await self._keep_lease(hold)
            n = document.get("n")
            if not isinstance(n, int) or n <= 0:
                without += 1
                continue
            is_next = n == previous + 1 or not previous
            dense = dense and is_next and layout.id_has_offset(document)
            unfolded += n > row.folded.offset and n != previous
            previous = n
            if layout.id_has_offset(document):
                mark = layout.mark_of(document)
                dense = dense and (n != row.folded.offset or mark == row.folded)
                last = max(last, mark)
        dense = dense and last.offset >= max(row.folded.offset, self._log.known.head.offset, 1)
        return Scan(dense, last, unfolded, without)

    async def floor(self, row: LogRow) -> Mark:
        """Return the mark before a new log if the log is lost.

        No entry ever seen here has a larger offset or time.
        """
        floor = await self._log.empty_head(row)
        known = self._log.known.head
        return Mark(known.offset, max(known.ms, floor.ms)) if known.offset > floor.offset else floor

    async def _step(self, row: Document, repair: Document, hold: HoldLease) -> None:
        await self._keep_lease(hold)
        new_name = f"{_NEW_LOG_PREFIX}{repair['id'].removeprefix(f'{layout.LOG}_')}"
        source = repair["sources"][-1]
        is_there = await self._link.options(layout.LOG) is not None
        if await self._link.options(source["name"]) is None:
            if is_there:
                await self._link.rename(layout.LOG, source["name"])
        elif is_there and layout.OFFSET_INDEX in await self._link.log.index_information():
            await self._end(repair)
            return
        if "n" not in source:
            await self._decide(row, repair, new_name, hold)
        await self._copy(repair, source, new_name, hold)
        if await self._link.rename(new_name, layout.LOG):
            await self._end(repair)
        else:
            # A late insert has created the collection again, and may have been acknowledged.
            late = f"{WITHOUT_INDEX_PREFIX}{await self._link.now_ms()}"
            await self._note(repair, {"$push": {"repair.sources": {"name": late}}})

    async def _decide(
        self, row: Document, repair: Document, new_name: str, hold: HoldLease
    ) -> None:
        """Note how the entries of the last source get into the new log.

        ``after``: offset up to which they are left out. ``as_is``: the others keep their ids and
        offsets. Otherwise they follow offset ``n`` and get the time ``ts``.
        """
        source = repair["sources"][-1]
        collection = self._link.database[source["name"]]
        known = LogRow(row)
        change: Document = {}
        source |= {"as_is": False, "after": 0}
        if len(repair["sources"]) > 1:  # late inserts: they follow the entries copied before
            newest = await self._link.database[new_name].find_one({}, {"n": 1}, sort=[("n", -1)])
            base = layout.mark_of(newest) if newest else await self.floor(known)
        elif repair["epoch"] is not None:  # a new epoch
            epoch = int(repair["epoch"])
            base = Mark(known.folded.offset, epoch)
            upto = {"n": {"$not": {"$gt": base.offset}}}
            await self._link.states.update_many(upto, {"$set": {"ts": DatetimeMS(epoch)}})
            source["after"] = base.offset
            new: Document = {
                "n": base.offset,
                "ts": epoch,
                "created": epoch,
                "first": base.offset + 1,
                "purged": epoch if known.purged else 0,
            }
            new["set_aside"] = await _spans_set_aside(collection, known, epoch)
            change = {"$set": new, "$unset": {"states_lost": ""}}
        else:  # a log without its index
            scan = await self.scan(collection, known, hold)
            floor = await self.floor(known)
            base = Mark(max(scan.last.offset, floor.offset), max(scan.last.ms, floor.ms))
            source["as_is"] = scan.is_dense
            if not scan.is_dense:
                if (lost := base.offset - known.folded.offset - scan.unfolded) > 0:
                    self._lost(lost)
                change = {"$max": {"n": base.offset, "ts": base.ms}}
                logger.warning(
                    "%s had lost its index and is rebuilt: its entries continue after offset %d,"
                    " and the old collection remains as %s",
                    layout.LOG,
                    base.offset,
                    source["name"],
                )
        source |= {
            "n": base.offset,
            "ts": max(base.ms, await self._link.now_ms() if not repair["epoch"] else 0),
        }
        change["$set"] = {**change.get("$set", {}), "repair.sources": repair["sources"]}
        await self._note(repair, change)

    async def _copy(
        self, repair: Document, source: Document, new_name: str, hold: HoldLease
    ) -> None:
        """Fill the new log in batches. Skip entries inserted by an earlier attempt."""
        options: dict[str, Any] = {"capped": True, "size": repair["size"]} if repair["size"] else {}
        await self._link.create(new_name, **options)
        target = self._link.database[new_name]
        await target.create_index([("n", 1)], unique=True, name=layout.OFFSET_INDEX)
        newest = await target.find_one({}, {"n": 1}, sort=[("n", -1)])
        number = int(source["n"])
        wanted: Document = {"n": {"$gt": source["after"]}}
        if newest is not None and source["as_is"]:
            wanted["_id"] = {"$gt": newest["_id"]}
        elif newest is not None:
            number = max(number, int(newest["n"]))
        cursor = self._link.database[source["name"]].find(wanted).sort("_id", 1)
        if not source["as_is"]:
            cursor = cursor.skip(number - int(source["n"]))
        batch: list[Document] = []
        async for document in cursor.batch_size(_BATCH):
            if not source["as_is"]:
                number += 1
                mark = Mark(number, int(source["ts"]))
                document |= {"_id": layout.entry_id(mark), "n": mark.offset}
            batch.append(document)
            if len(batch) == min(_BATCH, self._link.quirks.inserts_per_command):
                await self._keep_lease(hold)
                await target.insert_many(batch)
                batch = []
        if batch:
            await self._keep_lease(hold)
            await target.insert_many(batch)

    async def _note(self, repair: Document, change: Document) -> None:
        noted = await self._link.meta.update_one(
            {"_id": layout.LOG, "repair.id": repair["id"]}, change
        )
        if not noted.matched_count:
            raise StoreUnavailableError(
                f"MongoDB at {self._link.hosts}: another agent has rebuilt the log"
            )

    async def _end(self, repair: Document) -> None:
        await self._link.meta.update_one(
            {"_id": layout.LOG, "repair.id": repair["id"]}, {"$unset": {"repair": ""}}
        )

    async def _keep_lease(self, hold: HoldLease) -> None:
        if not await hold():
            raise StoreUnavailableError(
                f"MongoDB at {self._link.hosts}: another agent holds the lease now"
            )


async def _spans_set_aside(
    log: AsyncCollection[Document], row: LogRow, now_ms: int
) -> list[Document]:
    """Return the spans after ``now_ms`` used by this log and earlier ones, ends excluded."""
    spans = [
        {"after": max(after, now_ms), "before": before}
        for after, before in row.set_aside
        if before > now_ms + 1
    ]
    newest = await log.find_one({"n": {"$gt": 0}}, {"n": 1}, sort=[("_id", -1)])
    head_ms = max(layout.mark_of(newest).ms if newest else 0, row.folded.ms)
    if head_ms > now_ms:
        max_id = layout.entry_id(Mark(MAX_OFFSET, now_ms))
        first = None
        # If no entry is as old as now, the first entries after now may have left the log.
        if await log.find_one({"n": {"$gt": 0}, "_id": {"$lte": max_id}}, {"_id": 1}) is not None:
            first = await log.find_one(
                {"n": {"$gt": 0}, "_id": {"$gt": max_id}}, {"n": 1}, sort=[("_id", 1)]
            )
        spans.append(
            {"after": layout.mark_of(first).ms - 1 if first else now_ms, "before": head_ms + 1}
        )
    return spans

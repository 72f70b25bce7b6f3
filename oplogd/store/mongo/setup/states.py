"""Maintaining the collection of the states: its indexes, its dates, and its repair when dropped."""

import logging
from typing import Any

import pymongo
from bson.datetime_ms import DatetimeMS

from oplogd.store.mongo.link.damage import FIRST_MS, LAST_MS
from oplogd.store.mongo.link.layout import LOG, STATES, STATES_INDEXES, Document, key_of
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.timing import LONG_SECONDS
from oplogd.store.mongo.log.log import LogRow

_DAY_MS = 86_400_000
_SAMPLE = 500
logger = logging.getLogger("oplogd.store")


class StatesKeeper:
    """Only the holder of the lease calls ``keep``."""

    def __init__(self, link: Link) -> None:
        self._link = link
        # The row's ``created`` and checkpoint when the states were last seen with their indexes.
        self._seen_whole: tuple[int, int] | None = None

    async def keep(self, row: LogRow, *, exists: bool) -> bool:
        """Create missing indexes, repair dropped states. Return whether there was nothing to do.

        After a drop all indexes are missing, although the fold may have filled the collection
        again. If the log still holds everything, it is folded again. Otherwise the row says that
        states are lost. In both cases ``created`` changes by a millisecond, so a consumer in the
        middle of a replication starts over: it may have got only half of the objects. The row
        is written before the indexes, because present indexes mark the states as repaired.
        """
        states = self._link.states
        present = (
            {tuple(info["key"]) for info in (await states.index_information()).values()}
            if exists
            else set()
        )
        missing = [
            index for index in STATES_INDEXES if tuple(index.document["key"].items()) not in present
        ]
        if missing:
            had_states = row.folded.offset > 0 or row.adopted > 0
            is_new = len(missing) == len(STATES_INDEXES)
            was_dropped = had_states and is_new and not (exists and await self._is_whole(row))
            if was_dropped:
                await self._start_over(row)
            with pymongo.timeout(LONG_SECONDS):
                await states.create_indexes(missing)
            logger.warning("created %d indexes of %s that were missing", len(missing), STATES)
            if was_dropped:
                # The row has gone back, and the states folded from there may be dropped again.
                self._seen_whole = None
                return False
        self._seen_whole = (row.created, row.folded.offset)
        return not missing

    async def _start_over(self, row: LogRow) -> None:
        change: dict[str, Any] = {"$inc": {"created": 1}}
        if (
            row.first == 1
            and not row.adopted
            and await self._link.log.find_one({"n": 1}, {"_id": 1}) is not None
        ):
            change["$set"] = {"n": 0, "ts": row.created}
            logger.warning(
                "%s was dropped; the log holds every operation and is folded again from its"
                " beginning",
                STATES,
            )
        else:
            change["$set"] = {"states_lost": row.folded.offset}
        await self._link.meta.update_one({"_id": LOG}, change)

    async def _is_whole(self, row: LogRow) -> bool:
        """Return whether only the indexes are gone.

        Then some states are older than any the fold may have written since a drop.
        """
        if self._seen_whole is not None and self._seen_whole[0] == row.created:
            return await self._has_older_than(self._seen_whole[1] + 1)
        folded: Document = {"n": {"$gt": 0, "$lte": row.folded.offset}}
        found = self._link.log.find(folded, {"n": 1, "data.t": 1, "data.id": 1}).sort("n", 1)
        oldest = await found.limit(_SAMPLE).to_list()
        keys = {key_of(document) for document in oldest}
        present = await self._link.states.find({"_id": {"$in": list(keys)}}, {"_id": 1}).to_list()
        return (
            bool(keys) and len(present) == len(keys) and await self._has_older_than(oldest[0]["n"])
        )

    async def _has_older_than(self, offset: int) -> bool:
        older = {"n": {"$not": {"$gte": offset}}}
        return await self._link.states.find_one(older, {"_id": 1}) is not None


async def date_states(link: Link) -> str | None:
    """Replace impossible dates of the first server's states. Return a warning if there were any.

    The first server stored any date. The time of a state is a position of consumers, so it must lie
    between 1970 and now.
    """
    now = await link.now_ms()
    unusable = {"$not": {"$gte": DatetimeMS(1), "$lte": DatetimeMS(now + _DAY_MS)}}
    changes: list[tuple[Document, Document]] = [
        ({"ts": unusable}, {"ts": DatetimeMS(now)}),
        ({"data.ts": {"$lt": DatetimeMS(FIRST_MS)}}, {"data.ts": DatetimeMS(FIRST_MS)}),
        ({"data.ts": {"$gt": DatetimeMS(LAST_MS)}}, {"data.ts": DatetimeMS(LAST_MS)}),
    ]
    count, example = 0, None
    for wrong, right in changes:
        found = await link.states.find_one(wrong, {"_id": 1})
        if found is not None:
            example = example or str(found["_id"])[:200]
            count += (await link.states.update_many(wrong, {"$set": right})).modified_count
    if not count:
        return None
    return (
        f"{count:,} dates of the first server's states lay outside the years 1 to 9999 or beyond"
        f" now, and were replaced by the nearest possible date, for example of {example!r}: send"
        " these objects again, or run oplog-sync"
    )

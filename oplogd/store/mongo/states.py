"""Keeps the collection of the states: its indexes, its dates, and its recovery when it is gone."""

import logging
from typing import Any

import pymongo
from bson.datetime_ms import DatetimeMS

from oplogd.store.mongo.connect import Link
from oplogd.store.mongo.damage import FIRST_MS, LAST_MS
from oplogd.store.mongo.layout import LOG, STATES, STATES_INDEXES, Document, key_of
from oplogd.store.mongo.log import Row

_LONG_SECONDS = 3600.0
_DAY_MS = 86_400_000
_SAMPLE = 500
logger = logging.getLogger("oplogd.store")


class StatesKeeper:
    """Only the holder of the lease calls ``keep``."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._whole: tuple[int, int] | None = None
        """The row's ``created`` and the checkpoint when the states were last seen with their indexes."""

    async def keep(self, row: Row, exists: bool) -> None:
        """Create the indexes that are missing. Notice a collection that was dropped, or dropped and filled again by the fold.

        Then the log is folded anew if it still holds everything, else the row says that states are lost. ``created`` changes
        by a millisecond, so that a consumer in the middle of a replication starts over: it may have been told half of the
        objects. The row is written before the indexes, which mark the states as looked after.
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
            has_started_over = had_states and is_new and not (exists and await self._are_whole(row))
            if has_started_over:
                await self._start_over(row)
            with pymongo.timeout(_LONG_SECONDS):
                await states.create_indexes(missing)
            logger.warning("created %d indexes of %s that were missing", len(missing), STATES)
            if (
                has_started_over
            ):  # the row has gone back, and what is folded from there on may be dropped again
                self._whole = None
                return
        self._whole = (row.created, row.folded.offset)

    async def _start_over(self, row: Row) -> None:
        change: dict[str, Any] = {"$inc": {"created": 1}}
        if (
            row.first == 1
            and not row.adopted
            and await self._link.log.find_one({"n": 1}, {"_id": 1}) is not None
        ):
            change["$set"] = {"n": 0, "ts": row.created}
            logger.warning(
                "%s was dropped; the log holds every operation and is folded anew from its beginning",
                STATES,
            )
        else:
            change["$set"] = {"states_lost": row.folded.offset}
        await self._link.meta.update_one({"_id": LOG}, change)

    async def _are_whole(self, row: Row) -> bool:
        """Whether only the indexes are gone: there are states older than what the fold may have written since a drop."""
        if self._whole is not None and self._whole[0] == row.created:
            return await self._has_older_than(self._whole[1] + 1)
        folded: Document = {"n": {"$gt": 0, "$lte": row.folded.offset}}
        found = self._link.log.find(folded, {"n": 1, "data.t": 1, "data.id": 1}).sort("n", 1)
        oldest = await found.limit(_SAMPLE).to_list()
        keys = {key_of(document) for document in oldest}
        present = await self._link.states.find({"_id": {"$in": list(keys)}}, {"_id": 1}).to_list()
        return (
            bool(keys) and len(present) == len(keys) and await self._has_older_than(oldest[0]["n"])
        )

    async def _has_older_than(self, offset: int) -> bool:
        return (
            await self._link.states.find_one({"n": {"$not": {"$gte": offset}}}, {"_id": 1})
            is not None
        )


async def date_states(link: Link) -> str | None:
    """Give the states of the first server dates that can be told; a sentence if there were some to mend.

    It stored any date. A state's ``ts`` is a position that consumers come back with: 1970 to now.
    """
    now = await link.now_ms()
    told = {"$not": {"$gte": DatetimeMS(1), "$lte": DatetimeMS(now + _DAY_MS)}}
    changes: list[tuple[Document, Document]] = [
        ({"ts": told}, {"ts": DatetimeMS(now)}),
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
        f"{count:,} dates of the first server's states could not be told (the years are 1 to 9999) and were replaced by"
        f" the nearest that can, for example of {example!r}: send these objects again, or run oplog-sync"
    )

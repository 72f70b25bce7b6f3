"""Setup of the collections of topics. Only the holder of the lease creates anything here."""

import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable

import pymongo
from pymongo.errors import DuplicateKeyError, OperationFailure

from oplogd.model.message_id import stamp
from oplogd.store.mongo.link import topic_layout as layout
from oplogd.store.mongo.link.layout import Document
from oplogd.store.mongo.link.lease import HoldLease
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.timing import LONG_SECONDS
from oplogd.store.mongo.topics.catalogue import Catalogue, new_log
from oplogd.store.numbers import MAX_LOG
from oplogd.store.topics import DEFAULT_TTL

logger = logging.getLogger("oplogd.store")


class TopicsSetup:
    """``ttl``: the default of topics in seconds. ``set_default_ttl`` changes it.

    ``max_bytes``: bound of all topics together, 0 for none. None keeps the values in the store.
    """

    def __init__(
        self,
        link: Link,
        catalogue: Catalogue,
        set_default_ttl: Callable[[int], Awaitable[None]],
        ttl: int | None,
        max_bytes: int | None = None,
    ) -> None:
        self._link = link
        self._catalogue = catalogue
        self._set_default_ttl = set_default_ttl
        self._ttl = ttl
        self._max_bytes = max_bytes
        self._is_applied = ttl is None and max_bytes is None

    async def keep(self, hold: HoldLease) -> bool:
        """Create missing collections and indexes. The seal comes last: without it no agent appends.

        Return whether there was nothing to do.
        """
        is_whole = False
        if await self._link.entries.find_one({"_id": layout.SEAL}, {"_id": 1}) is None:
            await self._link.create(layout.TOPICS)
            await self._link.create(layout.ENTRIES)
            await self.create_index()
            await self._insert_catalogue()
            if not await self._renew(hold):
                return False
            try:
                await self._link.entries.insert_one(
                    {"_id": layout.SEAL, "ts": await self._link.now_ms()}
                )
            except DuplicateKeyError:
                return False
        elif await self._link.topics.find_one({"_id": layout.CATALOGUE}, {"_id": 1}) is None:
            # No writer may go on with a remembered log: no reader finds it any more.
            sealed = {"$set": {"ts": await self._link.now_ms()}}
            await self._link.entries.update_one({"_id": layout.SEAL}, sealed)
            await self._insert_catalogue()
        else:
            is_whole = True
        await self.apply()
        return is_whole

    async def apply(self) -> None:
        """Take over the given time to live and bound, once. Any agent may do that."""
        if self._is_applied:
            return
        if await self._link.topics.find_one({"_id": layout.CATALOGUE}, {"_id": 1}) is None:
            return
        if self._ttl is not None:
            await self._set_default_ttl(self._ttl)
        if self._max_bytes is not None:
            bound = {"$set": {"topics_max_bytes": self._max_bytes or None}}
            await self._link.topics.update_one({"_id": layout.CATALOGUE}, bound)
        self._is_applied = True

    async def create_index(self) -> None:
        """Create the index of entries of transactions, unless it is there.

        Transactions are slow without it. In a large collection of an older version it takes a
        while, so the fold must not wait for it.
        """
        try:
            with pymongo.timeout(LONG_SECONDS):
                await self._link.entries.create_index(
                    [("x", 1)], name=layout.IDENTITY_INDEX, sparse=True
                )
        except OperationFailure as error:
            logger.warning(
                "the index %s of %s cannot be created (%s): transactions are slow",
                layout.IDENTITY_INDEX,
                layout.ENTRIES,
                error.code,
            )

    async def _insert_catalogue(self) -> None:
        ttl = DEFAULT_TTL if self._ttl is None else self._ttl
        # No follower has seen this version, even if the collection was dropped.
        version = await self._link.now_ms()
        document = {
            "_id": layout.CATALOGUE,
            "version": version,
            "default_ttl": ttl,
            # Random: running agents know logs of a dropped catalogue, perhaps empty ones.
            "logs": max(await self._catalogue.largest_log(), secrets.randbelow(MAX_LOG // 2)),
            "ended_stamp": 0,
        }
        with contextlib.suppress(DuplicateKeyError):
            await self._link.topics.insert_one(document)

    async def _renew(self, hold: HoldLease) -> bool:
        """Give each topic a new log, because the entries of the old ones are lost.

        Otherwise offsets would begin again, and consumers would not notice. Return False if the
        lease was lost meanwhile.
        """
        topics = self._link.topics
        catalogue: Document = await topics.find_one({"_id": layout.CATALOGUE}) or {}
        count = 0
        for old in await topics.find({"_id": {"$gte": layout.NAMES_FROM}}).to_list():
            if not await hold():
                return False
            log = await self._catalogue.reserve(layout.name_of(old["_id"]))
            now_ms = await self._link.now_ms()
            last = max(
                stamp(now_ms, 0),
                layout.number(catalogue, "ended_stamp"),
                layout.number(old, "floor_stamp"),
            )
            renewed = await topics.update_one(
                {"_id": old["_id"], **layout.numbered(layout.log_of(old))},
                {"$set": new_log(log, last, now_ms)},
            )
            unused = log if not renewed.matched_count else layout.log_of(old)
            await topics.update_one(layout.reserved(unused), {"$set": {"ended": now_ms}})
            count += 1
        if count:
            logger.warning(
                "the collection %s was dropped: %d topics begin again, empty", layout.ENTRIES, count
            )
            await self._catalogue.bump()
        return True

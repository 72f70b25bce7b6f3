"""Making the collections and keeping them as they must be. Only the holder of the lease changes anything here.

Every step may be repeated and may be cut off after any of its commands. At a take-over the row in ``oplog_meta`` is written
last; afterwards a note in the row tells what is under way (``repair``).
"""

import logging
from typing import Any, Literal

import pymongo
from pymongo.errors import DuplicateKeyError, OperationFailure

from oplogd.errors import StoreError, StoreFlagError, StoreUnavailableError
from oplogd.store.mongo.connect import Link
from oplogd.store.mongo.damage import offset_of
from oplogd.store.mongo.errors import is_existing
from oplogd.store.mongo.layout import (
    FIRST_SERVERS_LOG,
    LOG,
    OFFSET_INDEX,
    STATES,
    STATES_INDEXES,
    Document,
)
from oplogd.store.mongo.log import LOST_STATES, Log, Row
from oplogd.store.mongo.repair import EPOCH, STRAYS, Hold, Repair
from oplogd.store.mongo.states import StatesKeeper, date_states

DEFAULT_CAP_BYTES = 256 * 1024 * 1024
LEAST_CAPPED_BYTES = 1024 * 1024
"""A tenth of it still holds the largest operation."""

CollectionKind = Literal["capped", "plain"]
_LONG_SECONDS = 3600.0
"""For what goes through all states."""

logger = logging.getLogger("oplogd.store")


class Setup:
    """``kind`` None takes the log as it is. ``max_bytes`` None keeps its cap, ``new_bytes`` is that of one made now."""

    def __init__(
        self,
        link: Link,
        log: Log,
        kind: CollectionKind | None,
        max_bytes: int | None,
        new_bytes: int,
    ) -> None:
        self._link = link
        self._log = log
        self._kind = kind
        self._max_bytes = max_bytes
        self._new_bytes = new_bytes
        self._repair = Repair(link, log, self.lost)
        self._states = StatesKeeper(link)
        self.warnings: dict[str, str] = {}
        """What somebody has to mend, by kind of trouble."""
        if kind == "capped" and max_bytes is not None and max_bytes < LEAST_CAPPED_BYTES:
            raise StoreFlagError(
                f"--capped-collection-size: a capped collection needs at least {LEAST_CAPPED_BYTES} bytes"
            )

    async def check(self) -> bool:
        """Whether all is set up; changes nothing. Raises StoreError for a collection of the wrong kind."""
        row = await self._link.meta.find_one({"_id": LOG}, {"writers": 0})
        self._tell_lost_states(row)
        options = await self._repair.options(LOG)
        if options is None or row is None or "repair" in row:
            return False
        self._check_kind(options)
        return OFFSET_INDEX in await self._link.log.index_information()

    async def keep(self, hold: Hold) -> None:
        """What the holder of the lease does at first and then now and again. Raises StoreError as ``check``."""
        noted = await self._link.meta.find_one({"_id": LOG}, {"repair": 1})
        if noted is None or "repair" in noted:
            with pymongo.timeout(_LONG_SECONDS):
                if noted is None:
                    await self._take_over()
                    await self._link.states.create_indexes(STATES_INDEXES)
                    await self._create_row()
                await self._repair.go_on(hold)
        row = await self._log.row()
        options = await self._repair.options(LOG)
        if options is None:
            await self._raise_floor(row)
            await self._create_log()
        elif OFFSET_INDEX not in await self._link.log.index_information():
            with pymongo.timeout(_LONG_SECONDS):
                await self._mend_index(options, row, hold)
        else:
            self._check_kind(options)
        await self._states.keep(row, await self._repair.options(STATES) is not None)
        if self._max_bytes is not None and row.max_bytes != self._max_bytes:
            await self._link.meta.update_one({"_id": LOG}, {"$set": {"max_bytes": self._max_bytes}})
        self._tell_lost_states(await self._link.meta.find_one({"_id": LOG}, {"states_lost": 1}))

    async def look_for_strangers(self) -> None:
        """Notice an agent of the first server that writes beside ours."""
        stray = await self._link.log.find_one({"n": None}, {"_id": 1})
        self._warn(
            "first server",
            stray is not None
            and f"an agent of the first server still writes to this database (its entry {stray['_id'] if stray else ''} has no offset and"
            " is in no stream): stop it, then send what it took again",
        )

    async def new_epoch(self, now: int) -> None:
        """Note that a new history begins at ``now``; the holder of the lease carries it out and takes the note away."""
        row = await self._log.row()
        options = await self._repair.options(LOG)
        aside = f"{EPOCH}{row.folded.offset}"
        if await self._repair.options(aside) is not None:
            aside = f"{aside}_{now}"
        size = self._cap(options or {}, row) if self._kind != "plain" else 0
        await self._repair.begin(
            aside, size if self._kind or (options or {}).get("capped") else 0, now
        )

    async def is_under_repair(self) -> bool:
        return await self._repair.noted() is not None

    # The parts

    async def _take_over(self) -> None:
        """A database of the first server: its log is set aside, its states stay and get ``n: 0``."""
        options = await self._repair.options(LOG)
        if (
            options is not None
            and await self._link.log.find_one({"n": {"$gt": 0}}, {"_id": 1}) is None
        ):
            if await self._link.log.find_one({}, {"_id": 1}) is not None:
                if not await self._repair.rename(LOG, FIRST_SERVERS_LOG):
                    raise StoreUnavailableError(
                        f"MongoDB at {self._link.where}: the first server's log was set aside as {FIRST_SERVERS_LOG}, and"
                        f" yet it goes on writing to {LOG}: stop it, then rename or drop {LOG}"
                    )
                logger.info(
                    "the first server's log is set aside as %s, its states are taken over",
                    FIRST_SERVERS_LOG,
                )
            else:
                self._check_kind(options)
        if told := await date_states(self._link):
            self._warn("dates", told)
        await self._link.states.update_many({"n": {"$exists": False}}, {"$set": {"n": 0}})

    async def _create_row(self) -> None:
        now = await self._link.now_ms()
        taken_over = (
            await self._repair.options(FIRST_SERVERS_LOG) is not None
            or await self._link.states.find_one() is not None
        )
        newest = await self._link.states.find_one({}, {"ts": 1}, sort=[("ts", -1)])
        offset = await self._link.states.find_one({}, {"n": 1}, sort=[("n", -1)])
        row: Document = {
            "_id": LOG,
            "n": max(offset_of(offset), 0) if offset else 0,
            "ts": max(now, int(newest["ts"])) if newest else now,
            "first": 1,
            "created": 1 if taken_over else now,  # the first server forgot no deletion
            "purged": 0,
            "adopted": now if taken_over else 0,
            "max_bytes": self._max_bytes or self._new_bytes,
            "writers": {},
        }
        try:
            await self._link.meta.insert_one(row)
        except DuplicateKeyError:
            return  # a holder that lost the lease was faster after all

    async def _raise_floor(self, row: Row) -> None:
        """The log is gone: the next one goes on past all that was ever seen here."""
        floor = await self._repair.floor(row)
        lost = floor.offset - row.folded.offset
        if floor.offset:
            logger.warning(
                "the log's collection was dropped: going on after offset %d in a new one",
                floor.offset,
            )
        if lost:
            self.lost(lost)
        raised = {"n": floor.offset, "ts": floor.ms}
        await self._link.meta.update_one(
            {"_id": LOG, "n": {"$lte": floor.offset}}, {"$set": raised}
        )

    def lost(self, entries: int) -> None:
        self._warn(
            "unfolded",
            f"{entries} operations have left the log before they were in the states: compare the states with the"
            " source by running oplog-sync",
        )

    async def _create_log(self) -> None:
        """The index comes last: without it nobody appends."""
        size = (await self._log.row()).max_bytes
        kind: dict[str, Any] = {}
        if self._kind != "plain":
            kind = {"capped": True, "size": max(self._max_bytes or size, LEAST_CAPPED_BYTES)}
        try:
            await self._link.database.create_collection(LOG, check_exists=False, **kind)
        except OperationFailure as error:
            if not is_existing(error):
                raise
            raise StoreUnavailableError(
                f"MongoDB at {self._link.where}: {LOG} was made anew by another program"
            ) from None
        self._check_kind(await self._repair.options(LOG) or {})
        await self._link.log.create_index([("n", 1)], unique=True, name=OFFSET_INDEX)

    async def _mend_index(self, options: Document, row: Row, hold: Hold) -> None:
        """A log without our index: new and empty, converted, or made by an insert after somebody had dropped ours."""
        if await self._link.log.find_one({}, {"_id": 1}) is None:
            self._check_kind(options)
            await self._raise_floor(row)
            await self._link.log.create_index([("n", 1)], unique=True, name=OFFSET_INDEX)
            return
        scan = await self._repair.scan(self._link.log, row, hold)
        is_capped = bool(options.get("capped"))
        if (
            scan.is_dense
            and scan.without <= 1
            and self._kind in (None, "capped" if is_capped else "plain")
        ):
            try:
                await self._link.log.create_index([("n", 1)], unique=True, name=OFFSET_INDEX)
            except OperationFailure as error:
                logger.warning(
                    "the index of %s cannot be created (%s): it is made anew", LOG, error.code
                )
            else:
                logger.warning(
                    "the index of %s was gone and is created anew; its entries stay as they are",
                    LOG,
                )
                self._check_kind(options)
                return
        size = (
            0
            if self._kind == "plain" or (self._kind is None and not is_capped)
            else self._cap(options, row)
        )
        await self._repair.begin(f"{STRAYS}{await self._link.now_ms()}", size)
        await self._repair.go_on(hold)

    def _cap(self, options: Document, row: Row) -> int:
        """The cap of a capped log that takes the place of one with these options."""
        own = int(options.get("size", 0)) if options.get("capped") else 0
        return max(self._max_bytes or own or row.max_bytes, LEAST_CAPPED_BYTES)

    def _tell_lost_states(self, row: Document | None) -> None:
        self._warn("states", LOST_STATES if row and "states_lost" in row else None)

    def _check_kind(self, options: Document) -> None:
        wanted = self._max_bytes
        is_capped = bool(options.get("capped"))
        if self._kind == "plain" or (self._kind is None and not is_capped):
            if is_capped:
                raise StoreError(
                    f"MongoDB at {self._link.where}: {LOG} is a capped collection; use --log-collection capped"
                )
            self._log.capped_bytes = 0
            return
        if not is_capped:
            raise StoreError(
                f"MongoDB at {self._link.where}: {LOG} is no capped collection. Make it one in mongosh with"
                f' db.runCommand({{convertToCapped: "{LOG}", size: {wanted or DEFAULT_CAP_BYTES}}})'
                " while no agent runs, or use --log-collection plain"
            )
        size = int(options.get("size", 0))
        self._log.capped_bytes = size
        differs = wanted is not None and abs(size - wanted) >= 256  # MongoDB rounds the size
        self._warn(
            "size",
            differs
            and f"{LOG} has a cap of {size} bytes, not the {wanted} of --capped-collection-size. Change it in mongosh with"
            f' db.runCommand({{collMod: "{LOG}", cappedSize: {wanted}}})'
            " (MongoDB 6 or later; before, stop all agents and use"
            f' db.runCommand({{convertToCapped: "{LOG}", size: {wanted}}}), the agent creates the index again)',
        )

    def _warn(self, kind: str, message: str | Literal[False] | None) -> None:
        if not message:
            self.warnings.pop(kind, None)
        elif self.warnings.get(kind) != message:
            self.warnings[kind] = message
            logger.warning("%s", message)

"""Making the collections and keeping them as they must be. Only the holder of the lease changes anything here.

Every step may be repeated and may be cut off after any of its commands: the row in ``oplog_meta`` is written last.
"""

import logging
from typing import Any, Literal

import pymongo
from bson.datetime_ms import DatetimeMS
from pymongo.errors import DuplicateKeyError, OperationFailure

from oplogd.errors import StoreError, StoreUnavailableError
from oplogd.event_id import Mark
from oplogd.store.mongo.connect import Link
from oplogd.store.mongo.errors import is_existing
from oplogd.store.mongo.layout import (
    FIRST_SERVERS_LOG,
    LOG,
    OFFSET_INDEX,
    STATES_INDEXES,
    Document,
    entry_id,
)
from oplogd.store.mongo.log import Log

DEFAULT_CAP_BYTES = 256 * 1024 * 1024
LEAST_CAPPED_BYTES = 1024 * 1024
"""A tenth of it still holds the largest operation."""

Kind = Literal["capped", "plain"]
_LONG_SECONDS = 3600.0
"""For what goes through all states."""

_ASIDE = f"{LOG}_set_aside_at_"
_STRAYS = f"{LOG}_without_index_at_"
_log = logging.getLogger("oplogd.store")


class Setup:
    """``kind`` None takes the log as it is. ``max_bytes`` None keeps its cap, ``new_bytes`` is that of one made now."""

    def __init__(self, link: Link, log: Log, kind: Kind | None, max_bytes: int | None, new_bytes: int) -> None:
        self._link = link
        self._log = log
        self._kind = kind
        self._max_bytes = max_bytes
        self._new_bytes = new_bytes
        self.warnings: dict[str, str] = {}
        """What somebody has to mend, by kind of trouble."""
        if kind == "capped" and max_bytes is not None and max_bytes < LEAST_CAPPED_BYTES:
            raise StoreError(f"--capped-collection-size: a capped collection needs at least {LEAST_CAPPED_BYTES} bytes")

    async def check(self) -> bool:
        """Whether all is set up; changes nothing. Raises StoreError for a collection of the wrong kind."""
        row = await self._link.meta.find_one({"_id": LOG}, {"_id": 1})
        options = await self._options(LOG)
        if options is None:
            return False
        self._check_kind(options)
        return row is not None and OFFSET_INDEX in await self._link.log.index_information()

    async def keep(self) -> None:
        """What the holder of the lease does at first and then now and again. Raises StoreError as ``check``."""
        row = await self._link.meta.find_one({"_id": LOG}, {"_id": 1})
        if row is None:
            with pymongo.timeout(_LONG_SECONDS):
                await self._take_over()
                await self._link.states.create_indexes(STATES_INDEXES)
                await self._create_row()
        options = await self._options(LOG)
        if options is None:
            await self._create_log([] if row is None else await self._raise_floor([]))
        elif OFFSET_INDEX not in await self._link.log.index_information():
            await self._make_anew(options)
        else:
            self._check_kind(options)
        if self._max_bytes is not None:
            await self._link.meta.update_one({"_id": LOG}, {"$set": {"max_bytes": self._max_bytes}})
        await self._log.row()

    async def look_for_strangers(self) -> None:
        """Notice an agent of the first server that writes beside ours."""
        stray = await self._link.log.find_one({"n": None}, {"_id": 1})
        self._warn(
            "first server",
            stray is not None
            and f"an agent of the first server still writes to this database (its entry {stray['_id'] if stray else ''} has no offset and"
            " is in no stream): stop it, then send what it took again",
        )

    async def new_epoch(self, head: Mark, now: int) -> None:
        """``head``: where the states hold the whole log."""
        if await self._link.log.find_one({"n": {"$gt": 0}}, {"_id": 1}) is not None:
            await self._rename(LOG, f"{_ASIDE}{head.offset}")
        row = {"n": head.offset, "ts": now, "created": now, "first": head.offset + 1, "purged": 0}
        await self._link.meta.update_one({"_id": LOG}, {"$set": row})
        with pymongo.timeout(_LONG_SECONDS):
            await self._link.states.update_many({}, {"$set": {"ts": DatetimeMS(now)}})
        await self._create_log([])

    # The parts

    async def _take_over(self) -> None:
        """A database of the first server: its log is set aside, its states stay and get ``n: 0``."""
        options = await self._options(LOG)
        if options is not None and await self._link.log.find_one({"n": {"$gt": 0}}, {"_id": 1}) is None:
            if await self._link.log.find_one({}, {"_id": 1}) is not None:
                if await self._options(FIRST_SERVERS_LOG) is not None:
                    raise StoreUnavailableError(
                        f"MongoDB at {self._link.where}: the first server's log was set aside as {FIRST_SERVERS_LOG}, and"
                        f" yet it goes on writing to {LOG}: stop it, then rename or drop {LOG}"
                    )
                await self._rename(LOG, FIRST_SERVERS_LOG)
                _log.info("the first server's log is set aside as %s, its states are taken over", FIRST_SERVERS_LOG)
            else:
                self._check_kind(options)
        await self._link.states.update_many({"n": {"$exists": False}}, {"$set": {"n": 0}})

    async def _create_row(self) -> None:
        now = await self._link.now_ms()
        taken_over = (
            await self._options(FIRST_SERVERS_LOG) is not None or await self._link.states.find_one() is not None
        )
        newest = await self._link.states.find_one({}, {"ts": 1}, sort=[("ts", -1)])
        offset = await self._link.states.find_one({}, {"n": 1}, sort=[("n", -1)])
        row: Document = {
            "_id": LOG,
            "n": int(offset["n"]) if offset else 0,
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

    async def _raise_floor(self, strays: list[Document]) -> list[Document]:
        """The log is gone: the next one goes on past all that was ever seen here. The strays numbered from there on."""
        row = await self._log.row()
        floor = await self._log.empty_head(row)
        known = self._log.head
        if known.offset > floor.offset:
            floor = Mark(known.offset, max(known.ms, floor.ms))
        lost = floor.offset - row.folded.offset
        if floor.offset:
            _log.warning("the log's collection was dropped: going on after offset %d in a new one", floor.offset)
        if lost:
            self.lost(lost)
        raised = {"n": floor.offset, "ts": floor.ms}
        await self._link.meta.update_one({"_id": LOG, "n": {"$lte": floor.offset}}, {"$set": raised})
        now = max(await self._link.now_ms(), floor.ms)
        marks = [Mark(floor.offset + number, now) for number in range(1, len(strays) + 1)]
        return [{**stray, "_id": entry_id(mark), "n": mark.offset} for stray, mark in zip(strays, marks, strict=True)]

    def lost(self, entries: int) -> None:
        self._warn(
            "unfolded",
            f"{entries} operations have left the log before they were in the states: compare the states with the"
            " source by running oplog-sync",
        )

    async def _create_log(self, entries: list[Document]) -> None:
        """A new log that begins with these. The index comes last: without it nobody appends."""
        size = (await self._log.row()).max_bytes
        kind: dict[str, Any] = {}
        if self._kind != "plain":
            kind = {"capped": True, "size": max(self._max_bytes or size, LEAST_CAPPED_BYTES)}
        try:
            await self._link.database.create_collection(LOG, check_exists=False, **kind)
        except OperationFailure as error:
            if not is_existing(error):
                raise
        self._check_kind(await self._options(LOG) or {})
        if entries:
            await self._link.log.insert_many(entries)
        await self._link.log.create_index([("n", 1)], unique=True, name=OFFSET_INDEX)

    async def _make_anew(self, options: Document) -> None:
        """A log without our index: new and empty, or made by an insert after somebody had dropped ours."""
        if await self._link.log.find_one({}, {"_id": 1}) is None:
            self._check_kind(options)
            await self._raise_floor([])
            await self._create_log([])
            return
        aside = f"{_STRAYS}{await self._link.now_ms()}"
        await self._rename(LOG, aside)
        found = self._link.database[aside].find({"n": {"$gt": 0}}).sort([("n", 1), ("_id", 1)])
        strays = await found.to_list()
        _log.warning("%s was made anew without its index; its %d entries go on, a copy is %s", LOG, len(strays), aside)
        await self._create_log(await self._raise_floor(strays))

    async def _rename(self, name: str, to: str) -> None:
        try:
            await self._link.database[name].rename(to)
        except OperationFailure as error:
            if is_existing(error):
                raise StoreUnavailableError(
                    f"MongoDB at {self._link.where}: {name} is to be set aside as {to}, but that exists: rename it"
                ) from None
            raise

    async def _options(self, name: str) -> Document | None:
        async for found in await self._link.database.list_collections(filter={"name": name}):
            if found["name"] == name:  # mongo-java-server does not filter
                options: Document = found.get("options", {})
                return options
        return None

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
            f' db.runCommand({{collMod: "{LOG}", cappedSize: {wanted}}})',
        )

    def _warn(self, kind: str, message: str | Literal[False] | None) -> None:
        if not message:
            self.warnings.pop(kind, None)
        elif self.warnings.get(kind) != message:
            self.warnings[kind] = message
            _log.warning("%s", message)

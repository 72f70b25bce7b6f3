"""Setup of the collections. Only the holder of the lease changes anything here.

Every step may be repeated, and may be cut off after any of its commands. A take-over writes the row
in ``oplog_meta`` last. Later a note in the row (``repair``) names the repair under way.
"""

import logging
from typing import Any, Literal

import pymongo
from pymongo.errors import OperationFailure

from oplogd.errors import StoreError, StoreFlagError, StoreUnavailableError
from oplogd.store.mongo.link.layout import LOG, OFFSET_INDEX, STATES, STATES_INDEXES, Document
from oplogd.store.mongo.link.lease import HoldLease
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.timing import LONG_SECONDS
from oplogd.store.mongo.log.log import LOST_STATES, Log, LogRow
from oplogd.store.mongo.setup.repair import SET_ASIDE_PREFIX, WITHOUT_INDEX_PREFIX, Repair
from oplogd.store.mongo.setup.states import StatesKeeper, date_states
from oplogd.store.mongo.setup.take_over import create_row, read_own, set_first_log_aside
from oplogd.store.mongo.topics.setup import TopicsSetup

DEFAULT_CAP_BYTES = 256 * 1024 * 1024

# A tenth of it still holds the largest operation.
LEAST_CAPPED_BYTES = 1024 * 1024

# MongoDB rounds the cap to a multiple of this.
_CAP_ROUNDING = 256

CollectionKind = Literal["capped", "plain"]

logger = logging.getLogger("oplogd.store")


class Setup:
    """See ``MongoStore`` for the parameters. The constructor raises StoreFlagError.

    ``warnings``: problems for a person, each under a key for its kind. ``identity`` and ``secret``:
    see ``Store``. The last ``check`` or ``keep`` has read them.
    """

    def __init__(
        self,
        link: Link,
        log: Log,
        kind: CollectionKind | None,
        max_bytes: int | None,
        new_bytes: int,
        topics: TopicsSetup | None = None,
    ) -> None:
        self._link = link
        self._log = log
        self._topics = topics
        self._kind = kind
        self._max_bytes = max_bytes
        self._new_bytes = new_bytes
        self._repair = Repair(link, log, self.warn_lost)
        self._states = StatesKeeper(link)
        self.warnings: dict[str, str] = {}
        self.identity: str | None = None
        self.secret: bytes | None = None
        if kind == "capped" and max_bytes is not None and max_bytes < LEAST_CAPPED_BYTES:
            raise StoreFlagError(
                "--capped-collection-size: a capped collection needs at least"
                f" {LEAST_CAPPED_BYTES} bytes"
            )

    async def check(self) -> bool:
        """Return whether the log is set up. Change nothing but a missing identity or secret.

        Raises StoreError for a collection of the wrong kind.
        """
        row = await self._link.meta.find_one({"_id": LOG}, {"writers": 0})
        self._warn_lost_states(row)
        options = await self._link.options(LOG)
        if options is None or row is None or "repair" in row:
            return False
        self._check_collection(options)
        if OFFSET_INDEX not in await self._link.log.index_information():
            return False
        if self._topics is not None:
            await self._topics.apply()
        self.identity, self.secret = await read_own(self._link.meta)
        return True

    async def keep(self, hold: HoldLease) -> bool:
        """Create and repair the collections. Return whether there was nothing to do.

        Raises StoreError as ``check``.
        """
        noted = await self._link.meta.find_one({"_id": LOG}, {"repair": 1})
        is_whole = noted is not None and "repair" not in noted
        if not is_whole:
            with pymongo.timeout(LONG_SECONDS):
                if noted is None:
                    await self._take_over()
                await self._repair.finish(hold)
        row = await self._log.row()
        options = await self._link.options(LOG)
        if options is None:
            is_whole = False
            await self._raise_floor(row)
            await self._create_log()
        elif OFFSET_INDEX not in await self._link.log.index_information():
            is_whole = False
            with pymongo.timeout(LONG_SECONDS):
                await self._repair_index(options, row, hold)
        else:
            self._check_collection(options)
        has_states = await self._link.options(STATES) is not None
        is_whole &= await self._states.keep(row, exists=has_states)
        if self._max_bytes is not None and row.max_bytes != self._max_bytes:
            await self._link.meta.update_one({"_id": LOG}, {"$set": {"max_bytes": self._max_bytes}})
        self._warn_lost_states(await self._link.meta.find_one({"_id": LOG}, {"states_lost": 1}))
        if self._topics is not None:
            is_whole &= await self._topics.keep(hold)
        self.identity, self.secret = await read_own(self._link.meta)
        return is_whole

    async def look_for_first_server(self) -> None:
        """Warn if an agent of the first server still writes to the log."""
        entry = await self._link.log.find_one({"n": None}, {"_id": 1})
        warning = None
        if entry is not None:
            warning = (
                "an agent of the first server still writes to this database (its entry"
                f" {entry['_id']} has no offset and is in no stream): stop it, then send the"
                " operations again that it received"
            )
        self._warn("first server", warning)

    async def new_epoch(self, now_ms: int) -> None:
        """Note a new epoch from ``now_ms`` on.

        The holder of the lease carries it out and removes the note.
        """
        row = await self._log.row()
        options = await self._link.options(LOG)
        aside = f"{SET_ASIDE_PREFIX}{row.folded.offset}"
        if await self._link.options(aside) is not None:
            aside = f"{aside}_{now_ms}"
        size = self._size(options or {}, row)
        await self._repair.begin(aside, size, now_ms)

    async def is_under_repair(self) -> bool:
        noted = {"_id": LOG, "repair": {"$exists": True}}
        return await self._link.meta.find_one(noted, {"_id": 1}) is not None

    async def _take_over(self) -> None:
        """Take over a first server's database: set its log aside, give its states ``n: 0``."""
        options = await self._link.options(LOG)
        has_entries = await self._link.log.find_one({"n": {"$gt": 0}}, {"_id": 1}) is not None
        if options is not None and not has_entries and not await set_first_log_aside(self._link):
            self._check_collection(options)
        if warning := await date_states(self._link):
            self._warn("dates", warning)
        await self._link.states.update_many({"n": {"$exists": False}}, {"$set": {"n": 0}})
        await self._link.states.create_indexes(STATES_INDEXES)
        await create_row(self._link, self._max_bytes or self._new_bytes)

    async def _raise_floor(self, row: LogRow) -> None:
        """Let the log after a lost one continue behind every entry ever seen here."""
        floor = await self._repair.floor(row)
        lost = floor.offset - row.folded.offset
        if floor.offset:
            logger.warning(
                "the log's collection was dropped: a new one continues after offset %d",
                floor.offset,
            )
        if lost:
            self.warn_lost(lost)
        raised = {"n": floor.offset, "ts": floor.ms}
        await self._link.meta.update_one(
            {"_id": LOG, "n": {"$lte": floor.offset}}, {"$set": raised}
        )

    def warn_lost(self, entries: int) -> None:
        self._warn(
            "unfolded",
            f"{entries} operations have left the log before they were in the states: compare the"
            " states with the source by running oplog-sync",
        )

    async def _create_log(self) -> None:
        """Create the log. The index comes last: without it no agent appends."""
        size = (await self._log.row()).max_bytes
        kind: dict[str, Any] = {}
        if self._kind != "plain":
            kind = {"capped": True, "size": max(self._max_bytes or size, LEAST_CAPPED_BYTES)}
        if not await self._link.create(LOG, **kind):
            raise StoreUnavailableError(
                f"MongoDB at {self._link.hosts}: another program has created {LOG}"
            )
        self._check_collection(await self._link.options(LOG) or {})
        await self._link.log.create_index([("n", 1)], unique=True, name=OFFSET_INDEX)

    async def _repair_index(self, options: Document, row: LogRow, hold: HoldLease) -> None:
        """Repair a log without our index.

        It is new and empty, or converted, or an insert has created it after ours was dropped.
        """
        if await self._link.log.find_one({}, {"_id": 1}) is None:
            self._check_collection(options)
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
                    "the index of %s cannot be created (%s): the log is rebuilt", LOG, error.code
                )
            else:
                logger.warning(
                    "the index of %s was gone and is created again; the entries stay as they are",
                    LOG,
                )
                self._check_collection(options)
                return
        size = self._size(options, row)
        await self._repair.begin(f"{WITHOUT_INDEX_PREFIX}{await self._link.now_ms()}", size)
        await self._repair.finish(hold)

    def _size(self, options: Document, row: LogRow) -> int:
        """Return the cap of a log to replace one with these options, 0 for a plain log."""
        if self._kind == "plain" or (self._kind is None and not options.get("capped")):
            return 0
        own = int(options.get("size", 0)) if options.get("capped") else 0
        return max(self._max_bytes or own or row.max_bytes, LEAST_CAPPED_BYTES)

    def _warn_lost_states(self, row: Document | None) -> None:
        self._warn("states", LOST_STATES if row and "states_lost" in row else None)

    def _check_collection(self, options: Document) -> None:
        wanted = self._max_bytes
        is_capped = bool(options.get("capped"))
        if self._kind == "plain" or (self._kind is None and not is_capped):
            if is_capped:
                raise StoreError(
                    f"MongoDB at {self._link.hosts}: {LOG} is a capped collection; use"
                    " --log-collection capped"
                )
            self._log.known.capped_bytes = 0
            return
        if not is_capped:
            raise StoreError(
                f"MongoDB at {self._link.hosts}: {LOG} is no capped collection. Convert it in"
                f' mongosh with db.runCommand({{convertToCapped: "{LOG}",'
                f" size: {wanted or DEFAULT_CAP_BYTES}}}) while no agent runs, or use"
                " --log-collection plain"
            )
        size = self._log.known.capped_bytes = int(options.get("size", 0))
        warning = None
        if wanted is not None and abs(size - wanted) >= _CAP_ROUNDING:
            warning = (
                f"{LOG} has a cap of {size} bytes, not the {wanted} of --capped-collection-size."
                f' Change it in mongosh with db.runCommand({{collMod: "{LOG}",'
                f" cappedSize: {wanted}}}) (MongoDB 6 or later; before, stop all agents and use"
                f' db.runCommand({{convertToCapped: "{LOG}", size: {wanted}}}), the agent creates'
                " the index again)"
            )
        self._warn("size", warning)

    def _warn(self, kind: str, message: str | None) -> None:
        """Set or remove the warning of a kind. Log a new one once."""
        if not message:
            self.warnings.pop(kind, None)
        elif self.warnings.get(kind) != message:
            self.warnings[kind] = message
            logger.warning("%s", message)

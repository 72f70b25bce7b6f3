"""Reports about pointers, and the claims of rollbacks: each pointer has one document for both.

A report is recorded before its first entry goes into a log. The unique key lets the first report of
a pointer win, in all topics. A rollback claims the same document while it works, unless the pointer
was reported as aborted. So a report and a rollback never work on one pointer at the same time, and
no rollback begins after the report of a commit. Whoever meets a claim completes its rollback.

``oplog_reports`` holds ``{_id, d, logs, late, due}`` for a report. ``_id``: 16 hex digits of the
pointer. ``d``: the ``Decision``. ``logs``: those that were named and whose decision has not left
yet. ``late``: offset, ms and sequence of the last LATE entry by log, once all of them are there.
``due``: the keeper completes it after this time. A claim has ``token``, that of the rollback's
notes, and ``log`` instead.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import DuplicateKeyError

from oplogd.event_id import Mark
from oplogd.pointer import Decision, reported
from oplogd.store.mongo.link import Link
from oplogd.store.mongo.pointers.rows import SETTLED_MS, STEP
from oplogd.store.mongo.topics.catalogue import Catalogue
from oplogd.store.mongo.topics.layout import Document, parts

REPORTS = "oplog_reports"


class Help(Protocol):
    """Completes the rollback of a claim, and removes the claim."""

    async def __call__(self, claim: Document) -> None: ...


class Reports:
    """Methods raise PyMongo's errors, and StoreUnavailableError."""

    def __init__(self, link: Link, catalogue: Catalogue) -> None:
        self._link = link
        self._catalogue = catalogue
        self._reports: AsyncCollection[Document] = link.database[REPORTS]

    async def create_indexes(self) -> None:
        """Create the collection and its indexes, unless they are there."""
        await self._reports.create_index([("due", 1)], name="due", sparse=True)

    async def find(self, pointer: int) -> Document | None:
        """Return the report about a pointer; None without one in a topic that exists."""
        found = await self._find(pointer)
        return None if found is None or "d" not in found or await self._is_over(found) else found

    async def among(self, pointers: Iterable[int]) -> dict[int, Document]:
        """Return the reports about these pointers."""
        return {
            int(each["_id"], 16): each
            for some in parts(map(_key, pointers))
            for each in await self._reports.find({"_id": {"$in": some}}).to_list()
            if "d" in each
        }

    async def record(
        self, pointer: int, decision: Decision, logs: Sequence[int], help_: Help
    ) -> Document:
        """Record a report, or join the one that is there. Return it as it was, with ``logs``.

        It has ``due`` if it may not be in all of its logs. Raises TransactionConflictError if there
        is another one.
        """
        while True:
            due = await self._link.now_ms() + SETTLED_MS
            new = {"_id": _key(pointer), "d": str(decision), "logs": [*logs], "due": due}
            found = await self._insert(pointer, new)
            if found is new:
                return new
            if found is None:
                continue
            if "d" not in found:
                await help_(found)
            elif found["d"] == decision:
                joined = {"logs": [*dict.fromkeys([*found["logs"], *logs])], "due": due}
                same = {"_id": found["_id"], "d": found["d"], "logs": found["logs"]}
                changed = await self._reports.update_one(same, {"$set": joined})
                if changed.matched_count:
                    return found | {"logs": joined["logs"]}
            elif not await self._is_over(found):
                raise reported(pointer, Decision(found["d"]))
            else:
                await self._remove(found)

    async def claim(self, pointer: int, log: int, token: str, help_: Help) -> Decision | None:
        """Claim a pointer for a rollback, unless it was reported. Return that decision."""
        while True:
            due = await self._link.now_ms() + SETTLED_MS
            new = {"_id": _key(pointer), "token": token, "log": log, "due": due}
            found = await self._insert(pointer, new)
            if found is new or (found is not None and found.get("token") == token):
                return None
            if found is None:
                continue
            if "d" not in found:
                await help_(found)
            elif not await self._is_over(found):
                return Decision(found["d"])
            else:
                await self._remove(found)

    async def release(self, pointer: int, token: str) -> None:
        """Remove a claim, if it is there."""
        await self._reports.delete_one({"_id": _key(pointer), "token": token})

    async def settle(self, pointer: int, logs: Sequence[int]) -> None:
        """Note that a report is in all of these logs."""
        same = {"_id": _key(pointer), "logs": [*logs]}
        await self._reports.update_one(same, {"$unset": {"due": ""}})

    async def set_late(self, pointer: int, log: int, mark: Mark) -> bool:
        """Note that all LATE entries are in a log. Return whether that is new."""
        open_ = {"_id": _key(pointer), f"late.{log}": None}
        changed = await self._reports.update_one(open_, {"$set": {f"late.{log}": [*mark]}})
        return bool(changed.modified_count)

    async def due(self, after: str) -> list[Document]:
        """Return some documents past a key that nobody has completed in time."""
        now_ms = await self._link.now_ms()
        chosen = {"_id": {"$gt": after}, "due": {"$lt": now_ms}}
        return await self._reports.find(chosen).sort("_id", 1).limit(STEP).to_list()

    async def leave(self, log: int, pointers: Iterable[int]) -> None:
        """Note that the decisions about pointers have left a log. The last log takes the report."""
        for some in parts(map(_key, pointers)):
            chosen = {"_id": {"$in": some}}
            await self._reports.update_many(chosen, {"$pull": {"logs": log}})
            await self._reports.delete_many({**chosen, "logs": []})

    async def _insert(self, pointer: int, new: Document) -> Document | None:
        """Insert a document. Return it, or the one that was there; None if that has just gone."""
        try:
            await self._reports.insert_one(new)
        except DuplicateKeyError:
            return await self._find(pointer)
        return new

    async def _find(self, pointer: int) -> Document | None:
        async with self._link.reading() as session:
            return await self._reports.find_one({"_id": _key(pointer)}, session=session)

    async def _is_over(self, found: Document) -> bool:
        """Return whether all topics of a report were deleted."""
        return not await self._catalogue.current(found["logs"])

    async def _remove(self, found: Document) -> None:
        await self._reports.delete_one({"_id": found["_id"], "logs": found["logs"]})


def late_mark(report: Document, log: int) -> Mark | None:
    """Return the mark of the last LATE entry in a log; None while some may be missing."""
    found = report.get("late", {}).get(str(log))
    return None if found is None else Mark(*found)


def _key(pointer: int) -> str:
    return f"{pointer:016x}"

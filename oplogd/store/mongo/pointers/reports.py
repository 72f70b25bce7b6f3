"""Reports about pointers, and the claims of rollbacks: one document for each pointer.

A report is recorded for all of its logs before its first entry goes into one of them. A rollback
claims its pointer and log while it works, unless the pointer was reported there. Each change of the
document is a compare-and-set, so a report and a rollback never work on one pointer in one log at
the same time, no rollback begins after the report of a commit, and no report is recorded in a part
of its logs. Whoever meets a claim completes its rollback.

``oplog_reports`` holds ``{_id, v, committed, aborted, late, claims, due}``. ``_id``: 16 hex digits
of the pointer. ``v`` grows with each change, from a random number on: a document made again after
its removal must not look unchanged. ``committed`` and ``aborted``: the logs with this report, until
the decision leaves the log. ``late``: offset, ms and sequence of the last LATE
entry by log, once all of them are there. ``claims``: the tokens of rollbacks by log. ``due``: some
reports may not be carried out. The keeper completes them after this time.
"""

import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import DuplicateKeyError

from oplogd.model.event_id import Mark
from oplogd.model.pointer import Decision, decided
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.overdue import is_past
from oplogd.store.mongo.link.topic_layout import Document, parts
from oplogd.store.mongo.pointers.rows import SETTLED_MS, STEP

REPORTS = "oplog_reports"

_VERSION_BITS = 62

REPORTED = (Decision.COMMITTED, Decision.ABORTED)


# Completes the rollback of a claim: of its pointer, log and token. Releases the claim.
Help = Callable[[int, int, str], Awaitable[None]]


class Reports:
    """Methods raise PyMongo's errors, and StoreUnavailableError."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._reports: AsyncCollection[Document] = link.database[REPORTS]

    async def create_indexes(self) -> None:
        """Create the collection and its indexes, unless they are there."""
        await self._reports.create_index([("due", 1)], name="due", sparse=True)

    async def find(self, pointer: int) -> Document:
        """Return the reports about a pointer, and its claims."""
        async with self._link.reading() as session:
            found = await self._reports.find_one({"_id": _key(pointer)}, session=session)
        empty = {"v": 0, "committed": [], "aborted": [], "late": {}, "claims": {}}
        return found or {"_id": _key(pointer), **empty}

    async def unreported(self, pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the pairs of a pointer and a log without a report."""
        found: dict[int, Document] = {}
        for some in parts(_key(pointer) for pointer, _ in pairs):
            documents = await self._reports.find({"_id": {"$in": some}}).to_list()
            found |= {pointer_of(each): each for each in documents}
        return [
            (pointer, log)
            for pointer, log in pairs
            if pointer not in found or report_of(found[pointer], log) is None
        ]

    async def record(
        self, pointer: int, decision: Decision, logs: Sequence[int], help_: Help
    ) -> Document:
        """Record a report for all of these logs. Return the document as it was before, with them.

        It has ``due`` if earlier reports may not be carried out. Raises TransactionConflictError if
        the pointer was reported otherwise in one of these logs.
        """
        while True:
            found = await self.find(pointer)
            for log in logs:
                if (earlier := report_of(found, log)) not in (None, decision):
                    raise decided(pointer, earlier)
            claims = {log: found["claims"].get(str(log)) for log in logs}
            if any(claims.values()):
                for log, token in claims.items():
                    if token is not None:
                        await help_(pointer, log, token)
                continue
            joined = {decision.value: [*dict.fromkeys([*found[decision.value], *logs])]}
            due = await self._link.now_ms() + SETTLED_MS
            if await self._change(found, {"$set": {**joined, "due": due}}):
                return found | joined

    async def claim(self, pointer: int, log: int, token: str, help_: Help) -> Decision | None:
        """Claim a pointer for a rollback, unless it was reported in this log. Return the report."""
        while True:
            found = await self.find(pointer)
            if (report := report_of(found, log)) is not None:
                return report
            other = found["claims"].get(str(log))
            if other == token:
                return None
            if other is not None:
                await help_(pointer, log, other)
            elif await self._change(found, {"$set": {f"claims.{log}": token}}):
                return None

    async def release(self, pointer: int, log: int, token: str) -> None:
        """Remove a claim, if it is there."""
        name = f"claims.{log}"
        own = {"_id": _key(pointer), name: token}
        await self._reports.update_one(own, {"$unset": {name: ""}, "$inc": {"v": 1}})
        await self._remove({"_id": _key(pointer)})

    async def settle(self, report: Document) -> None:
        """Note that all reports of a document are carried out."""
        same = {each: report[each] for each in ("_id", "committed", "aborted")}
        await self._reports.update_one(same, {"$unset": {"due": ""}})

    async def set_late(self, pointer: int, log: int, mark: Mark) -> bool:
        """Note that all LATE entries are in a log. Return whether this is new."""
        name = f"late.{log}"
        change = {"$set": {name: [*mark]}, "$inc": {"v": 1}}
        changed = await self._reports.update_one({"_id": _key(pointer), name: None}, change)
        return bool(changed.modified_count)

    async def due(self, after: str) -> list[Document]:
        """Return some overdue documents past a key."""
        now_ms = await self._link.now_ms()
        chosen = {"_id": {"$gt": after}, **is_past("due", now_ms)}
        return await self._reports.find(chosen).sort("_id", 1).limit(STEP).to_list()

    async def leave(self, log: int, pointers: Iterable[int]) -> None:
        """Note that the decisions about pointers have left a log, or the log is gone."""
        left = {
            "$pull": {each.value: log for each in REPORTED},
            "$unset": {f"late.{log}": ""},
            "$inc": {"v": 1},
        }
        for some in parts(map(_key, pointers)):
            await self._reports.update_many({"_id": {"$in": some}}, left)
            await self._remove({"_id": {"$in": some}})

    async def _change(self, found: Document, change: dict[str, Any]) -> bool:
        """Change a document unless another change came first. Return whether it was changed."""
        if not found["v"]:
            try:
                version = 1 + secrets.randbits(_VERSION_BITS)
                await self._reports.insert_one({**found, "v": version, **_set(found, change)})
            except DuplicateKeyError:
                return False
            return True
        same = {"_id": found["_id"], "v": found["v"]}
        changed = await self._reports.update_one(same, {**change, "$inc": {"v": 1}})
        return bool(changed.matched_count)

    async def _remove(self, chosen: Document) -> None:
        """Remove documents without reports and claims."""
        empty: Document = {"committed": [], "aborted": [], "claims": {}}
        await self._reports.delete_many({**chosen, **empty})


def pointer_of(report: Document) -> int:
    return int(report["_id"], 16)


def report_of(report: Document, log: int) -> Decision | None:
    """Return the report for a log."""
    return next((each for each in REPORTED if log in report[each.value]), None)


def late_mark(report: Document, log: int) -> Mark | None:
    """Return the mark of the last LATE entry in a log, None while some may be missing."""
    found = report["late"].get(str(log))
    return None if found is None else Mark(*found)


def _set(found: Document, change: dict[str, Any]) -> Document:
    """Return the members of a new document after a change."""
    members: Document = {}
    for name, value in change["$set"].items():
        member, _, key = name.partition(".")
        members[member] = {**found[member], key: value} if key else value
    return members


def _key(pointer: int) -> str:
    return f"{pointer:016x}"

"""The open pointers: the work of the keeper.

``oplog_pointers`` holds ``{_id, log, begun, expires, entries, stored, due}`` for each pointer in
each log. ``_id``: 16 hex digits of the pointer and 6 of the log. ``begun`` and ``expires`` are ms.
``entries`` and ``stored``: something was, or is being, published or stored. ``due``: an agent of an
earlier version was deciding. The keeper looks after this time.

A row is there before the first entry is appended or the first message stored, and is removed only
after the decision was seen in the log. No decision depends on its content: it need only be there.

``oplog_aborted`` holds ``{_id, log}`` for each aborted pointer with entries to void: see
``Leaving``.
"""

import contextlib
from collections.abc import Iterable

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import DuplicateKeyError

from oplogd.clock.ages import MAX_LEAD_MS
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.overdue import is_over, is_past
from oplogd.store.mongo.link.topic_layout import Document, parts
from oplogd.store.mongo.transactions.rows import date_again
from oplogd.store.numbers import number_of
from oplogd.store.pointers import FoundPointer, OpenPointer, PointerKey
from oplogd.store.transactions import OpenStats

POINTERS = "oplog_pointers"
ABORTED = "oplog_aborted"

# Time after which the keeper completes the work of another agent.
SETTLED_MS = 3_000

# Rows of one step of the keeper.
STEP = 500


def key(pointer: int, log: int) -> str:
    return f"{pointer:016x}{number_of(log):06x}"


def pointer_and_number(key: str) -> tuple[int, int]:
    """Return the pointer, and the number of the log."""
    return int(key[:16], 16), int(key[16:22], 16)


def pointer_and_log(document: Document) -> tuple[int, int]:
    """Return the pointer and the log of a row or a note."""
    pointer, number = pointer_and_number(document["_id"])
    return pointer, int(document.get("log", number))


async def note_aborted(link: Link, pointer: int, log: int) -> None:
    """Note that the sweep may void all entries of a pointer."""
    with contextlib.suppress(DuplicateKeyError):
        await link.database[ABORTED].insert_one({"_id": key(pointer, log), "log": log})


class PointerRows:
    """Methods raise PyMongo's errors."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._rows: AsyncCollection[Document] = link.database[POINTERS]

    async def create_indexes(self) -> None:
        """Create the collection and its indexes, unless they are there."""
        await self._rows.create_index([("log", 1), ("begun", 1), ("_id", 1)], name="log")
        await self._rows.create_index([("begun", 1)], name="begun")
        await self._rows.create_index([("expires", 1)], name="expires")
        await self._rows.create_index([("due", 1)], name="due", sparse=True)

    async def find(self, pointer: int, log: int) -> Document:
        """Return the row of a pointer, empty if there is none."""
        async with self._link.reading() as session:
            found = await self._rows.find_one({"_id": key(pointer, log)}, session=session)
        return found or {}

    async def register_entries(self, pointer: int, log: int, timeout_ms: int) -> None:
        """Note that entries will be appended. From the first time on the pointer has so long."""
        await self._register(pointer, log, timeout_ms, {"entries": True})

    async def register_stored(self, pointer: int, log: int, timeout_ms: int) -> None:
        """Note that messages will be stored. The pointer has so long, unless it has entries."""
        if not await self._register(pointer, log, timeout_ms, {"stored": True}):
            chosen = {"_id": key(pointer, log)}
            await self._rows.update_one(chosen, {"$set": {"stored": True}})

    async def _register(self, pointer: int, log: int, timeout_ms: int, members: Document) -> bool:
        """Return False if the pointer has entries already."""
        present = await self._link.present()
        chosen: Document = {"_id": key(pointer, log), "entries": None}
        change: Document = {"log": log, "expires": present.ms + timeout_ms, **members}
        if present.ages.eras:  # see `Present.begun`
            known = {"$gte": present.ages.since, "$lte": present.ms + MAX_LEAD_MS}
            again = {"$set": {**change, "begun": present.ms}}
            older = {**chosen, "begun": {"$exists": True, "$not": known}}
            if (await self._rows.update_one(older, again)).matched_count:
                return True
        try:
            begun = {"$setOnInsert": {"begun": present.ms}}
            await self._rows.update_one(chosen, {"$set": change, **begun}, upsert=True)
        except DuplicateKeyError:
            return False
        return True

    async def calm(self, keys: Iterable[str]) -> None:
        """Note that these pointers were not decided in time."""
        passed = is_past("due", await self._link.now_ms())
        for some in parts(keys):
            chosen = {"_id": {"$in": some}, **passed}
            await self._rows.update_many(chosen, {"$unset": {"due": ""}})

    async def among(self, keys: Iterable[str]) -> list[Document]:
        """Return the rows with these keys."""
        return [
            each
            for some in parts(keys)
            for each in await self._rows.find({"_id": {"$in": some}}).to_list()
        ]

    async def remove(self, keys: Iterable[str]) -> None:
        for some in parts(keys):
            await self._rows.delete_many({"_id": {"$in": some}})

    async def due(self, after: str) -> list[Document]:
        """Return some overdue or unfinished rows past a key."""
        present = await self._link.present()
        chosen = {
            "_id": {"$gt": after},
            "$or": [is_over(present), is_past("due", present.ms)],
        }
        return await self._rows.find(chosen).sort("_id", 1).limit(STEP).to_list()

    async def date_again(self) -> None:
        """Let pointers begin now if they began before the clock was set back."""
        await date_again(self._rows, {}, await self._link.present())

    async def select(
        self, limit: int, after: PointerKey | None, log: int | None = None
    ) -> list[FoundPointer]:
        """See ``Pointers.select`` and ``Pointers.select_all``. ``log`` None: all."""
        chosen: Document = {} if log is None else {"log": log}
        if after is not None:
            begun = after.begun_ms
            past = {"begun": begun, "_id": {"$gt": key(after.pointer, after.log)}}
            chosen["$or"] = [{"begun": {"$gt": begun}}, past]
        found = self._rows.find(chosen).sort([("begun", 1), ("_id", 1)]).limit(limit)
        return [_found(each) for each in await found.to_list()]

    async def of_log(self, log: int) -> list[str]:
        """Return the keys of a log."""
        return [each["_id"] for each in await self._rows.find({"log": log}, {"_id": 1}).to_list()]

    async def with_stored(self, log: int, limit: int) -> list[int]:
        """Return pointers of a log under which messages were stored, the oldest first."""
        chosen = {"log": log, "stored": True}
        found = self._rows.find(chosen, {"_id": 1}).sort([("begun", 1), ("_id", 1)]).limit(limit)
        return [pointer_and_log(each)[0] for each in await found.to_list()]

    async def stats(self) -> OpenStats:
        """See ``Pointers.stats``."""
        # All of them, by an index.
        count = await self._rows.count_documents({"begun": {"$gt": 0}})
        oldest = await self._rows.find_one({}, {"begun": 1}, sort=[("begun", 1)]) if count else None
        return OpenStats(count, int(oldest["begun"])) if oldest else OpenStats(0, 0)


def _found(row: Document) -> FoundPointer:
    pointer, log = pointer_and_log(row)
    has_entries = bool(row.get("entries"))
    return FoundPointer(
        log, OpenPointer(pointer, int(row["begun"]), int(row["expires"]), has_entries)
    )

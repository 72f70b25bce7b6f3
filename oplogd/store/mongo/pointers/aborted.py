"""Voiding the entries of pointers that were aborted. The sweep does it, some at a time.

``oplog_aborted`` holds ``{_id}`` for each pointer whose entries are to be voided: see ``rows``. A
note leaves when no entry of the pointer is left, in a log that is gone, too.
"""

from collections.abc import Callable, Iterable
from itertools import islice

from pymongo.errors import DuplicateKeyError

from oplogd.store.mongo.link import Link
from oplogd.store.mongo.pointers.published import end_of
from oplogd.store.mongo.pointers.rows import STEP, key, pointer_and_log
from oplogd.store.mongo.pointers.stored import ROLLED_BACK, StoredMessages
from oplogd.store.mongo.topics.layout import (
    PUBLISH_BASE,
    identity,
    number_and_offset,
    number_of,
    place,
)
from oplogd.store.topics import EntryKind

ABORTED = "oplog_aborted"

STANDING = {"$in": [EntryKind.DIRECT.value, EntryKind.PUBLISH.value]}


class Aborted:
    """Methods raise PyMongo's errors."""

    def __init__(self, link: Link, stored: StoredMessages) -> None:
        self._link = link
        self._notes = link.database[ABORTED]
        self._stored = stored

    async def note(self, pointer: int, log: int) -> None:
        """Note that the sweep may void all entries of a pointer."""
        try:
            await self._notes.insert_one({"_id": key(pointer, log), "log": log})
        except DuplicateKeyError:
            return

    async def void_all(self, is_allowed: Callable[[], bool]) -> None:
        """Void the entries of all pointers that were noted, some at a time while it is allowed."""
        while is_allowed() and (note := await self._notes.find_one({})) is not None:
            pointer, log = pointer_and_log(note)
            after = identity(pointer, log, 0)
            while is_allowed():
                chosen = {"x": {"$gt": after, "$lt": end_of(pointer, log)}, "kind": STANDING}
                cursor = self._link.entries.find(chosen, {"x": 1}).sort("x", 1).limit(STEP)
                if not (found := await cursor.to_list()):
                    await self._notes.delete_one({"_id": note["_id"]})
                    break
                after = found[-1]["x"]
                offsets = [number_and_offset(each["_id"])[1] for each in found]
                await void(self._link, pointer, log, offsets)
                # Later: a reader that misses messages takes them for gone unless the entry is void.
                if (upto := number_of(after) - PUBLISH_BASE) > 0:
                    await self._stored.drop(pointer, log, 0, upto, ROLLED_BACK)


async def void(link: Link, pointer: int, log: int, offsets: Iterable[int]) -> None:
    """Void entries of a pointer in place. They keep their identity. Raises PyMongo's errors."""
    own = {"$gte": identity(pointer, log, 0), "$lt": end_of(pointer, log)}
    emptied = {
        "$set": {"kind": EntryKind.VOID.value, "data": ""},
        "$unset": {"expires": ""},
    }
    todo = iter(offsets)
    while keys := [place(log, offset) for offset in islice(todo, STEP)]:
        chosen = {"_id": {"$in": keys}, "kind": STANDING, "x": own}
        await link.entries.update_many(chosen, emptied)

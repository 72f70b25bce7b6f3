"""Rollbacks. Each is noted before it changes anything, so any agent can complete it.

    note it: the places of the entries, and the numbers of the stored messages
    claim the pointer in this log: no report of a commit then comes meanwhile, see ``reports``
    void the entries in place, and empty these messages
    one VOID entry that names the places, once
    remove the note
    release the pointer

If the pointer was reported as committed when the claim is made, nothing is done.

``oplog_rollbacks`` holds the notes ``{_id, log, runs, stored, upto, due, free, gap, u}``. ``_id``:
key of the pointer, then a token. ``runs``: first offset and length of each run in turn. ``stored``:
in the same way the number before the first message, and the number of the last one. ``upto``: the
last message if all are rolled back, else -1. ``due``: the keeper completes it after this time.
``free``: it needs no claim, because the pointer was aborted, or because the rollback is forced.
Then ``gap`` is the largest stamp of its entries if committed readers may have them, else 0. ``u``:
unique. One more document, ``#``, has none. So agents of earlier versions, which claim nothing and
write no ``u``, can note no rollback.

A rollback concerns the entries in the log when it is noted. Entries landing meanwhile stay, except
PUBLISH entries of messages rolled back. Such an entry may also publish newer
messages. They are rolled back with it: agents remember the messages of an entry, so an entry is
voided as a whole or not at all.
"""

import contextlib
import secrets
from collections.abc import Collection, Sequence

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import DuplicateKeyError, OperationFailure

from oplogd.model.event_id import Mark
from oplogd.model.message_id import stamp
from oplogd.model.pointer import Decision, Voided, encode_voided, too_late
from oplogd.model.transaction import decode_marker
from oplogd.store.mongo.decisions.appends import PointerAppender
from oplogd.store.mongo.link.errors import DUPLICATE_KEY
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.overdue import is_past
from oplogd.store.mongo.link.topic_layout import (
    Document,
    identity,
    late_identity,
    number_and_offset,
    numbered,
)
from oplogd.store.mongo.pointers.published import end_of, publish_identity
from oplogd.store.mongo.pointers.reports import Reports
from oplogd.store.mongo.pointers.rows import SETTLED_MS, key, pointer_and_log
from oplogd.store.mongo.pointers.stored import ROLLED_BACK, StoredMessages
from oplogd.store.mongo.pointers.voiding import STANDING, covers, flat, offsets_of, pairs_of, void
from oplogd.store.mongo.topics.catalogue import Catalogue
from oplogd.store.mongo.topics.groups import Group, Once, new_entry
from oplogd.store.pointers import runs_of
from oplogd.store.topics import EntryKind

ROLLBACKS = "oplog_rollbacks"

# Runs of one VOID entry, and of one note.
_RUNS_PER_ENTRY = 2_000
_RUNS_PER_NOTE = 100_000

_TOKEN = slice(22, 38)
_NO_NOTE = "#"


class Rollbacks:
    """Methods raise PyMongo's errors, and StoreUnavailableError."""

    def __init__(
        self, link: Link, catalogue: Catalogue, stored: StoredMessages, appender: PointerAppender
    ) -> None:
        self._link = link
        self._catalogue = catalogue
        self._reports = Reports(link)
        self._notes: AsyncCollection[Document] = link.database[ROLLBACKS]
        self._stored = stored
        self._appender = appender

    async def create_indexes(self) -> None:
        """Create the collection and its indexes, unless they are there."""
        await self._notes.create_index([("due", 1)], name="due", sparse=True)
        with contextlib.suppress(DuplicateKeyError):
            await self._notes.insert_one({"_id": _NO_NOTE})
        try:
            await self._notes.create_index([("u", 1)], name="u", unique=True)
        except OperationFailure as error:
            if error.code != DUPLICATE_KEY:  # an older agent is at work: the next time
                raise

    async def pending(self, pointer: int, log: int) -> list[Document]:
        """Return the incomplete rollbacks of a pointer."""
        chosen = {"_id": {"$gt": key(pointer, log), "$lt": key(pointer, log) + "~"}}
        async with self._link.reading() as session:
            return await self._notes.find(chosen, session=session).sort("_id", 1).to_list()

    async def due(self, after: str) -> Document | None:
        """Return the next overdue rollback past a key."""
        now_ms = await self._link.now_ms()
        chosen = {"_id": {"$gt": after}, **is_past("due", now_ms)}
        return await self._notes.find_one(chosen, sort=[("_id", 1)])

    async def note(
        self,
        pointer: int,
        log: int,
        stamps: Sequence[int] | None,
        *,
        is_free: bool = False,
        is_gap: bool = False,
    ) -> list[Document]:
        """Note the entries with these stamps, all if None. Return the notes.

        ``is_free`` and ``is_gap``: see ``free`` and ``gap`` above.
        """
        upto = -1
        if stamps is None:
            found = await self._stored.find(pointer, log)
            upto = found.number if found.first_new is not None else -1
        offsets, stored, newest = await self._standing(pointer, log, stamps)
        if stamps is None and stored:
            upto = max(upto, max(last for _, last in stored))
        if upto >= 0:
            stored = [(0, upto)]
        runs = runs_of(offsets)
        notes: list[Document] = []
        token = secrets.token_hex(8)
        for start in range(0, len(runs), _RUNS_PER_NOTE) if runs else range(upto >= 0):
            notes.append(
                {
                    "_id": f"{key(pointer, log)}{token}{start:08x}",
                    "log": log,
                    "runs": flat(runs[start : start + _RUNS_PER_NOTE]),
                    "stored": [] if start else flat(stored),
                    "upto": -1 if start else upto,
                    "due": await self._link.now_ms() + SETTLED_MS,
                    "free": is_free,
                    "gap": newest if is_gap else 0,
                    "u": f"{token}{start:08x}",
                }
            )
        for note in notes:
            await self._notes.insert_one(note)
        if notes:
            await self._link.step("rollback-noted")
        return notes

    async def complete(self, note: Document) -> Mark | None:
        """Carry out a rollback. Return the mark of its last VOID entry, None if it has none.

        Raises TransactionConflictError if the pointer was reported as committed before.
        """
        pointer, log = pointer_and_log(note)
        token = note["_id"][_TOKEN]
        if note.get("free"):
            return await self._carry_out(note, pointer, log)
        if await self._reports.claim(pointer, log, token, self.help) is Decision.COMMITTED:
            for each in await self._of_token(pointer, log, token):
                await self._notes.delete_one({"_id": each["_id"]})
            raise too_late(pointer)
        await self._link.step("claimed")
        mark = await self._carry_out(note, pointer, log)
        if not await self._of_token(pointer, log, token):
            await self._reports.release(pointer, log, token)
        return mark

    async def help(self, pointer: int, log: int, token: str) -> None:
        """Complete the rollback of a claim. The claim then is gone."""
        for note in await self._of_token(pointer, log, token):
            await self._carry_out(note, pointer, log)
        await self._reports.release(pointer, log, token)

    async def _of_token(self, pointer: int, log: int, token: str) -> list[Document]:
        return [each for each in await self.pending(pointer, log) if each["_id"][_TOKEN] == token]

    async def _carry_out(self, note: Document, pointer: int, log: int) -> Mark | None:
        runs = pairs_of(note["runs"])
        if gap := note.get("gap"):
            # First: a reader that misses messages must learn of it.
            topic = await self._catalogue.of_log(log)
            if topic is not None:
                same = {"_id": topic["_id"], **numbered(log)}
                await self._link.topics.update_one(same, {"$max": {"purged": gap}})
        # A reader that misses messages of a PUBLISH entry takes them for gone unless it is void.
        await void(self._link, pointer, log, offsets_of(runs))
        await self._link.step("voided")
        for after, last in pairs_of(note["stored"]):
            await self._stored.drop(pointer, log, after, last, ROLLED_BACK)
        await self._link.step("dropped")
        if note["upto"] >= 0:
            noted, runs = runs, await self._with_late(note, pointer, log, runs)
            if runs != noted:
                await void(self._link, pointer, log, offsets_of(runs))
        mark = await self._append(note["_id"], pointer, log, runs, is_gap=bool(gap))
        await self._link.step("void-entry")
        await self._notes.delete_one({"_id": note["_id"]})
        return mark

    async def _with_late(
        self, note: Document, pointer: int, log: int, runs: list[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """Note the PUBLISH entries landed since then, and drop the rest of their messages.

        Some readers may have read these messages in between. The ranges of PUBLISH entries do not
        overlap, so at most one publishes newer messages, too.
        """
        upto: int = note["upto"]
        low, middle = publish_identity(pointer, log, 1), publish_identity(pointer, log, upto)
        own = {"x": {"$gte": low, "$lte": middle}, "kind": EntryKind.PUBLISH.value}
        newer = {"x": {"$gt": middle, "$lt": end_of(pointer, log)}}
        entries = self._link.entries
        async with self._link.reading() as session:
            found = await entries.find(own, {"_id": 1}, session=session).to_list()
            after = await entries.find_one(
                newer, {"kind": 1, "data": 1}, sort=[("x", 1)], session=session
            )
        end = upto
        if after is not None and after["kind"] == EntryKind.PUBLISH:
            marker = decode_marker(after["data"])
            if marker.end - marker.records < upto:
                end = marker.end
                found.append(after)
        offsets = [number_and_offset(each["_id"])[1] for each in found]
        if late := [offset for offset in offsets if not covers(runs, offset)]:
            runs = runs_of([*offsets_of(runs), *late])
            changed = {"runs": flat(runs), "stored": [0, end], "upto": end}
            await self._notes.update_one({"_id": note["_id"]}, {"$set": changed})
        await self._stored.drop(pointer, log, upto, end, ROLLED_BACK)
        return runs

    async def _append(
        self,
        token: str,
        pointer: int,
        log: int,
        runs: Sequence[tuple[int, int]],
        *,
        is_gap: bool,
    ) -> Mark | None:
        entries = []
        for start in range(0, len(runs), _RUNS_PER_ENTRY):
            some = [*runs[start : start + _RUNS_PER_ENTRY]]
            data = encode_voided(Voided(str(pointer), some, is_gap))
            once = Once(f"{token[:22]}v{token[22:]}{start:08x}")
            entries.append(new_entry(EntryKind.VOID, data.encode(), once=once))
        if not entries:
            return None
        group = Group(log, entries)
        await self._appender.run([group])
        return group.last

    async def _standing(
        self, pointer: int, log: int, stamps: Collection[int] | None
    ) -> tuple[list[int], list[tuple[int, int]], int]:
        """Return offsets of entries, the stored messages of the PUBLISH entries among them, and the
        largest stamp.
        """
        low, middle = identity(pointer, log, 0), publish_identity(pointer, log, 0)
        others: Document = {"kind": STANDING}
        wanted = None if stamps is None else {each for each in stamps if 0 <= each < 1 << 79}
        if wanted is not None:
            if not wanted:
                return [], [], 0
            others["ts"] = {"$gte": min(wanted) >> 16, "$lte": max(wanted) >> 16}
        offsets: list[int] = []
        stored: list[tuple[int, int]] = []
        newest = 0
        late = {"$gte": late_identity(pointer, log, 0, 0), "$lt": f"{key(pointer, log)}z"}
        async with self._link.reading() as session:
            for chosen, members in (
                ({"$gte": low, "$lt": middle}, {"ts": 1, "q": 1}),
                ({"$gte": middle, "$lt": end_of(pointer, log)}, {"ts": 1, "q": 1, "data": 1}),
                (late, {"ts": 1, "q": 1}),
            ):
                found = self._link.entries.find({"x": chosen, **others}, members, session=session)
                async for each in found.batch_size(5_000):
                    own = stamp(each["ts"], each["q"])
                    if wanted is None or own in wanted:
                        newest = max(newest, own)
                        offsets.append(number_and_offset(each["_id"])[1])
                        if "data" in each:
                            marker = decode_marker(each["data"])
                            stored.append((marker.end - marker.records, marker.end))
        return offsets, stored, newest

"""The log collection: the append rule, reads in offset order, where the log stands.

Every writer numbers its batch from the head on and inserts it in order. The unique index on the offset decides between
writers, and tells one that has lost an answer that its own entries are there. So an entry implies its predecessor.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import BulkWriteError

from oplogd.errors import StoreUnavailableError
from oplogd.event_id import Mark
from oplogd.operation import Operation
from oplogd.store.base import Entry, Located, Stamp
from oplogd.store.mongo.bell import Bell
from oplogd.store.mongo.connect import Link
from oplogd.store.mongo.errors import DUPLICATE_KEY
from oplogd.store.mongo.layout import ENTRY_OVERHEAD, LOG, OFFSET_INDEX, Document, entry, entry_document, mark_of

READ_CHARACTERS = 1_000_000
"""About what one read brings at most, however long the operations are."""

_READ_AGAIN = 5
_JITTER_SECONDS = 0.02
_LANDING_SECONDS = 5.0
_ROOM_SECONDS = 0.05
_OWN = {"w": 1, "s": 1, "n": 1}


class Row:
    """The log's row in ``oplog_meta``. ``folded``: the checkpoint, up to which the states hold the log."""

    def __init__(self, document: Document) -> None:
        self.folded = Mark(int(document["n"]), int(document["ts"]))
        self.first = int(document["first"])
        self.created = int(document["created"])
        self.purged = int(document["purged"])
        self.adopted = int(document["adopted"])
        self.max_bytes = int(document["max_bytes"])


class Log:
    """Methods raise PyMongo's errors; what is wrong with the log itself is a StoreUnavailableError."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.appended = Bell()
        """Rings when entries were appended here or seen."""
        self.head = Mark(0, 0)
        """The newest entry seen here: a hint, which every use checks."""
        self.followed_until = float("-inf")
        """Until when, in monotonic time, somebody follows here and rings ``appended``."""
        self.capped_bytes = 0
        """The size of the capped collection; 0 for a plain one."""
        self.folded = 0
        """The checkpoint's offset as last seen."""
        self._entry_bytes = 2.0 * ENTRY_OVERHEAD
        """The mean size of the entries written here: up at once, down slowly, so that there is rather too much room."""
        self._oldest = Mark(0, 0)
        self._landed: dict[str, int] = {}
        """The last operation in the log of each writer that is not in doubt."""

    # Reading

    async def row(self, session: AsyncClientSession | None = None) -> Row:
        document = await self._link.meta.find_one({"_id": LOG}, {"writers": 0}, session=session)
        if document is None:
            raise StoreUnavailableError(f"MongoDB at {self._link.where}: the log is not set up yet")
        row = Row(document)
        self.folded = max(self.folded, row.folded.offset)
        return row

    async def documents(self, after: int, limit: int, session: AsyncClientSession | None = None) -> list[Document]:
        """Up to ``limit`` entries past an offset without a gap, about a megabyte of them at most.

        The first is not ``after + 1`` only if that one is really gone: a server may leave out what is inserted while it
        reads (FerretDB does).
        """
        for _ in range(_READ_AGAIN):
            found = await self._range(after, limit, session)
            if not found or found[0]["n"] == after + 1 or not await self.has(after + 1):
                break
        else:
            raise StoreUnavailableError(f"MongoDB at {self._link.where}: its answers do not hold together")
        dense = [
            document for number, document in enumerate(found, found[0]["n"] if found else 0) if document["n"] == number
        ]
        if dense:
            self.saw(mark_of(dense[-1]))
        return dense

    async def _range(self, after: int, limit: int, session: AsyncClientSession | None) -> list[Document]:
        found: list[Document] = []
        size = 0
        cursor = self._link.log.find({"n": {"$gt": after}}, session=session).sort("n", 1).limit(limit)
        async with cursor.batch_size(limit + 1):
            async for document in cursor:
                found.append(document)
                data = document["data"]
                size += len(data["id"]) + sum(map(len, data.get("p") or ()))
                if size > READ_CHARACTERS:
                    break
        return found

    async def read(self, after: int, limit: int) -> list[Entry]:
        async with self._link.reading() as session:
            return [entry(document) for document in await self.documents(after, limit, session)]

    async def has(self, offset: int) -> bool:
        return await self._link.log.find_one({"n": offset}, {"_id": 1}) is not None

    def saw(self, mark: Mark) -> None:
        if mark.offset > self.head.offset:
            self.head = mark

    async def locate(self, offset: int) -> Located:
        """One look-up of four offsets tells all, unless the log has grown or was trimmed since the last."""
        async with self._link.reading() as session:
            row = await self.row(session)
            known, low = self.head.offset, self._oldest.offset
            asked = {"$in": sorted({offset, low, known, known + 1})}
            found = {
                mark.offset: mark
                async for document in self._link.log.find({"n": asked}, {"n": 1}, session=session)
                if (mark := mark_of(document)).offset
            }
            head: Mark | None
            if known + 1 in found:
                head = await self._newest({"$gt": known}, session) or found[known + 1]
            else:
                head = found.get(known) or await self._newest({"$gt": 0}, session)
            oldest = found.get(low) or await self._oldest_of(session)
            if head is None or oldest is None:
                oldest = None
                head = await self.empty_head(row, session)
            else:
                self.head, self._oldest = head, oldest
        at = found.get(offset)
        return Located(
            head=head,
            oldest=oldest,
            at_ms=at.ms if at else None,
            created_ms=row.created,
            first_offset=row.first,
            purged_ms=row.purged,
            adopted_ms=row.adopted,
            now_ms=await self._link.now_ms(),
        )

    async def empty_head(self, row: Row, session: AsyncClientSession | None = None) -> Mark:
        """Where an empty log goes on: past the checkpoint and past every state."""
        newest = await self._link.states.find_one({}, {"n": 1, "ts": 1}, sort=[("ts", -1)], session=session)
        if newest is None:
            return row.folded
        top = {"ts": newest["ts"]}
        last = await self._link.states.find_one(top, {"n": 1}, sort=[("n", -1)], session=session)
        offset = int((last or newest).get("n") or 0)
        return Mark(max(row.folded.offset, offset), max(row.folded.ms, int(newest["ts"])))

    async def _newest(self, offsets: Document, session: AsyncClientSession | None = None) -> Mark | None:
        found = await self._link.log.find_one({"n": offsets}, {"n": 1}, sort=[("n", -1)], session=session)
        return mark_of(found) if found else None

    async def _oldest_of(self, session: AsyncClientSession | None) -> Mark | None:
        found = await self._link.log.find_one({"n": {"$gt": 0}}, {"n": 1}, sort=[("n", 1)], session=session)
        return mark_of(found) if found else None

    # Appending

    async def append(self, operations: Sequence[Operation], stamp: Stamp) -> None:
        writer, first = stamp
        if writer not in self._landed:
            self._landed[writer] = await self._landed_of(writer)
        todo = list(enumerate(operations, first))[max(0, self._landed[writer] - first + 1) :]
        try:
            while todo:
                chunk = await self.chunk(todo)
                landed = await self._insert(chunk, writer)
                del todo[:landed]
                self._landed[writer] = chunk[0][0] + landed - 1
        except BaseException:
            del self._landed[writer]  # in doubt: what landed is looked up when this is tried again
            raise

    async def chunk(self, todo: list[tuple[int, Operation]]) -> list[tuple[int, Operation]]:
        """As many as make a tenth of the cap, once there is room for them: no entry may leave the log unfolded.

        A plain log has no such bound: it is trimmed behind the checkpoint only.
        """
        if not self.capped_bytes:
            return todo[: self._link.inserts_per_command]
        most = max(self.capped_bytes // 10, 1)
        size = count = 0
        for _, operation in todo[: self._link.inserts_per_command]:
            size += len(operation.data) + len(operation.key) + ENTRY_OVERHEAD
            if count and size > most:
                break
            count += 1
        mean = size / count
        self._entry_bytes = max(mean, self._entry_bytes + (mean - self._entry_bytes) / 8)
        if self._is_crowded():
            await self.row()
            while self._is_crowded():
                await asyncio.sleep(_ROOM_SECONDS)
                await self.row()
        return todo[:count]

    def _is_crowded(self) -> bool:
        return (self.head.offset - self.folded) * self._entry_bytes > self.capped_bytes / 2

    async def _insert(self, chunk: list[tuple[int, Operation]], writer: str) -> int:
        """Try once to put a chunk behind the head; how many of its operations are in the log afterwards."""
        head = await self._head_for_numbering()
        landed = (await self.insert(head, chunk, writer)).offset - head.offset
        if landed < len(chunk):
            await asyncio.sleep(random.uniform(0, _JITTER_SECONDS))
            own = await self._own_past(head.offset + landed, writer)
            landed = max(landed, own - chunk[0][0] + 1)
        return landed

    async def insert(self, head: Mark, chunk: Sequence[tuple[int, Operation]], writer: str | None) -> Mark:
        """Number a chunk from ``head`` on and insert it; the last that landed before another's entry was in the way.

        A majority has those; it is ``head`` if none did. ``writer`` None: not to be recognised.
        """
        now = max(await self._link.now_ms(), head.ms)
        marks = [Mark(head.offset + number, now) for number in range(1, len(chunk) + 1)]
        documents = [
            entry_document(operation, mark, writer, sequence)
            for mark, (sequence, operation) in zip(marks, chunk, strict=True)
        ]
        landed = len(documents)
        try:
            await self._link.log.insert_many(documents, ordered=True)
        except BulkWriteError as error:
            errors: list[dict[str, Any]] = error.details["writeErrors"]
            if not errors or errors[0]["code"] != DUPLICATE_KEY or error.details["writeConcernErrors"]:
                raise
            landed = int(errors[0]["index"])
        if not landed:
            return head
        self.saw(marks[landed - 1])
        self.appended.ring()
        return marks[landed - 1]

    async def _head_for_numbering(self) -> Mark:
        """The newest entry at the primary; its absence shows that the log is empty or gone."""
        known = self.head
        asked = {"n": {"$in": [known.offset, known.offset + 1]}}
        found = {mark.offset: mark async for doc in self._link.log_here.find(asked, {"n": 1}) if (mark := mark_of(doc))}
        if known.offset not in found:
            await self.check_index()
        elif known.offset + 1 not in found:
            return found[known.offset]
        after = known.offset if known.offset in found else 0
        newest = await self._link.log_here.find_one({"n": {"$gt": after}}, {"n": 1}, sort=[("n", -1)])
        return mark_of(newest) if newest else await self.empty_head(await self.row())

    async def check_index(self) -> None:
        """Raise StoreUnavailableError if the log is gone: an insert would make a collection without the index."""
        if OFFSET_INDEX not in await self._link.log.index_information():
            raise StoreUnavailableError(
                f"MongoDB at {self._link.where}: the collection {LOG} is gone or was made anew; nothing is appended"
                " until the agent that folds has set it up"
            )

    async def _own_past(self, offset: int, writer: str) -> int:
        """After a duplicate key: the last of the writer's operations past an offset, confirmed by a majority; -1: none.

        Sets ``head`` anew in passing.
        """
        own = -1
        async for document in self._link.log_here.find({"n": {"$gt": offset}}, _OWN).sort("n", 1):
            if document.get("w") == writer:
                own = max(own, int(document["s"]))
            self.saw(mark_of(document))
        if own < 0:
            return own
        try:
            async with asyncio.timeout(_LANDING_SECONDS):
                while await self._landed_of(writer) < own:
                    await asyncio.sleep(_JITTER_SECONDS)
        except TimeoutError:
            raise StoreUnavailableError(
                f"MongoDB at {self._link.where}: no majority of the replica set has what its primary wrote"
            ) from None
        return own

    async def _landed_of(self, writer: str) -> int:
        """The last of the writer's operations in the log or, as the row remembers, folded; -1 if there is none."""
        async with self._link.reading() as session:
            folded = (await self.row(session)).folded.offset
            mine = {"n": {"$gt": folded}, "w": writer}
            last = await self._link.log.find_one(mine, {"s": 1}, sort=[("n", -1)], session=session)
            if last is not None:
                return int(last["s"])
            # Folded and trimmed meanwhile, or before: the row is read after the log, so it knows.
            row = await self._link.meta.find_one({"_id": LOG}, {f"writers.{writer}": 1}, session=session)
            folded_of: list[int] = (row or {}).get("writers", {}).get(writer, [-1])
            return int(folded_of[0])

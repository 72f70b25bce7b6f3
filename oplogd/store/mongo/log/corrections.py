"""Appends corrections of objects without operations since the comparison.

To judge corrections, read the checkpoint, then the states, then the log from the checkpoint to the
head. After a duplicate key, read the log on from this head. If the log has a gap there, read the
states again: they hold the entries that left it. Corrections have no token: the states tell whether
a late correction is in the log.
"""

from collections.abc import Sequence

from oplogd.errors import StoreUnavailableError
from oplogd.model.event_id import Mark
from oplogd.store.corrections import Correction, CorrectionResult, LastOperation, judged
from oplogd.store.mongo.link import layout
from oplogd.store.mongo.link.inserts import AskTime, server_seconds
from oplogd.store.mongo.link.layout import Document, Numbered
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.log.conditional import ConditionalAppender
from oplogd.store.mongo.log.ends import Head
from oplogd.store.mongo.log.log import Log

PAGE = 1_000
_PATIENCE_SECONDS = 30.0
_PAUSE_SECONDS = 0.03


class ObjectsAtHead:
    """The last operations of some objects, as of ``head``."""

    def __init__(self, keys: set[str]) -> None:
        self.head = Head(Mark(0, 0), AskTime(0.0))
        self.last: dict[str, LastOperation] = {}
        self._keys = keys

    def take(self, key: str, document: Document) -> None:
        """Take a state, or the state after an entry, if it is newer."""
        offset = int(document.get("n") or 0)
        known = self.last.get(key)
        if key in self._keys and (known is None or offset > known.offset):
            found = layout.state({**document, "_id": key})
            self.last[key] = LastOperation(offset, found.deleted, found.data)


class CorrectionGuard:
    def __init__(self, link: Link, log: Log, appender: ConditionalAppender) -> None:
        self.clock = link.clock
        self._link = link
        self._log = log
        self._appender = appender

    async def correct(
        self, corrections: Sequence[Correction]
    ) -> tuple[list[CorrectionResult], int]:
        """Return the results, and the offset up to which the log was read or written."""
        batch = CorrectionBatch(self, corrections)
        await self._appender.append(batch)
        return batch.results, batch.upto

    async def folded(self, keys: set[str]) -> tuple[int, dict[str, int]]:
        """Return the checkpoint's offset, and the offset of each object's state read after it."""
        async with self._link.reading() as session:
            folded = (await self._log.row(session)).folded.offset
            found = self._link.states.find(
                {"_id": {"$in": list(keys)}}, {"n": 1}, session=session
            ).batch_size(5_000)
            return folded, {
                document["_id"]: int(document.get("n") or 0) async for document in found
            }

    def busy(self) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"MongoDB at {self._link.hosts}: corrections found no place in the log; is it folded,"
            " is it too busy?"
        )

    async def read_states(self, keys: set[str]) -> ObjectsAtHead | None:
        """Return the objects as of the checkpoint. The states hold at least the log up to there.

        None if the checkpoint has moved, and its entry has left the log.
        """
        objects = ObjectsAtHead(keys)
        asked_at = self._link.clock.boot()
        async with self._link.reading() as session:
            row = await self._log.row(session)
            asked = {"_id": {"$in": list(keys)}}
            async for document in self._link.states.find(asked, session=session).batch_size(5_000):
                objects.take(document["_id"], document)
            objects.head = Head(row.folded, AskTime(asked_at, server_seconds(session)))
        if not await self._log.has(row.folded.offset):
            # The log is empty. A rebuilt log has raised the checkpoint first.
            await self._log.check_index()
            if (await self._log.row()).folded != row.folded:
                return None
        return objects

    async def read_on(self, objects: ObjectsAtHead) -> bool:
        """Read on to the head of the log. Return False if there is a gap before the next entry."""
        while True:
            asked_at = self._link.clock.boot()
            async with self._link.reading() as session:
                documents = await self._log.documents(objects.head.mark.offset, PAGE, session)
                asked = AskTime(asked_at, server_seconds(session))
            if documents and documents[0]["n"] != objects.head.mark.offset + 1:
                return False
            for document in documents:
                objects.take(layout.key_of(document), layout.state_document(document))
            mark = layout.mark_of(documents[-1]) if documents else objects.head.mark
            objects.head = Head(mark, asked)
            if len(documents) < PAGE:
                return True


class CorrectionBatch:
    """A ``ConditionalBatch`` of corrections. Its numbers are places among the corrections."""

    writer: str | None = None

    def __init__(self, guard: CorrectionGuard, corrections: Sequence[Correction]) -> None:
        self._guard = guard
        self._corrections = corrections
        self.todo: list[Numbered] = [
            (place, each.operation) for place, each in enumerate(corrections)
        ]
        self.results = [CorrectionResult.APPLIED] * len(corrections)
        self._keys = {operation.key for _, operation in self.todo}
        self._objects: ObjectsAtHead | None = None
        # Whether the objects are read up to their head, the last appended correction.
        self._is_read = False
        self._give_up_at = self._guard.clock.monotonic() + _PATIENCE_SECONDS

    @property
    def upto(self) -> int:
        return self._objects.head.mark.offset if self._objects else 0

    async def head(self) -> Head:
        while not self._is_read or self._objects is None:
            if self._guard.clock.monotonic() > self._give_up_at:
                raise self._guard.busy()
            objects = self._objects or await self._guard.read_states(self._keys)
            self._is_read = objects is not None and await self._guard.read_on(objects)
            self._objects = objects if self._is_read else None
            if self._objects is None:  # entries left the log meanwhile
                await self._guard.clock.sleep(_PAUSE_SECONDS)
        return self._objects.head

    async def judge(self, head: Head, chunk: Sequence[Numbered]) -> list[Numbered]:
        assert self._objects is not None
        results = judged(self._corrections, self._objects.last)
        for place, _ in self.todo:
            self.results[place] = results[place]
        self.todo = [each for each in self.todo if self._is_accepted(each)]
        return [each for each in chunk if self._is_accepted(each)]

    async def standing(self, landed: Sequence[Numbered], first: int) -> list[Numbered]:
        """Return the corrections that are or will be folded.

        A folded correction may be missing, if another operation on its object followed. Then it is
        judged again, by this operation.
        """
        folded, last = await self._guard.folded({operation.key for _, operation in landed})
        return [
            each
            for offset, each in enumerate(landed, first)
            if offset > folded or last.get(each[1].key) == offset
        ]

    def landed(self, landed: Sequence[Numbered], head: Head | None, *, is_beaten: bool) -> None:
        numbers = {number for number, _ in landed}
        self.todo = [each for each in self.todo if each[0] not in numbers]
        if landed:
            self._give_up_at = self._guard.clock.monotonic() + _PATIENCE_SECONDS
        if head is None or self._objects is None:
            self._objects, self._is_read = None, False
        else:
            self._objects.head, self._is_read = head, not is_beaten

    def _is_accepted(self, numbered: Numbered) -> bool:
        return self.results[numbered[0]] is CorrectionResult.APPLIED

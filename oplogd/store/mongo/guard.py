"""Corrections: appended only while nothing touched their objects since these were seen.

A conditional append (see ``append``). What a correction is judged by are the states, then the log from the checkpoint read before
them to its head. After a duplicate key the log is read on. Where it has a gap, the states are read again: they know then
what it held. Corrections have no token: whether one that was inserted late is in the log, the states tell.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

from oplogd.errors import StoreUnavailableError
from oplogd.event_id import Mark
from oplogd.store.base import Correction, CorrectionResult
from oplogd.store.mongo.append import Appender, Numbered
from oplogd.store.mongo.connect import Link
from oplogd.store.mongo.layout import Document, key_of, mark_of, state, state_document
from oplogd.store.mongo.log import Head, Log, boot_seconds, server_seconds

PAGE = 1_000
_PATIENCE_SECONDS = 30.0
_PAUSE_SECONDS = 0.03


class _Last(NamedTuple):
    """The last operation of an object."""

    n: int
    deleted: bool
    data: str


class _View:
    """What is known of some objects up to a place in the log."""

    def __init__(self, keys: set[str]) -> None:
        self.head = Head(Mark(0, 0), 0.0)
        self.last: dict[str, _Last] = {}
        self._keys = keys

    def take(self, key: str, document: Document) -> None:
        """A state, or what an entry leaves as one."""
        n = int(document.get("n") or 0)
        known = self.last.get(key)
        if key in self._keys and (known is None or n > known.n):
            seen = state({**document, "_id": key})
            self.last[key] = _Last(n, seen.deleted, seen.data)


class Guard:
    """``correct`` raises PyMongo's errors, and StoreUnavailableError."""

    def __init__(self, link: Link, log: Log, appender: Appender) -> None:
        self._link = link
        self._log = log
        self._appender = appender

    async def correct(
        self, corrections: Sequence[Correction]
    ) -> tuple[list[CorrectionResult], int]:
        """The verdict on each, and the offset up to which the log was read or written for it.

        A second correction of one object expects what the first has changed, so it does not pass.
        """
        batch = _Corrections(self, corrections)
        await self._appender.put(batch)
        return batch.verdicts, batch.upto

    async def view(self, keys: set[str], known: _View | None) -> _View | None:
        """What is known of these objects up to the head of the log; None if it moved meanwhile."""
        view = known or await self._look(keys)
        return view if view and await self._read_on(view) else None

    async def last(self, keys: set[str]) -> tuple[int, dict[str, int]]:
        """The checkpoint's offset, and the offset of each object's last operation up to there at least."""
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
            f"MongoDB at {self._link.where}: corrections found no place in the log; is it folded, is it too busy?"
        )

    async def _look(self, keys: set[str]) -> _View | None:
        """The states, which hold the log at least up to the checkpoint read before them; None if it moved."""
        view = _View(keys)
        asked_at = boot_seconds()
        async with self._link.reading() as session:
            row = await self._log.row(session)
            asked = {"_id": {"$in": list(keys)}}
            async for document in self._link.states.find(asked, session=session).batch_size(5_000):
                view.take(document["_id"], document)
            view.head = Head(row.folded, asked_at, server_seconds(session))
        if not await self._log.has(
            row.folded.offset
        ):  # an empty log; one made anew has raised the checkpoint first
            await self._log.check_index()
            if (await self._log.row()).folded != row.folded:
                return None
        return view

    async def _read_on(self, view: _View) -> bool:
        """Up to the head of the log; whether it was there without a gap."""
        while True:
            asked_at = boot_seconds()
            async with self._link.reading() as session:
                documents = await self._log.documents(view.head.mark.offset, PAGE, session)
                at = server_seconds(session)
            if documents and documents[0]["n"] != view.head.mark.offset + 1:
                return False
            for document in documents:
                view.take(key_of(document), state_document(document))
            view.head = Head(mark_of(documents[-1]) if documents else view.head.mark, asked_at, at)
            if len(documents) < PAGE:
                return True


class _Corrections:
    """A batch of ``Appender.put``. Numbers are places among the corrections."""

    writer: str | None = None

    def __init__(self, guard: Guard, corrections: Sequence[Correction]) -> None:
        self._guard = guard
        self._corrections = corrections
        self.todo: list[Numbered] = [
            (place, each.operation) for place, each in enumerate(corrections)
        ]
        self.verdicts = [CorrectionResult.APPLIED] * len(corrections)
        self._firsts = {operation.key: place for place, operation in reversed(self.todo)}
        self._view: _View | None = None
        self._is_read = False
        """The view holds all up to its head, the last one of these that was appended."""
        self._give_up_at = time.monotonic() + _PATIENCE_SECONDS

    @property
    def upto(self) -> int:
        return self._view.head.mark.offset if self._view else 0

    async def head(self) -> Head:
        while not self._is_read or self._view is None:
            if time.monotonic() > self._give_up_at:
                raise self._guard.busy()
            self._view = await self._guard.view(set(self._firsts), self._view)
            self._is_read = self._view is not None
            if self._view is None:
                await asyncio.sleep(_PAUSE_SECONDS)
        return self._view.head

    async def judge(self, head: Head, chunk: Sequence[Numbered]) -> list[Numbered]:
        assert self._view is not None
        for place, operation in self.todo:
            is_first = self._firsts[operation.key] == place
            self.verdicts[place] = _verdict(
                self._corrections[place], self._view.last.get(operation.key), is_first
            )
        self.todo = [
            each for each in self.todo if self.verdicts[each[0]] is CorrectionResult.APPLIED
        ]
        return [each for each in chunk if self.verdicts[each[0]] is CorrectionResult.APPLIED]

    async def standing(self, landed: Sequence[Numbered], first: int) -> list[Numbered]:
        """One that is followed by another operation on its object may stand, too, and is judged by that again."""
        folded, last = await self._guard.last({operation.key for _, operation in landed})
        return [
            each for n, each in enumerate(landed, first) if n > folded or last.get(each[1].key) == n
        ]

    def landed(self, landed: Sequence[Numbered], head: Head | None, is_beaten: bool) -> None:
        numbers = {number for number, _ in landed}
        self.todo = [each for each in self.todo if each[0] not in numbers]
        if landed:
            self._give_up_at = time.monotonic() + _PATIENCE_SECONDS
        if head is None or self._view is None:
            self._view, self._is_read = None, False
        else:
            self._view.head, self._is_read = head, not is_beaten


def _verdict(correction: Correction, last: _Last | None, is_first: bool) -> CorrectionResult:
    operation, expected = correction
    if expected is None or (is_first and expected == (last.n if last else 0)):
        return CorrectionResult.APPLIED
    if (
        last
        and last.deleted == (operation.event == "delete")
        and last.data == operation.data.decode()
    ):
        return CorrectionResult.PRESENT
    return CorrectionResult.SKIPPED

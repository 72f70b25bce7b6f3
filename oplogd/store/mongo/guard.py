"""Corrections: appended only while nothing touched their objects since these were seen.

The states are read, then the log from the checkpoint read before them to its head. What passes is numbered from exactly there
on, so that nobody can come in between: a duplicate key means that somebody did, and the log is read on and what is left
is judged again. Where the log has a gap, the states are read again: they know then what it held.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

from oplogd.errors import StoreUnavailableError
from oplogd.event_id import Mark
from oplogd.store.base import Correction, Verdict
from oplogd.store.mongo.connect import Link
from oplogd.store.mongo.layout import Document, key_of, mark_of, state, state_document
from oplogd.store.mongo.log import Log

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
        self.head = Mark(0, 0)
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

    def __init__(self, link: Link, log: Log) -> None:
        self._link = link
        self._log = log

    async def correct(self, corrections: Sequence[Correction]) -> tuple[list[Verdict], int]:
        """The verdict on each, and the offset up to which the log was read or written for it.

        A second correction of one object expects what the first has changed, so it does not pass.
        """
        verdicts = dict.fromkeys(range(len(corrections)), Verdict.APPLIED)
        todo = list(enumerate(corrections))
        firsts = {correction.operation.key: place for place, correction in reversed(todo)}
        view: _View | None = None
        give_up_at = time.monotonic() + _PATIENCE_SECONDS
        while todo:
            if time.monotonic() > give_up_at:
                raise StoreUnavailableError(
                    f"MongoDB at {self._link.where}: corrections found no place in the log; is it folded, is it too busy?"
                )
            view = view or await self._look(set(firsts))
            if view is None or not await self._read_on(view):
                view = None
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            for place, correction in todo:
                is_first = firsts[correction.operation.key] == place
                verdicts[place] = _verdict(correction, view.last.get(correction.operation.key), is_first)
            todo = [(place, correction) for place, correction in todo if verdicts[place] is Verdict.APPLIED]
            if landed := await self._append(view, todo):
                todo = todo[landed:]
                give_up_at = time.monotonic() + _PATIENCE_SECONDS
        return [verdicts[place] for place in range(len(corrections))], view.head.offset if view else 0

    async def _look(self, keys: set[str]) -> _View | None:
        """The states, which hold the log at least up to the checkpoint read before them; None if it moved."""
        view = _View(keys)
        async with self._link.reading() as session:
            row = await self._log.row(session)
            asked = {"_id": {"$in": list(keys)}}
            async for document in self._link.states.find(asked, session=session).batch_size(5_000):
                view.take(document["_id"], document)
        view.head = row.folded
        if not await self._log.has(row.folded.offset):  # an empty log; one made anew has raised the checkpoint first
            await self._log.check_index()
            if (await self._log.row()).folded != row.folded:
                return None
        return view

    async def _read_on(self, view: _View) -> bool:
        """Up to the head of the log; whether it was there without a gap."""
        while True:
            async with self._link.reading() as session:
                documents = await self._log.documents(view.head.offset, PAGE, session)
            if documents and documents[0]["n"] != view.head.offset + 1:
                return False
            for document in documents:
                view.take(key_of(document), state_document(document))
            if documents:
                view.head = mark_of(documents[-1])
            if len(documents) < PAGE:
                return True

    async def _append(self, view: _View, todo: list[tuple[int, Correction]]) -> int:
        """How many landed right behind what is known."""
        done = 0
        operations = [(place, correction.operation) for place, correction in todo]
        while done < len(operations):
            chunk = await self._log.chunk(operations[done:])
            head = await self._log.insert(view.head, chunk, None)
            landed = head.offset - view.head.offset
            view.head = head
            done += landed
            if landed < len(chunk):
                break
        return done


def _verdict(correction: Correction, last: _Last | None, is_first: bool) -> Verdict:
    operation, expected = correction
    if expected is None or (is_first and expected == (last.n if last else 0)):
        return Verdict.APPLIED
    if last and last.deleted == (operation.event == "delete") and last.data == operation.data.decode():
        return Verdict.PRESENT
    return Verdict.SKIPPED

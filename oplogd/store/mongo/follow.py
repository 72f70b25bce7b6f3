"""Waiting for the next entry of the log, whoever writes it.

A capped log has one tailable cursor, opened at the entry last read, which must be there. It wakes the reader: an entry
that is already known is dropped, a jump makes it read the range. One that is silent for a second is checked by a look-up of
the next offset: FerretDB's now and again misses an entry that was written while it was asked, and stays silent. Where there
is no cursor (a plain log, an empty one, a cursor that died) the next offset is asked for, a point look-up every 20 ms; own
writes wake at once.
"""

import asyncio
import contextlib
import time

from bson import Int64
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import OperationFailure, PyMongoError

from oplogd.store.base import Entry
from oplogd.store.mongo.bell import wait
from oplogd.store.mongo.connect import Link
from oplogd.store.mongo.damage import whole
from oplogd.store.mongo.layout import LOG, Document, entry, mark_of
from oplogd.store.mongo.log import Log

POLL_SECONDS = 0.02
_NO_AWAIT_SECONDS = 0.1
_TRUST_SECONDS = 1.0
_NONE = Int64(0)


class Tail:
    """``follow`` has one caller at a time."""

    def __init__(self, link: Link, log: Log) -> None:
        self._link = link
        self._log = log
        self._cursor = _NONE
        """No int: a small one would be sent in 32 bits, and be refused."""
        self._session: AsyncClientSession | None = None
        self._took = 0.0
        """How long the last reading took. A server on which each one costs a reading of the whole log gets as long a rest."""
        self._at = -1
        """The offset behind which the cursor stands."""

    async def follow(
        self, after: int, limit: int, seconds: float, at_ms: int | None = None
    ) -> list[Entry]:
        deadline = time.monotonic() + seconds
        self._log.followed_until = deadline
        if self._log.capped_bytes:
            if not self._cursor or self._at != after:
                if not self._link.awaits:
                    await asyncio.sleep(self._took)
                began = time.monotonic()
                entries = await self._log.read(after, limit, at_ms)
                self._took = time.monotonic() - began
                if entries:
                    return entries
                await self._open(after, at_ms)
            try:
                trusted_until = time.monotonic() + _TRUST_SECONDS
                while self._cursor and (now := time.monotonic()) < deadline:
                    if now >= trusted_until:
                        if await self._log.has(after + 1):
                            break
                        trusted_until = now + _TRUST_SECONDS
                    if entries := await self._more(
                        after, limit, min(deadline, trusted_until), at_ms
                    ):
                        self._at = entries[-1].offset
                        return entries
            except (
                OperationFailure
            ):  # the cursor died: killed, fallen off the log, or the collection is gone
                self._cursor = _NONE
            except BaseException:
                await self.close()
                raise
            if not self._cursor:
                await self.close()
        return await self._poll(after, limit, deadline, at_ms)

    async def close(self) -> None:
        cursor, self._cursor = self._cursor, _NONE
        session, self._session = self._session, None
        with contextlib.suppress(PyMongoError):
            if cursor:
                await self._link.database.command(
                    "killCursors", LOG, cursors=[cursor], session=session
                )
            if session:
                await session.end_session()

    async def _open(self, after: int, at_ms: int | None) -> None:
        """Leaves ``_cursor`` 0 where the entry ``after`` is not in the log, as when that is empty."""
        await self.close()
        self._session = self._link.session()
        try:
            find = {"find": LOG, "filter": {"n": {"$gte": after}}, "batchSize": 1}
            answer = await self._command({**find, "tailable": True, "awaitData": self._link.awaits})
        except OperationFailure:  # no longer capped, or gone
            return
        first: list[Document] = answer["firstBatch"]
        self._cursor = Int64(answer["id"])
        self._at = after
        if (
            not first
            or mark_of(first[0]).offset != after
            or at_ms not in (None, mark_of(first[0]).ms)
        ):
            await self.close()

    async def _more(
        self, after: int, limit: int, deadline: float, at_ms: int | None
    ) -> list[Entry]:
        bell = self._log.appended.listen()
        command: Document = {
            "getMore": self._cursor,
            "collection": LOG,
            "batchSize": self._log.sizes.documents(limit),
        }
        if self._link.awaits:
            command["maxTimeMS"] = max(1, int((deadline - time.monotonic()) * 1000))
        answer = await self._command(command)
        self._cursor = Int64(answer["id"])
        documents: list[Document] = answer["nextBatch"]
        fresh = [
            each for each in documents if (n := whole(each.get("n"))) is not None and n > after
        ]
        if not fresh:
            if not self._link.awaits:
                await wait(bell, _NO_AWAIT_SECONDS)
            return []
        if [each["n"] for each in fresh] != list(range(after + 1, after + 1 + len(fresh))):
            return await self._log.read(after, limit, at_ms)
        self._log.saw(mark_of(fresh[-1]))
        self._log.appended.ring()
        return [entry(document) for document in fresh]

    async def _command(self, command: Document) -> Document:
        if "find" in command:
            command["readConcern"] = {"level": "majority"}
        answer = await self._link.database.command(
            command, session=self._session, codec_options=self._link.database.codec_options
        )
        cursor: Document = answer["cursor"]
        return cursor

    async def _poll(
        self, after: int, limit: int, deadline: float, at_ms: int | None
    ) -> list[Entry]:
        log = self._log
        woken = True
        while True:
            bell = log.appended.listen()
            left = deadline - time.monotonic()
            # At the deadline the range is read, since the next offset may have left the log.
            if (woken or left <= 0 or await log.has(after + 1)) and (
                entries := await log.read(after, limit, at_ms)
            ):
                return entries
            if left <= 0:
                return []
            woken = await wait(bell, min(POLL_SECONDS, left))

"""Waiting for the next entry of the log, from any agent.

A capped log has one tailable cursor. It is opened at the entry last read, which must be there. The
cursor wakes the reader: known entries are dropped, and after a jump the range is read. Without a
cursor (a plain log, an empty one, a cursor that died) the next offset is looked up every 20 ms, and
appends by this process wake the reader at once.
"""

import asyncio
import contextlib
import time

from bson import Int64
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import OperationFailure, PyMongoError

from oplogd.store.base import Entry
from oplogd.store.mongo.link.damage import whole
from oplogd.store.mongo.link.layout import LOG, Document, entry, mark_of
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.notifier import wait
from oplogd.store.mongo.log.log import Log

POLL_SECONDS = 0.02
_NO_AWAIT_SECONDS = 0.1

# How long a silent cursor is trusted, on a server whose cursors may skip an entry.
_TRUST_SECONDS = 1.0

_NONE = Int64(0)


class Tail:
    """``follow`` has one caller at a time."""

    def __init__(self, link: Link, log: Log) -> None:
        self._link = link
        self._log = log
        # Int64, since a small int would be sent in 32 bits, and be refused.
        self._cursor = _NONE
        self._session: AsyncClientSession | None = None
        self._followed_until = float("-inf")
        # Duration of the last read. A server with reads of the whole log rests as long.
        self._took = 0.0
        # The offset behind which the cursor stands.
        self._at = -1

    @property
    def cursor_id(self) -> Int64:
        """The server's id of the tailable cursor, 0 without one."""
        return self._cursor

    def is_followed(self, seconds: float) -> bool:
        """Return whether a call of ``follow`` is pending, or was at most ``seconds`` ago."""
        return time.monotonic() < self._followed_until + seconds

    async def follow(
        self, after: int, limit: int, seconds: float, at_ms: int | None = None
    ) -> list[Entry]:
        deadline = self._followed_until = time.monotonic() + seconds
        if self._log.known.capped_bytes:
            if not self._cursor or self._at != after:
                if not self._link.quirks.awaits_tail:
                    await asyncio.sleep(self._took)
                began = time.monotonic()
                entries = await self._log.read(after, limit, at_ms)
                self._took = time.monotonic() - began
                if entries:
                    return entries
                await self._open(after, at_ms)
            if entries := await self._from_cursor(after, limit, deadline, at_ms):
                return entries
        return await self._poll(after, limit, deadline, at_ms)

    async def close(self) -> None:
        cursor, self._cursor = self._cursor, _NONE
        session, self._session = self._session, None
        with contextlib.suppress(PyMongoError):  # the server ends an idle cursor
            if cursor:
                await self._link.database.command(
                    "killCursors", LOG, cursors=[cursor], session=session
                )
            if session:
                await session.end_session()

    async def run_command(self, command: Document) -> Document:
        """Run a ``find`` or ``getMore``. Return the cursor of the answer."""
        if "find" in command:
            command["readConcern"] = {"level": "majority"}
        answer = await self._link.database.command(
            command, session=self._session, codec_options=self._link.database.codec_options
        )
        cursor: Document = answer["cursor"]
        return cursor

    async def _from_cursor(
        self, after: int, limit: int, deadline: float, at_ms: int | None
    ) -> list[Entry]:
        """Return the next entries; none at the deadline, or if the cursor died or skipped one."""
        trust_seconds = _TRUST_SECONDS if self._link.quirks.tail_misses_inserts else float("inf")
        try:
            trusted_until = time.monotonic() + trust_seconds
            while self._cursor and (now := time.monotonic()) < deadline:
                if now >= trusted_until:
                    if await self._log.has(after + 1):
                        break
                    trusted_until = now + trust_seconds
                wait_until = min(deadline, trusted_until)
                if entries := await self._more(after, limit, wait_until, at_ms):
                    self._at = entries[-1].offset
                    return entries
        except OperationFailure:
            # The cursor died: killed, fallen off the log, or the collection is gone.
            self._cursor = _NONE
        except BaseException:
            await self.close()
            raise
        if not self._cursor:
            await self.close()
        return []

    async def _open(self, after: int, at_ms: int | None) -> None:
        """Open a cursor at the entry ``after``, if it is in the log."""
        await self.close()
        self._session = self._link.session()
        awaits_tail = self._link.quirks.awaits_tail
        try:
            find = {"find": LOG, "filter": {"n": {"$gte": after}}, "batchSize": 1}
            answer = await self.run_command({**find, "tailable": True, "awaitData": awaits_tail})
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
        self, after: int, limit: int, wait_until: float, at_ms: int | None
    ) -> list[Entry]:
        appended = self._log.known.appended.listen()
        awaits_tail = self._link.quirks.awaits_tail
        command: Document = {
            "getMore": self._cursor,
            "collection": LOG,
            "batchSize": self._log.read_size.documents(limit),
        }
        if awaits_tail:
            command["maxTimeMS"] = max(1, int((wait_until - time.monotonic()) * 1000))
        answer = await self.run_command(command)
        self._cursor = Int64(answer["id"])
        documents: list[Document] = answer["nextBatch"]
        fresh = [
            each for each in documents if (n := whole(each.get("n"))) is not None and n > after
        ]
        if not fresh:
            if not awaits_tail:
                await wait(appended, _NO_AWAIT_SECONDS)
            return []
        if [each["n"] for each in fresh] != list(range(after + 1, after + 1 + len(fresh))):
            return await self._log.read(after, limit, at_ms)
        self._log.known.saw_entry(mark_of(fresh[-1]))
        self._log.known.appended.notify()
        return [entry(document) for document in fresh]

    async def _poll(
        self, after: int, limit: int, deadline: float, at_ms: int | None
    ) -> list[Entry]:
        log = self._log
        is_woken = True
        while True:
            appended = log.known.appended.listen()
            left = deadline - time.monotonic()
            # At the deadline the range is read, since the next offset may have left the log.
            if (is_woken or left <= 0 or await log.has(after + 1)) and (
                entries := await log.read(after, limit, at_ms)
            ):
                return entries
            if left <= 0:
                return []
            is_woken = await wait(appended, min(POLL_SECONDS, left))

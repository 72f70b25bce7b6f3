"""One agent at a time folds: the holder of a lease, a document ``{holder, revision, seconds}`` in ``oplog_meta``.

``holder`` is ``host:pid:random``, so that a reader of the document finds the process. The holder raises the revision. An agent
that sees one revision for the lease's time on its own monotonic clock takes over by compare-and-set. The lease's time is the longer
of the holder's, which stands in the document, and the observer's. So no clock is compared with another's; a holder that is late
is made harmless by the guard of the fold.
"""

import os
import secrets
import socket
import time

from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError

from oplogd.store.mongo.connect import Link
from oplogd.store.mongo.layout import LEASE, Document


class Lease:
    """``seconds``: how long a holder that is silent keeps it."""

    def __init__(self, link: Link, seconds: float) -> None:
        self.seconds = seconds
        self.longest = seconds
        """How long the present holder keeps it in silence, by its own account or ours."""
        self._meta = link.meta
        self._me = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._revision = 0
        self._until = 0.0
        self._seen: tuple[object, object] | None = None
        self._seen_at = 0.0

    @property
    def held(self) -> bool:
        return time.monotonic() < self._until

    async def hold(self) -> bool:
        """Take, keep or watch the lease; call it several times in the lease's time. Whether it is held now."""
        now = time.monotonic()
        if now < self._until:
            if self._until - now > self.seconds * 2 / 3:
                return True
            return await self._swap(self._me, self._revision, now)
        seen = await self._meta.find_one({"_id": LEASE})
        if seen is None:
            seen = {"_id": LEASE, "holder": None, "revision": 0, "seconds": 0}
            try:
                await self._meta.insert_one(seen)
            except DuplicateKeyError:
                return False
        this = (seen.get("holder"), seen.get("revision"))
        if this != self._seen:
            # The answer may have been long on its way: the holder may have renewed since, and is seen from now on.
            self._seen, self._seen_at = this, time.monotonic()
        given = seen.get("seconds")
        seconds = self.longest = (
            max(self.seconds, given) if isinstance(given, int | float) else self.seconds
        )
        free = this[0] is None or this[0] == self._me or now - self._seen_at >= seconds
        return free and await self._swap(*this, time.monotonic())

    async def release(self) -> None:
        """Let the next one go on at once."""
        if self.held:
            self._until = 0.0
            mine = {"_id": LEASE, "holder": self._me, "revision": self._revision}
            await self._meta.update_one(mine, {"$set": {"holder": None}, "$inc": {"revision": 1}})

    def lose(self) -> None:
        self._until = 0.0

    async def _swap(self, holder: object, revision: object, now: float) -> bool:
        """``now``: the time before the command is sent, from which the lease is held."""
        following = revision + 1 if isinstance(revision, int) else 1
        swapped: Document | None = await self._meta.find_one_and_update(
            {"_id": LEASE, "holder": holder, "revision": revision},
            {"$set": {"holder": self._me, "revision": following, "seconds": self.seconds}},
            return_document=ReturnDocument.AFTER,
        )
        if swapped is None:
            self._until = 0.0
            return False
        self._revision = following
        self._until = now + self.seconds
        return True

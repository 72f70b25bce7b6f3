"""One agent at a time folds: the holder of a lease, a document ``{holder, revision}`` in ``oplog_meta``.

``holder`` is ``host:pid:random``, so that a reader of the document finds the process. The holder raises the revision. Who
sees one revision for the lease's time on its own monotonic clock takes over by compare-and-set. So no clock is compared with
another's; a holder that is late is made harmless by the guard of the fold.
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
            seen = {"_id": LEASE, "holder": None, "revision": 0}
            try:
                await self._meta.insert_one(seen)
            except DuplicateKeyError:
                return False
        this = (seen["holder"], seen["revision"])
        if this != self._seen:
            self._seen, self._seen_at = this, now
        free = seen["holder"] is None or seen["holder"] == self._me or now - self._seen_at >= self.seconds
        return free and await self._swap(seen["holder"], seen["revision"], time.monotonic())

    async def release(self) -> None:
        """Let the next one go on at once."""
        if self.held:
            self._until = 0.0
            mine = {"_id": LEASE, "holder": self._me, "revision": self._revision}
            await self._meta.update_one(mine, {"$set": {"holder": None}, "$inc": {"revision": 1}})

    def lose(self) -> None:
        self._until = 0.0

    async def _swap(self, holder: object, revision: int, now: float) -> bool:
        swapped: Document | None = await self._meta.find_one_and_update(
            {"_id": LEASE, "holder": holder, "revision": revision},
            {"$set": {"holder": self._me, "revision": revision + 1}},
            return_document=ReturnDocument.AFTER,
        )
        if swapped is None:
            self._until = 0.0
            return False
        self._revision = revision + 1
        self._until = now + self.seconds
        return True

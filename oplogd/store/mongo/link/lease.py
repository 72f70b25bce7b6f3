"""The lease: one agent at a time folds.

It is a document ``{holder, revision, seconds, knows}`` in ``oplog_meta``. ``knows``: the last
holder with this member. An agent of an earlier version leaves it as it is.

``holder`` is ``host:pid:random``: an operator finds the process by it. The holder raises the
revision. An agent that sees one revision for the lease time on its own monotonic clock takes over
by compare-and-set. The lease time is the longer of the holder's, in the document, and the
observer's. So no clock is compared with another one. The guard of the fold makes a late holder
harmless.
"""

import logging
import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable

from pymongo import ReturnDocument
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import DuplicateKeyError

from oplogd.store.mongo.link.layout import LEASE, Document

logger = logging.getLogger("oplogd.store")

# How many lease times the fold may stand still before its waiters give up, and the shortest time.
STALL_LEASES = 3
LEAST_STALL_SECONDS = 15.0


# Takes or renews the lease. Returns False if another agent has it.
HoldLease = Callable[[], Awaitable[bool]]


class FoldLease:
    """``seconds``: how long a silent holder keeps the lease.

    ``stall_seconds``: see ``Timing``. ``clock`` returns monotonic seconds.
    """

    def __init__(
        self,
        meta: AsyncCollection[Document],
        seconds: float,
        stall_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.seconds = seconds
        self._meta = meta
        self._stall_seconds = stall_seconds
        self._clock = clock
        # The longest lease time of any holder seen, or of this agent.
        self._longest = seconds
        self._me = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._revision = 0
        self._until = 0.0
        self._seen: tuple[object, object] | None = None
        self._seen_at = 0.0
        self.older_holder: str | None = None
        """The holder, if it is an agent of an earlier version."""

    @property
    def held(self) -> bool:
        return self._clock() < self._until

    @property
    def stall_seconds(self) -> float:
        """How long the fold may stand still before its waiters give up."""
        if self._stall_seconds is not None:
            return self._stall_seconds
        return max(LEAST_STALL_SECONDS, STALL_LEASES * self._longest)

    async def hold(self) -> bool:
        """Take, renew or watch the lease. Return whether this agent holds it now.

        Call it several times in each lease time.
        """
        now = self._clock()
        if now < self._until:
            if self._until - now > self.seconds * 2 / 3:
                return True
            return await self._swap(self._me, self._revision, now)
        document = await self._meta.find_one({"_id": LEASE})
        if document is None:
            document = {"_id": LEASE, "holder": None, "revision": 0, "seconds": 0}
            try:
                await self._meta.insert_one(document)
            except DuplicateKeyError:
                return False
        found = (document.get("holder"), document.get("revision"))
        self._name(found[0], document.get("knows"))
        if found != self._seen:
            # The time after the answer counts: the holder may have renewed while it was on its way.
            self._seen, self._seen_at = found, self._clock()
        noted = document.get("seconds")
        seconds = max(self.seconds, noted) if isinstance(noted, int | float) else self.seconds
        self._longest = max(self._longest, seconds)
        is_free = found[0] is None or found[0] == self._me or now - self._seen_at >= seconds
        return is_free and await self._swap(*found, self._clock())

    async def release(self) -> None:
        """Let another agent take over at once."""
        if self.held:
            self._until = 0.0
            mine = {"_id": LEASE, "holder": self._me, "revision": self._revision}
            await self._meta.update_one(mine, {"$set": {"holder": None}, "$inc": {"revision": 1}})

    def lose(self) -> None:
        """Behave as if the lease had run out, until ``hold`` takes it again."""
        self._until = 0.0

    async def _swap(self, holder: object, revision: object, now: float) -> bool:
        """Take the lease if it is unchanged. It is held from ``now``, before the command."""
        following = revision + 1 if isinstance(revision, int) else 1
        swapped: Document | None = await self._meta.find_one_and_update(
            {"_id": LEASE, "holder": holder, "revision": revision},
            {
                "$set": {
                    "holder": self._me,
                    "revision": following,
                    "seconds": self.seconds,
                    "knows": self._me,
                }
            },
            return_document=ReturnDocument.AFTER,
        )
        if swapped is None:
            self._until = 0.0
            return False
        self._revision = following
        self.older_holder = None
        self._until = now + self.seconds
        return True

    def _name(self, holder: object, knows: object) -> None:
        """Note, and log once, that an agent of an earlier version holds the lease."""
        older = str(holder) if holder not in (None, knows, self._me) else None
        if older is not None and older != self.older_holder:
            logger.warning("%s", older_holds(older))
        self.older_holder = older


def older_holds(holder: str) -> str:
    """Return the sentence about a holder of an earlier version."""
    return (
        f"the agent {holder} is of an earlier version and holds the lease: its sweep empties"
        " aborted messages without telling other agents, and reports that were cut are not"
        " completed; upgrade it"
    )

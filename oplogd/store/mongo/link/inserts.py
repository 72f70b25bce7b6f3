"""The insert at the end of an optimistic append, and the document in its way.

    loop:  head := the newest document of a majority
           judge which others may go in behind it
           insert these at exactly head + 1, in order
           duplicate key → loop

Any change of the judgement takes head + 1 itself. So an insert with an outdated judgement meets a
duplicate key.

A slow insert may be carried out after its places were removed. Then it meets no duplicate key, and
leaves strays. So each append checks a late insert.
"""

import random
from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError

from oplog_kit.backoff import Backoff
from oplogd.errors import StoreUnavailableError
from oplogd.store.mongo.link.errors import duplicates_in
from oplogd.store.mongo.link.layout import Document
from oplogd.store.mongo.link.link import Link

_JITTER_SECONDS = 0.02
_LAG_JITTER_SECONDS = 0.5


class AskTime(NamedTuple):
    """The time of a question about a head, or of an insert.

    ``at``: by ``Clock.boot``, before the question. ``server_seconds``: the cluster's time in the
    answer, in whole seconds; None if the server does not send it.
    """

    at: float
    server_seconds: int | None = None


class Landing(NamedTuple):
    """The first ``number`` documents of an insert landed. ``is_late``: they may be strays."""

    number: int
    asked: AskTime
    is_late: bool


async def insert_until_taken(
    link: Link,
    collection: AsyncCollection[Document],
    documents: Sequence[Document],
    head: AskTime,
    late_seconds: float,
    late_server_seconds: float,
) -> Landing:
    """Insert documents in order, up to the first taken place.

    A majority has those that landed. ``head``: the time of the question about the head. The insert
    is late after ``late_seconds`` since then, or ``late_server_seconds`` by the cluster's clock.
    """
    began = link.clock.boot()
    number = len(documents)
    session = link.session()
    try:
        async with session or nullcontext():
            await collection.insert_many(documents, ordered=True, session=session)
    except BulkWriteError as error:
        # The index is reliable, ``nInserted`` is not on every server.
        number = duplicates_in(error)[0]
    # A fail-over must not hide the insert, and what was decided before it, from later reads.
    link.saw(session)
    asked = AskTime(began, server_seconds(session))
    is_late = link.clock.boot() - head.at > late_seconds
    if asked.server_seconds is not None and head.server_seconds is not None:
        is_late |= asked.server_seconds - head.server_seconds > late_server_seconds
    return Landing(number, asked, is_late)


def server_seconds(session: AsyncClientSession | None) -> int | None:
    """Return the cluster's time in the last answer of a session; None if there is none."""
    at = session.operation_time if session else None
    return at.time if at else None


class Obstacle:
    """The last document in the way of an insert.

    The primary has it. A majority may not have it yet, so the head may still be before it.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._offset = 0
        self._lags_since: float | None = None
        self._backoff = Backoff(_JITTER_SECONDS, _LAG_JITTER_SECONDS)

    async def met(self, offset: int) -> None:
        self._offset = offset
        await self._link.clock.sleep(random.uniform(0, self._backoff.pause))

    def compare(self, head: int) -> None:
        """Raise StoreUnavailableError if the head has been before the obstacle for too long.

        See ``Timing.majority_seconds``.
        """
        if head >= self._offset:
            self._lags_since = None
            self._backoff.reset()
            return
        now = self._link.clock.monotonic()
        self._lags_since = self._lags_since or now
        self._backoff.grow()
        if now - self._lags_since > self._link.timing.majority_seconds:
            raise StoreUnavailableError(
                f"MongoDB at {self._link.hosts}: no majority of the replica set has what its"
                " primary wrote"
            )

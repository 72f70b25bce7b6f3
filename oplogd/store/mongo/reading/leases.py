"""The leases of clients: one document for each in ``oplog_leases``, never removed.

It is ``{_id: name, lease: {holder, term, until, ttl, note}, ended}``. The members of the lease are
set as one value: some servers return old values of some members beside new ones of others.
``ended``: the transactions of all terms before this one have ended, missing: of none.

A new term, and a release, is answered after the transactions of the terms before it have ended: see
``fences``. A call cut short leaves this to the next one.

Each change is one compare-and-set of the document, so one call raises a term at most once. Nothing
is repeated after a lost answer: the next poll reads the outcome.

The clock is the server's. Safety does not depend on it: see ``fences``.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from pymongo.errors import DuplicateKeyError

from oplogd.errors import StoreUnavailableError
from oplogd.model.lease import MAX_TERM
from oplogd.store.leases import Lease, LeaseRequest, LeaseRow, no_lease, polled, released
from oplogd.store.mongo.link.contention import pause
from oplogd.store.mongo.link.damage import whole
from oplogd.store.mongo.link.fences import LEASES
from oplogd.store.mongo.link.layout import Document
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.reading.topic_log import Working


class MongoLeases:
    """See ``Leases``. ``working`` guards each call.

    ``end_terms`` ends the transactions of the terms of a lease before one.
    """

    def __init__(
        self, link: Link, working: Working, end_terms: Callable[[str, int], Awaitable[None]]
    ) -> None:
        self._link = link
        self._rows = link.database[LEASES]
        self._working = working
        self._end_terms = end_terms

    async def poll(self, request: LeaseRequest) -> Lease:
        async with self._working():
            began = time.monotonic()
            while True:
                row, ended = await self._find(request.name)
                now_ms = await self._link.raw_ms()
                wanted = polled(row, request, now_ms)
                if row is None:
                    wanted = wanted._replace(term=await self._first_term(now_ms))
                if wanted == row or await self._swap(request.name, row, wanted):
                    if wanted.holder == request.holder and ended < wanted.term:
                        await self._end_before(request.name, wanted.term, began)
                    return wanted.lease(request.name, now_ms)
                await pause(self._link, f"the lease {request.name}", began)

    async def release(self, name: str, holder: str, term: int) -> Lease:
        async with self._working():
            began = time.monotonic()
            while True:
                row, ended = await self._find(name)
                if row is None:
                    raise no_lease(name)
                wanted = released(row, name, holder, term)
                if wanted == row or await self._swap(name, row, wanted):
                    if ended <= term:
                        await self._end_before(name, term + 1, began)
                    return wanted.lease(name, 0)
                await pause(self._link, f"the lease {name}", began)

    async def find(self, name: str) -> Lease:
        async with self._working():
            row, _ = await self._find(name)
            if row is None:
                raise no_lease(name)
            return row.lease(name, await self._link.raw_ms())

    async def select(self, after: str, limit: int) -> list[Lease]:
        async with self._working():
            async with self._link.reading() as session:
                past = self._rows.find({"_id": {"$gt": after}}, session=session)
                found = await past.sort("_id", 1).limit(limit).to_list()
            now_ms = await self._link.raw_ms()
            return [_row_of(each).lease(each["_id"], now_ms) for each in found]

    async def _end_before(self, name: str, term: int, began: float) -> None:
        """End the transactions of the terms of a lease before one already begun.

        The term before a release has ended, too. ``began``: see ``pause``.
        """
        while True:
            row, ended = await self._find(name)
            if ended >= term:
                return
            # A majority has the row: a transaction not found now is judged by it.
            if row is not None and row.term + (row.holder is None) >= term:
                break
            await pause(self._link, f"the lease {name}", began)
        await self._end_terms(name, term)
        await self._rows.update_one({"_id": name}, {"$max": {"ended": term}})

    async def _find(self, name: str) -> tuple[LeaseRow | None, int]:
        """Return the row of a majority, and the term before which transactions have ended.

        A fail-over could take a newer row back, and the term would be given twice.
        """
        async with self._link.reading() as session:
            document = await self._rows.find_one({"_id": name}, session=session)
        if document is None:
            return None, 0
        return _row_of(document), whole(document.get("ended")) or 0

    async def _swap(self, name: str, row: LeaseRow | None, wanted: LeaseRow) -> bool:
        """Write a row if it is unchanged. Return whether it was, once a majority has it."""
        if row is None:
            try:
                await self._rows.insert_one({"_id": name, "lease": wanted._asdict()})
            except DuplicateKeyError:
                return False
            await self._link.meta.update_one({"_id": LEASES}, {"$inc": {"created": 1}}, upsert=True)
            return True
        swapped: Any = await self._rows.find_one_and_update(
            {"_id": name, **{f"lease.{member}": value for member, value in row._asdict().items()}},
            {"$set": {"lease": wanted._asdict()}},
        )
        return swapped is not None

    async def _first_term(self, now_ms: int) -> int:
        """Return the first term of a lease without a document: 1.

        If documents were lost, for example with the collection, it is the time: larger than every
        term before. An old leader's fence must not hold again.
        """
        counter = await self._link.meta.find_one({"_id": LEASES}) or {}
        created = whole(counter.get("created")) or 0
        return now_ms if created > await self._rows.count_documents({}) else 1


def _row_of(document: Document) -> LeaseRow:
    """Raises StoreUnavailableError if a member is missing or not of its type."""
    found = document.get("lease")
    lease: Document = found if isinstance(found, dict) else {}
    holder, note = lease.get("holder"), lease.get("note")
    term, until, ttl = (whole(lease.get(member)) for member in ("term", "until", "ttl"))
    if (
        not isinstance(holder, str | None)
        or not isinstance(note, str)
        or term is None
        or not 0 < term <= MAX_TERM
        or until is None
        or ttl is None
    ):
        raise StoreUnavailableError(
            f"the document {document['_id']} of {LEASES} is damaged: holder and note must be"
            " strings, until and ttl whole numbers, term one of 1 to 18 digits; put it right, and"
            " make its term larger"
        )
    return LeaseRow(holder, term, until, ttl, note)

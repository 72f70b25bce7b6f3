"""The numbers of transactions: one document for each key in ``oplog_once``.

``{_id: key, number, txn, previous, claim: {number, txn}}``. ``number`` and ``txn``: of the newest
committed transaction, -1 and 0 without one. ``previous``: the one before it, or before a deletion
of the key. ``claim``: of a transaction that is to commit, missing without one.

    claim: in place of no claim, or of the claim of an aborted transaction
    decide: in the row of the transaction
    settle: the claim becomes ``number`` and ``txn``, before the commit is finished

A claim counts if its transaction commits, so its coordinator may die after each step. The next
transaction of the key ends the one that has the claim, before it claims itself: it completes a
decided one, and aborts an open one. Only one of abort and decision finds a transaction open. So of
all transactions with one number, only one commits, and none after a larger number.
"""

from typing import Any, NamedTuple

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import DuplicateKeyError

from oplogd.errors import StoreUnavailableError
from oplogd.model.once import OnceNumber
from oplogd.store.mongo.link.damage import whole
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.topic_layout import Document

ONCE = "oplog_once"


class Claim(NamedTuple):
    number: int
    txn: int


class KeyRow(NamedTuple):
    """A document as it was read. ``newest``: of the newest committed transaction."""

    key: str
    newest: Claim
    previous: int
    claim: Claim | None


class KeyRows:
    """Methods raise PyMongo's errors, and StoreUnavailableError for a damaged document."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._rows: AsyncCollection[Document] = link.database[ONCE]

    async def find(self, key: str) -> KeyRow | None:
        async with self._link.reading() as session:
            document = await self._rows.find_one({"_id": key}, session=session)
        return None if document is None else _row_of(document)

    async def select(self, after: str, limit: int) -> list[KeyRow]:
        """Return the keys past one, sorted."""
        async with self._link.reading() as session:
            found = self._rows.find({"_id": {"$gt": after}}, session=session)
            return [_row_of(each) for each in await found.sort("_id", 1).limit(limit).to_list()]

    async def count(self) -> int:
        return await self._rows.estimated_document_count()

    async def claim(self, key: str, row: KeyRow | None, claim: Claim) -> bool:
        """Claim a number if the document is unchanged. Return whether it was."""
        if row is None:
            document = {"_id": key, "number": -1, "txn": 0, "previous": 0}
            try:
                await self._rows.insert_one({**document, "claim": claim._asdict()})
            except DuplicateKeyError:
                return False
            return True
        changed: Any = await self._rows.find_one_and_update(
            _unchanged(row), {"$set": {"claim": claim._asdict()}}
        )
        return changed is not None

    async def settle(self, id_: int, once: OnceNumber) -> KeyRow | None:
        """Let a claim of a decided transaction be the newest committed one. Return the row."""
        row = await self.find(once.key)
        if row is None or row.claim is None or row.claim.txn != id_:
            return row
        newest = {"number": once.number, "txn": id_, "previous": row.newest.txn or row.previous}
        await self._rows.update_one(
            {"_id": once.key, "claim.txn": id_}, {"$set": newest, "$unset": {"claim": ""}}
        )
        return await self.find(once.key)

    async def clear(self, row: KeyRow) -> bool:
        """Forget the number of a key if its document is unchanged. Return whether it was."""
        cleared = {"number": -1, "txn": 0, "previous": row.newest.txn or row.previous}
        changed: Any = await self._rows.find_one_and_update(
            _unchanged(row), {"$set": cleared, "$unset": {"claim": ""}}
        )
        return changed is not None

    async def delete(self, row: KeyRow) -> bool:
        """Delete a document if it is unchanged. Return whether it was."""
        return (await self._rows.delete_one(_unchanged(row))).deleted_count == 1


def _unchanged(row: KeyRow) -> Document:
    return {
        "_id": row.key,
        "number": row.newest.number,
        "txn": row.newest.txn,
        "claim.txn": None if row.claim is None else row.claim.txn,
    }


def _row_of(document: Document) -> KeyRow:
    try:
        claim = document.get("claim")
        return KeyRow(
            document["_id"],
            Claim(_number(document, "number"), _number(document, "txn")),
            _number(document, "previous"),
            None if claim is None else Claim(_number(claim, "number"), _number(claim, "txn")),
        )
    except (KeyError, TypeError) as error:
        raise StoreUnavailableError(
            f"the document {document.get('_id')} of {ONCE} is damaged: {error!r}"
        ) from None


def _number(document: Document, member: str) -> int:
    found = whole(document[member])
    if found is None:
        raise TypeError(f"{member} is no whole number")
    return found

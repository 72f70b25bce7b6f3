"""The places of a transaction's operations in the log, also after they have left it.

Each transaction with operations has a note ``{_id, runs}`` beside its payloads. The fold writes
into it which operations it has folded, before it raises the checkpoint, and only folded entries
leave the log. So an agent knows every operation if it reads the log past the checkpoint, then the
checkpoint again, then the note. ``runs``: for the first ``lsn`` of each run its last one, its
length, its first offset and its time in ms. A run may be folded again, and begin elsewhere then.

The note is created before the first operation is appended, and removed after the payloads.
"""

import contextlib
import logging
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import DuplicateKeyError, WriteError

from oplogd.model.transaction import no_transaction
from oplogd.store.mongo.link.layout import Document, mark_of, transaction_of
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.log.log import Log
from oplogd.store.mongo.transactions.payloads import PAYLOADS
from oplogd.store.transactions import OperationRun

# Entries of one answer.
_BATCH = 1_000

logger = logging.getLogger("oplogd.store")


class Noted(NamedTuple):
    """Consecutive operations of a transaction in the log, with one time."""

    first_lsn: int
    last_lsn: int
    length: int
    offset: int
    ms: int


class OperationPlaces:
    """Methods raise PyMongo's errors, and StoreUnavailableError."""

    def __init__(self, link: Link, log: Log, txn: int) -> None:
        self._link = link
        self._log = log
        self._txn = txn
        self._notes = link.database[PAYLOADS]

    async def create(self) -> None:
        """Create the note, unless it is there."""
        with contextlib.suppress(DuplicateKeyError):
            await self._notes.insert_one({"_id": note_id(self._txn), "runs": {}})

    async def last(self) -> int:
        """Return the largest ``lsn`` in the log or in the note, -1 if none.

        Operations are appended in order, so all smaller ones are there. Raises
        TransactionNotFoundError if the note is gone: then the transaction ended long ago.
        """
        return await self._log.last_number({"txn": self._txn}, "lsn", self.folded)

    async def folded(self) -> tuple[int, int]:
        """Return the checkpoint's offset, and an ``lsn`` up to which all are folded."""
        async with self._link.reading() as session:
            offset = (await self._log.row(session)).folded.offset
            last = max((run.last_lsn for run in await self._note(session)), default=-1)
            return offset, last

    async def runs(self, lsns: "array[int]") -> tuple[OperationRun, ...]:
        """Return the places of these operations, in order. Offset 0: not known."""
        size = 8 * len(lsns)
        offsets, times = array("q", bytes(size)), array("q", bytes(size))

        def put(run: Noted) -> None:
            start = bisect_left(lsns, run.first_lsn)
            for place in range(start, min(start + run.length, len(lsns))):
                offset = run.offset + place - start
                # A stray is before the valid entry. A rebuilt log has its entries again, at larger
                # offsets.
                if offset > offsets[place]:
                    offsets[place], times[place] = offset, run.ms

        async with self._link.reading() as session:
            folded = (await self._log.row(session)).folded.offset
            unfolded = {"n": {"$gt": folded}, "txn": self._txn}
            found = self._link.log.find(unfolded, {"n": 1, "lsn": 1}, session=session)
            async with found.sort("n", 1).batch_size(_BATCH) as cursor:
                async for each in cursor:
                    put(_noted([each]))
            for run in await self._note(session):
                put(run)
        return tuple(_compressed(offsets, times))

    async def _note(self, session: AsyncClientSession | None) -> list[Noted]:
        note = await self._notes.find_one({"_id": note_id(self._txn)}, session=session)
        if note is None:
            raise no_transaction(self._txn)
        return [Noted(int(lsn), *run) for lsn, run in note["runs"].items()]


def note_id(txn: int) -> str:
    """Return a key after all keys of payloads."""
    return f"~{txn:016x}"


async def note_folded(link: Link, documents: Sequence[Document]) -> None:
    """Note the places of transactions' operations among the entries of one fold, if there are any.

    A damaged note must not stop the fold.
    """
    if not any("txn" in document for document in documents):
        return
    runs: dict[int, Document] = {}
    for (txn, _), group in groupby(documents, _transaction_and_ms):
        if txn is not None:
            first_lsn, *rest = _noted(list(group))
            runs.setdefault(txn, {})[f"runs.{first_lsn}"] = rest
    for txn, changed in runs.items():
        try:
            await link.database[PAYLOADS].update_one({"_id": note_id(txn)}, {"$set": changed})
        except WriteError as error:
            logger.warning("the places of transaction %d cannot be noted: %s", txn, error)


async def forget_notes(link: Link, txns: Sequence[int]) -> None:
    """Remove the notes of transactions whose payloads were removed before."""
    await link.database[PAYLOADS].delete_many({"_id": {"$in": [note_id(txn) for txn in txns]}})


def _transaction_and_ms(document: Document) -> tuple[int | None, int]:
    found = transaction_of(document)
    return found[0] if found else None, mark_of(document).ms


def _noted(documents: Sequence[Document]) -> Noted:
    """Return the run of consecutive entries."""
    offset, ms, _ = mark_of(documents[0])
    return Noted(documents[0]["lsn"], documents[-1]["lsn"], len(documents), offset, ms)


def _compressed(offsets: "array[int]", times: "array[int]") -> Iterator[OperationRun]:
    start = 0
    for place in range(1, len(offsets) + 1):
        is_end = place == len(offsets) or times[place] != times[start]
        expected = offsets[start] and offsets[start] + place - start
        if is_end or offsets[place] != expected:
            yield OperationRun(offsets[start], place - start, times[start])
            start = place

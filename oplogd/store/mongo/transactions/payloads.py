"""The operations of transactions before they are in the log.

``oplog_payloads`` holds ``{_id, event, key, data, d}``. ``_id``: 16 hex digits of the transaction
and 10 of the ``lsn``, so that its index keeps an ``lsn`` unique. ``d``: the record's digest. The
notes of ``places`` are in the same collection, and messages stored under a pointer: their
keys sort before all of these.
"""

from collections.abc import AsyncIterator, Iterable, Sequence

from pymongo.errors import BulkWriteError

from oplogd.model.operation import Operation
from oplogd.model.transaction import Record, reused
from oplogd.store.mongo.link.errors import duplicates_in
from oplogd.store.mongo.link.inserts import Obstacle
from oplogd.store.mongo.link.layout import Document, Numbered
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.read_size import READ_CHARACTERS, ReadSize
from oplogd.store.mongo.link.topic_layout import parts

PAYLOADS = "oplog_payloads"

# Payloads of one insert, and of one page.
MOST_PAYLOADS = 1_000

_LSN_BATCH = 1_000


class Payloads:
    """Methods raise PyMongo's errors, and StoreUnavailableError."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._payloads = link.database[PAYLOADS]
        self._read_size = ReadSize()

    async def write(self, txn: int, records: Sequence[Record]) -> None:
        """Write operations, each once. A majority has them when the call returns.

        Raises TransactionConflictError if an ``lsn`` is taken by another record.
        """
        most = min(MOST_PAYLOADS, self._link.quirks.inserts_per_command)
        for start in range(0, len(records), most):
            await self._write(txn, records[start : start + most])

    async def existing(self, txn: int, lsns: Iterable[int]) -> dict[int, str]:
        """Return the digests of the written ones among these records, by ``lsn``."""
        found: dict[int, str] = {}
        for keys in parts(_key(txn, lsn) for lsn in lsns):
            async for each in self._payloads.find({"_id": {"$in": keys}}, {"d": 1}):
                found[_lsn(each)] = each["d"]
        return found

    async def lsns(self, txn: int) -> list[int]:
        """Return the ``lsn`` of each written operation, in ascending order."""
        return [lsn async for lsn in self.each_lsn(txn)]

    async def each_lsn(self, txn: int) -> AsyncIterator[int]:
        found = self._payloads.find({"_id": _keys(txn)}, {"_id": 1}).sort("_id", 1)
        async with found.batch_size(_LSN_BATCH):
            async for each in found:
                yield _lsn(each)

    async def page(self, txn: int, after_lsn: int) -> list[Numbered]:
        """Return the operations past an ``lsn`` in order: at most 1,000, and about 1 MB."""
        chosen = {"_id": _keys(txn, after_lsn)}
        found = self._payloads.find(chosen, {"d": 0}).sort("_id", 1).limit(MOST_PAYLOADS)
        page: list[Numbered] = []
        size = 0
        async with found.batch_size(self._read_size.documents(MOST_PAYLOADS)):
            async for each in found:
                data: bytes = each["data"].encode()
                page.append((_lsn(each), Operation(each["event"], each["key"], data)))
                size += len(data)
                if size > READ_CHARACTERS:
                    break
        self._read_size.saw(size, len(page))
        return page

    async def remove(self, txn: int) -> None:
        """Remove all operations of an aborted or committed transaction."""
        await self._payloads.delete_many({"_id": _keys(txn)})

    async def _write(self, txn: int, records: Sequence[Record]) -> None:
        """Insert records. Only a majority read shows whether records in their way last."""
        todo: dict[int, Record] = {}
        for record in records:
            _check(todo.setdefault(record.lsn, record), record.digest)
        obstacle = Obstacle(self._link)
        while True:
            documents = [_document(txn, record) for record in todo.values()]
            try:
                await self._payloads.insert_many(documents, ordered=False)
                return
            except BulkWriteError as error:
                duplicates_in(error)
            for lsn, digest in (await self.existing(txn, todo)).items():
                _check(todo.pop(lsn), digest)
            if not todo:
                return
            obstacle.compare(0)
            await obstacle.met(1)


def _check(record: Record, digest: str) -> None:
    if record.digest != digest:
        raise reused(record.lsn)


def _document(txn: int, record: Record) -> Document:
    operation = record.content
    assert isinstance(operation, Operation)
    return {
        "_id": _key(txn, record.lsn),
        "event": operation.event,
        "key": operation.key,
        "data": operation.data.decode(),
        "d": record.digest,
    }


def _key(txn: int, lsn: int) -> str:
    return f"{txn:016x}{lsn:010x}"


def _keys(txn: int, after_lsn: int = -1) -> Document:
    """Return the range of keys past an ``lsn``, for a filter of ``_id``."""
    return {"$gte": _key(txn, after_lsn + 1), "$lt": f"{txn + 1:016x}"}


def _lsn(document: Document) -> int:
    return int(document["_id"][16:], 16)

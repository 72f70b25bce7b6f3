"""The records of transactions in the topics."""

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence

from oplogd.model.message import Message
from oplogd.model.transaction import Marker, Record, encode_marker, lacking, reused
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.topic_layout import (
    BEGIN_NUMBER,
    END_NUMBER,
    Document,
    identity,
    number_of,
)
from oplogd.store.mongo.topics.groups import Group, Once, new_entry
from oplogd.store.mongo.transactions.appends import SharedAppender
from oplogd.store.mongo.transactions.payloads import Payloads
from oplogd.store.mongo.transactions.row import TransactionRow
from oplogd.store.topics import EntryKind
from oplogd.store.transactions import OPLOG_INDEX

# Documents of one answer while all records are counted.
_BATCH = 5_000

_MISSING = OPLOG_INDEX - 1


def once(txn: int, log: int, number: int, digest: str | None = None) -> Once:
    """Return the condition of an entry before the end of its transaction in a log."""
    return Once(identity(txn, log, number), identity(txn, log, END_NUMBER), digest)


def entry_in(log: int, kind: EntryKind, content: Message | Marker, once: Once) -> Group:
    """Return an entry about a transaction or a pointer. In a group's log it is a message."""
    if isinstance(content, Message):
        return Group(log, [new_entry(EntryKind.MESSAGE, content.data, once=once)])
    return Group(log, [new_entry(kind, encode_marker(content).encode(), once=once)])


class CommittedRecords:
    """Methods raise PyMongo's errors, and StoreUnavailableError."""

    def __init__(self, link: Link, appender: SharedAppender, payloads: Payloads) -> None:
        self._link = link
        self._appender = appender
        self._payloads = payloads

    async def missing(self, row: TransactionRow, records: Sequence[Record]) -> list[Record]:
        """Return the records not written yet.

        Raises TransactionConflictError if an lsn has another digest.
        """
        todo: dict[int, Record] = {}
        for record in records:
            if todo.setdefault(record.lsn, record).digest != record.digest:
                raise reused(record.lsn)
        txn, found = row.transaction.id, dict[int, str]()
        asked = [lsn for lsn in todo if lsn <= row.high]
        if asked and row.topics:
            low, high = min(asked), max(asked)
            ranges: list[Document] = [
                {"x": {"$gte": identity(txn, log, low), "$lte": identity(txn, log, high)}}
                for log in row.topics
            ]
            async with self._link.reading() as session:
                cursor = self._link.entries.find({"$or": ranges}, {"x": 1, "d": 1}, session=session)
                async for each in cursor.batch_size(_BATCH):
                    found[number_of(each["x"])] = each["d"]
        if asked and row.has_operations:
            found |= await self._payloads.existing(txn, asked)
        for lsn, digest in found.items():
            if lsn in todo and todo.pop(lsn).digest != digest:
                raise reused(lsn)
        return list(todo.values())

    async def append(self, txn: int, records: Sequence[Record]) -> list[Group]:
        """Append records of topics, those of one topic in order of their lsn. Return the groups.

        Each has its outcome: see ``Group``.
        """
        by_log: dict[int, Group] = {}
        for record in sorted(records, key=lambda each: each.lsn):
            message = record.content
            assert isinstance(message, Message)
            condition = once(txn, record.log, record.lsn, record.digest)
            group = by_log.setdefault(record.log, Group(record.log, []))
            group.todo.append(new_entry(EntryKind.DEFERRED, message.data, message.ttl, condition))
        groups = list(by_log.values())
        await self._appender.run(groups)
        return groups

    async def order(self, row: TransactionRow, count: int) -> "array[int]":
        """Return the topic of each record of a commit: see ``TransactionRow.order``.

        Raises TransactionConflictError if one is missing, or if an lsn is in two topics.
        """
        # None is past the largest lsn. A count beyond it must not take memory.
        order = array("I", [_MISSING]) * min(count, row.high + 1)

        def put(lsn: int, index: int) -> None:
            if lsn < len(order):
                if order[lsn] not in (_MISSING, index):
                    raise reused(lsn)
                order[lsn] = index

        txn = row.transaction.id
        async with self._link.reading() as session:
            for index, log in enumerate(row.topics):
                upto = identity(txn, log, min(count, BEGIN_NUMBER))
                chosen = {"x": {"$gte": identity(txn, log, 0), "$lt": upto}}
                members = {"_id": 0, "x": 1}
                cursor = self._link.entries.find(chosen, members, session=session)
                async for each in cursor.batch_size(_BATCH):
                    put(number_of(each["x"]), index)
        if row.has_operations:
            async for lsn in self._payloads.each_lsn(txn):
                if lsn < count:
                    put(lsn, OPLOG_INDEX)
        missing = count - len(order) + order.count(_MISSING)
        if missing:
            first = order.index(_MISSING) if _MISSING in order else len(order)
            raise lacking(txn, missing, count, first)
        return order


def lasts(row: TransactionRow) -> dict[int, tuple[int, int]]:
    """Return number and last lsn of the committed records of each touched topic."""
    order = row.order
    counts = Counter(order)
    found: Mapping[int, int] = dict(zip(order, range(len(order)), strict=True))
    return {log: (counts[index], found.get(index, -1)) for index, log in enumerate(row.topics)}

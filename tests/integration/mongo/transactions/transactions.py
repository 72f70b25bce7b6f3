"""Operations of transactions for tests."""

from collections.abc import Sequence

from oplogd.model.event_id import Mark, format_id
from oplogd.model.transaction import FIRST_ID, Record
from oplogd.store import Entry
from oplogd.store.mongo import MongoStore
from oplogd.store.mongo.link.errors import translating
from oplogd.store.mongo.transactions.operations import OperationAppender
from oplogd.store.mongo.transactions.payloads import Payloads
from oplogd.store.transactions import OperationRun
from tests.kits.mongo.operations import op

TXN = FIRST_ID + 7


def payloads_of(store: MongoStore) -> Payloads:
    return Payloads(store.link)


def appender_of(store: MongoStore) -> OperationAppender:
    return OperationAppender(store.link, store.log, store.appender, payloads_of(store))


async def append(store: MongoStore, count: int, txn: int = TXN) -> tuple[OperationRun, ...]:
    """Append the operations with lsn 0 to ``count`` - 1, as the commit of a transaction does."""
    with translating(store.link.hosts):
        return await appender_of(store).append(txn, count)


def records(lsns: Sequence[int], txn: int = TXN) -> list[Record]:
    return [Record(lsn, 0, op(f"{txn}-{lsn}"), f"digest {lsn}") for lsn in lsns]


def ids(runs: Sequence[OperationRun]) -> list[str]:
    return [
        format_id(Mark(run.first_offset + number, run.ms))
        for run in runs
        for number in range(run.length)
    ]


def of_transaction(entries: Sequence[Entry], lsns: Sequence[int], txn: int = TXN) -> list[str]:
    """Return the event ids of a transaction's entries. Demand that they are whole and in order."""
    own = [entry for entry in entries if f'"txn":"{txn}"' in entry.data]
    assert [entry.data for entry in own] == [
        op(f"{txn}-{lsn}").data.decode()[:-1] + f',"txn":"{txn}","lsn":{lsn},"of":{len(lsns)}}}'
        for lsn in lsns
    ]
    return [format_id(Mark(entry.offset, entry.ms)) for entry in own]

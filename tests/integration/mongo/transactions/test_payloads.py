"""The operations of a transaction wait for its commit: each is written once."""

import asyncio

import pytest

from oplogd.errors import StoreUnavailableError, TransactionConflictError
from oplogd.model.transaction import FIRST_ID, MAX_ID, Record
from oplogd.store.mongo import MongoStore
from oplogd.store.mongo.link.errors import translating
from oplogd.store.mongo.setup.setup import CollectionKind
from tests.integration.mongo.transactions.transactions import TXN, payloads_of, records
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.operations import op
from tests.kits.mongo.wire import Command, Wire


def writes(command: Command) -> bool:
    return command.get("insert") == "oplog_payloads"


async def opened(make_store: MakeStore, url: str, kind: CollectionKind = "plain") -> MongoStore:
    store = make_store(url, kind)
    await store.open()
    return store


async def test_a_record_is_written_once_and_another_one_with_its_lsn_is_refused(
    place: tuple[str, CollectionKind], make_store: MakeStore
) -> None:
    store = await opened(make_store, *place)
    payloads = payloads_of(store)
    await asyncio.gather(*(payloads.write(TXN, records(range(150))) for _ in range(3)))
    await payloads.write(TXN, [*records([149, 150]), *records([150, 7])])
    another = Record(149, 0, op("x"), "another")
    clashes = [[another], [*records([500]), another], [*records([149]), another]]
    for clash in clashes:
        with pytest.raises(TransactionConflictError, match="lsn 149 was written before with other"):
            await payloads.write(TXN, clash)
    assert await payloads.lsns(TXN) == [*range(151), 500]
    assert await payloads.existing(TXN, range(149, 600)) == {
        lsn: f"digest {lsn}" for lsn in (149, 150, 500)
    }
    page = await payloads.page(TXN, 148)
    assert page == [(each.lsn, each.content) for each in records([149, 150, 500])]


async def test_each_transaction_has_its_own_records(
    place: tuple[str, CollectionKind], make_store: MakeStore
) -> None:
    payloads = payloads_of(await opened(make_store, *place))
    every = [FIRST_ID, FIRST_ID + 1, MAX_ID - 1, MAX_ID]
    for txn in every:
        await payloads.write(txn, records(range(3), txn))
    await payloads.remove(FIRST_ID + 1)
    await payloads.remove(MAX_ID)
    assert [await payloads.lsns(txn) for txn in every] == [[0, 1, 2], [], [0, 1, 2], []]
    assert await payloads.existing(MAX_ID, range(3)) == {}


@pytest.mark.parametrize("is_late", [False, True], ids=["carried out", "late"])
async def test_records_whose_answer_was_lost_are_written_once(
    is_late: bool, wire: Wire, make_store: MakeStore
) -> None:
    store = await opened(make_store, wire.url())
    payloads = payloads_of(store)
    held = wire.hold(writes)
    writing = asyncio.create_task(payloads.write(TXN, records(range(5))))
    await asyncio.to_thread(held.wait)
    held.cut()
    with pytest.raises(StoreUnavailableError), translating(store.link.hosts):
        await writing
    if not is_late:
        await asyncio.to_thread(held.release)
    await payloads.write(TXN, records(range(6)))
    if is_late:
        await asyncio.to_thread(held.release)
    assert await payloads.lsns(TXN) == list(range(6))

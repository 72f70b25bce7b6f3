"""The operations of a transaction get into the log at its commit: each once, in their order."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from oplog_sync.backend.base import Wanted
from oplog_sync.backend.mongo import MongoBackend
from oplogd.clock import Clock
from oplogd.errors import StoreUnavailableError, TransactionNotFoundError
from oplogd.store import Correction, CorrectionResult, Entry
from oplogd.store.mongo import MongoStore
from oplogd.store.mongo.link.layout import Document
from oplogd.store.mongo.log.trim import Trimmer
from oplogd.store.mongo.setup.setup import CollectionKind
from oplogd.store.mongo.transactions.places import forget_notes
from tests.integration.mongo.transactions.transactions import (
    TXN,
    append,
    ids,
    of_transaction,
    payloads_of,
    records,
)
from tests.kits.clock.virtual import VirtualClock
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.operations import live_states, offsets, op, whole_log
from tests.kits.mongo.wire import Command, Moment, Wire, asks_for_head, inserts

# lsn of the operations of one transaction. The others are records of topics.
LSNS = range(0, 240, 2)


def looks_up_places(command: Command) -> bool:
    return command.get("find") == "oplog_ops" and "txn" in command.get("filter", {})


def reads_page(command: Command) -> bool:
    return command.get("find") == "oplog_payloads" and command.get("projection") == {"d": 0}


def reads_note(command: Command) -> bool:
    return command.get("find") == "oplog_payloads" and "~" in str(command.get("filter"))


def nth(matches: Callable[[Command], bool], number: int) -> Callable[[Command], bool]:
    """Return a condition that holds for the ``number``-th command that matches, from 0."""
    left = [number]

    def is_due(command: Command) -> bool:
        if matches(command):
            left[0] -= 1
        return left[0] == -1 and matches(command)

    return is_due


async def written(store: MongoStore, lsns: Sequence[int] = LSNS, txn: int = TXN) -> MongoStore:
    await payloads_of(store).write(txn, records(lsns, txn))
    return store


async def opened(store: MongoStore, inserts_per_command: int | None = None) -> MongoStore:
    await store.open()
    if inserts_per_command:
        quirks = replace(store.link.quirks, inserts_per_command=inserts_per_command)
        store.link.quirks = quirks
    return store


def check_dense(entries: Sequence[Entry]) -> None:
    first = entries[0].offset
    assert [entry.offset for entry in entries] == list(range(first, first + len(entries)))


async def test_operations_are_appended_once_in_order_with_their_transaction_and_states_without_it(
    place: tuple[str, CollectionKind], make_store: MakeStore
) -> None:
    url, kind = place
    store, other = [await opened(make_store(url, kind)) for _ in range(2)]
    await store.append([op("before")])
    await written(store, range(0, 244, 2))  # some are too many
    first = await append(store, 240)
    await other.append([op("after")])
    await other.checkpoint()
    assert await append(other, 240) == await append(store, 240) == first
    entries = await whole_log(store)
    check_dense(entries)
    assert len(entries) == 122
    assert of_transaction(entries, LSNS) == ids(first)
    assert await live_states(other) == {
        each.key: each.data.decode()
        for each in (op("before"), op("after"), *(op(f"{TXN}-{lsn}") for lsn in LSNS))
    }
    row = await store.link.meta.find_one({"_id": "oplog_ops"})
    assert row is not None
    assert len(row["writers"]) == 2  # of the plain appends
    async for state in store.link.states.find():
        assert not {"txn", "lsn", "of"} & state.keys()
    data = f"{TXN}-0"
    assert await store.correct([Correction(op(data), 0), Correction(op(data, "delete"), 2)]) == [
        CorrectionResult.PRESENT,
        CorrectionResult.SKIPPED,
    ]


async def test_the_spark_source_reads_operations_of_transactions_as_any_others(
    plain_url: str, database: Database[Document], make_store: MakeStore
) -> None:
    store = await opened(make_store(plain_url, "plain"))
    await written(store)
    await append(store, 240)
    await store.checkpoint()
    entries = await whole_log(store)
    backend = MongoBackend(plain_url)
    for wanted in (Wanted(), Wanted(events=frozenset({"insert"}), types=frozenset({"video"}))):
        pages = await asyncio.to_thread(list, backend.operations((0, 120), wanted))
        assert [(row.offset, row.data) for page in pages for row in page] == [
            (entry.offset, entry.data) for entry in entries
        ]


async def test_operations_in_a_log_that_is_rebuilt_are_not_appended_again(
    plain_url: str, database: Database[Document], make_store: MakeStore
) -> None:
    store = await opened(make_store(plain_url, "plain", lease=60))
    await store.append([op("before")])
    await written(store)
    await append(store, 240)
    await store.checkpoint()
    log = database["oplog_ops"]
    log.delete_one({"n": 1})
    log.update_one({"n": 2}, {"$set": {"n": 1}})  # so it gets new offsets
    await store.projection.stop()
    log.drop_index("offset")
    await store.setup.keep(store.lease.hold)
    store.projection.start()
    runs = await append(store, 240)
    entries = await whole_log(store)
    check_dense(entries)
    assert entries[0].offset > 121
    assert of_transaction(entries, LSNS) == ids(runs)


async def test_two_agents_append_a_transaction_at_once_while_a_third_writes(
    place: tuple[str, CollectionKind], make_store: MakeStore
) -> None:
    url, kind = place
    stores = [await opened(make_store(url, kind, lease=5), 7) for _ in range(3)]
    await written(stores[0])

    async def write(store: MongoStore) -> None:
        for number in range(20):
            await store.append([op(f"plain {number}")])

    found = await asyncio.gather(append(stores[0], 240), append(stores[1], 240), write(stores[2]))
    assert found[0] == found[1]
    entries = await whole_log(stores[2])
    check_dense(entries)
    assert len(entries) == 140
    assert of_transaction(entries, LSNS) == ids(found[0])
    assert [each.data for each in entries if "plain" in each.data] == [
        op(f"plain {number}").data.decode() for number in range(20)
    ]
    await stores[0].checkpoint()
    assert await append(stores[2], 240) == found[0]


@pytest.mark.parametrize("is_carried_out", ["before", "after", "late"])
async def test_another_agent_continues_after_an_insert_whose_answer_was_lost(
    is_carried_out: str, wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    """The insert is carried out before the other agent continues, after it, or in its midst."""
    other = await opened(make_store(plain_url, "plain", lease=60), 30)
    store = await opened(make_store(wire.url(), "plain"), 30)
    for number in range(4):
        txn = TXN + number
        await written(other, LSNS, txn)
        held = wire.hold(nth(inserts, number))
        appending = asyncio.create_task(append(store, 240, txn))
        await asyncio.to_thread(held.wait)
        held.cut()
        with pytest.raises(StoreUnavailableError):
            await appending
        if is_carried_out == "before":
            await asyncio.to_thread(held.release)
        await other.append([op("plain")])
        runs = await append(other, 240, txn)
        if is_carried_out == "after":
            await asyncio.to_thread(held.release)
        elif is_carried_out == "late":
            await other.checkpoint()
            await asyncio.to_thread(held.release)
        assert await append(store, 240, txn) == runs
        entries = await whole_log(other)
        check_dense(entries)
        assert of_transaction(entries, LSNS, txn) == ids(runs)
    assert len(entries) == 4 * 121


STEPS = {
    "places": looks_up_places,
    "note": reads_note,
    "head": asks_for_head,
    "page": reads_page,
    "insert": inserts,
}


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
async def test_an_agent_that_pauses_at_a_step_doubles_nothing_that_another_one_appends_meanwhile(
    step: str,
    moment: Moment,
    wire: Wire,
    plain_url: str,
    make_store: MakeStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oplogd.store.mongo.transactions.payloads.MOST_PAYLOADS", 30)
    other = await opened(make_store(plain_url, "plain", lease=60))
    store = await opened(make_store(wire.url(), "plain"))
    for number in range(3):
        txn = TXN + number
        await written(other, LSNS, txn)
        held = wire.hold(nth(STEPS[step], number), moment)
        appending = asyncio.create_task(append(store, 240, txn))
        await asyncio.to_thread(held.wait)
        await other.append([op("plain")])
        runs = await append(other, 240, txn)
        if number:
            await other.checkpoint()
        await asyncio.to_thread(held.release)
        assert await appending == runs
        assert of_transaction(await whole_log(other), LSNS, txn) == ids(runs)
    assert (await other.locate()).head.offset == 3 * 121


async def turned_over(other: MongoStore, database: Database[Document], past: int) -> None:
    """Append until the log was trimmed past an offset."""
    async with asyncio.timeout(120):
        while offsets(database)[0] <= past:
            await other.append([op("x") for _ in range(100)])
            folded = (await other.checkpoint()).offset
            await Trimmer(other.link, other.log, seconds=0.0).trim(folded)


@pytest.mark.parametrize("by", ["nobody", "another agent"])
async def test_an_insert_behind_a_trimmed_front_loses_and_doubles_nothing(
    by: str, wire: Wire, database: Database[Document], plain_url: str, make_store: MakeStore
) -> None:
    own = VirtualClock()
    other = await opened(make_store(plain_url, "plain", max_bytes=20_000, lease=60))
    store = await opened(
        make_store(wire.url(), "plain", max_bytes=20_000, clock=Clock(boot=own.monotonic))
    )
    lsns = range(10)
    await written(other, lsns)
    await other.append([op("before")])
    held = wire.hold(inserts)
    appending = asyncio.create_task(append(store, 10))
    await asyncio.to_thread(held.wait)
    done = await append(other, 10) if by == "another agent" else None
    await turned_over(other, database, 20)
    own.move(60.0)
    await asyncio.to_thread(held.release)
    runs = await appending
    oldest = (await other.locate()).oldest
    assert oldest is not None
    entries = [each for each in await whole_log(other) if each.offset >= oldest.offset]
    check_dense(entries)
    await other.append([op("last")])
    assert (await whole_log(other))[-1].offset == entries[-1].offset + 1
    if done:
        assert runs == done
        assert ids(runs)[0].endswith(f"{2:012x}")
        assert of_transaction(entries, []) == []
    else:
        assert of_transaction(entries, lsns) == ids(runs)
    assert set(await live_states(other)) == {
        *(f"video/{name}" for name in ("before", "x", "last")),
        *(f"video/{TXN}-{lsn}" for lsn in lsns),
    }


async def test_an_insert_that_was_folded_before_its_late_answer_stays_in_the_log(
    wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    own = VirtualClock()
    other = await opened(make_store(plain_url, "plain", lease=60))
    store = await opened(make_store(wire.url(), "plain", clock=Clock(boot=own.monotonic)))
    await written(other)
    held = wire.hold(inserts, "after")
    appending = asyncio.create_task(append(store, 240))
    await asyncio.to_thread(held.wait)
    await other.checkpoint()
    own.move(60.0)
    await asyncio.to_thread(held.release)
    runs = await appending
    assert of_transaction(await whole_log(other), LSNS) == ids(runs)


async def test_operations_that_have_left_the_log_are_not_appended_again(
    place: tuple[str, CollectionKind], make_store: MakeStore
) -> None:
    url, kind = place
    store, other = [await opened(make_store(url, kind)) for _ in range(2)]
    await written(store)
    await store.append([op("before")])
    runs = await append(store, 240)
    head = (await store.checkpoint()).offset
    with MongoClient[Document](url) as client:
        log = client.get_default_database()["oplog_ops"]
        log.delete_many({"n": {"$lt": head}})  # as the server does with the oldest entries
    assert await append(other, 240) == await append(store, 240) == runs
    assert (await other.locate()).head.offset == head == 121
    assert [int(each[12:], 16) for each in ids(runs)] == list(range(2, 122))


async def test_another_agent_continues_after_the_first_part_was_folded_and_trimmed(
    wire: Wire, database: Database[Document], plain_url: str, make_store: MakeStore
) -> None:
    other = await opened(make_store(plain_url, "plain", max_bytes=20_000, lease=60), 30)
    store = await opened(make_store(wire.url(), "plain", max_bytes=20_000), 30)
    await written(other)
    held = wire.hold(nth(inserts, 2))
    appending = asyncio.create_task(append(store, 240))
    await asyncio.to_thread(held.wait)
    held.cut()
    with pytest.raises(StoreUnavailableError):
        await appending
    await turned_over(other, database, 61)
    runs = await append(other, 240)
    await turned_over(other, database, runs[-1].first_offset)
    assert await append(other, 240) == runs
    head = (await other.locate()).head
    await asyncio.to_thread(held.release)  # a stray
    assert await append(store, 240) == runs
    assert (await other.locate()).head == head
    places = [int(each[12:], 16) for each in ids(runs)]
    assert places[:60] == list(range(1, 61))
    assert places[60:] == list(range(places[60], places[60] + 60))
    assert len(await live_states(other)) == 121


async def test_an_agent_whose_transaction_another_one_has_completed_appends_nothing(
    wire: Wire, plain_url: str, make_store: MakeStore
) -> None:
    other = await opened(make_store(plain_url, "plain", lease=60))
    store = await opened(make_store(wire.url(), "plain"))
    await written(other)
    for number, step in enumerate([reads_page, reads_note, looks_up_places]):
        await written(other, LSNS, TXN + number)
        held = wire.hold(step)
        appending = asyncio.create_task(append(store, 240, TXN + number))
        await asyncio.to_thread(held.wait)
        await append(other, 240, TXN + number)
        await other.checkpoint()
        await payloads_of(other).remove(TXN + number)
        await forget_notes(other.link, [TXN + number])
        await asyncio.to_thread(held.release)
        with pytest.raises((StoreUnavailableError, TransactionNotFoundError)):
            await appending
    assert await append(store, 240) == ()
    entries = await whole_log(other)
    assert len(entries) == 3 * 120
    assert await other.link.database["oplog_payloads"].find_one({}) is None


async def test_a_damaged_note_does_not_stop_the_fold(
    plain_url: str, database: Database[Document], make_store: MakeStore
) -> None:
    store = await opened(make_store(plain_url, "plain"))
    await written(store)
    await append(store, 240)
    await store.checkpoint()
    database["oplog_payloads"].update_one({"_id": {"$gt": "~"}}, {"$set": {"runs": "damaged"}})
    database["oplog_meta"].update_one({"_id": "oplog_ops"}, {"$set": {"n": 0}})
    await store.append([op("after")])
    assert (await store.checkpoint()).offset == 121

"""Repairs that are cut off after any of their commands: the next keeper loses nothing."""

import contextlib
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest
from pymongo import AsyncMongoClient, IndexModel
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import PyMongoError

from oplogd.clock import now_ms
from oplogd.errors import StoreUnavailableError
from oplogd.model.event_id import EventId
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.log.log import Log
from oplogd.store.mongo.setup.setup import CollectionKind, Setup
from oplogd.stream.phases.start import After, resolve
from tests.integration.mongo.repair.repair_cases import (
    PREPARATIONS,
    Document,
    RepairCase,
    doubled,
    dropped_and_written,
    index_dropped,
    keep,
    without_offsets,
)
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.operations import live_states, op, whole_log
from tests.kits.proxies.mongo import Cutting, cut_off

MOST_COMMANDS = 60

# Commands that change nothing.
READS = {"find", "getMore", "listCollections", "listIndexes", "collStats", "aggregate", "count"}


class Saved(NamedTuple):
    """A collection: its name, its options, its indexes and its documents."""

    name: str
    options: Document
    indexes: list[IndexModel]
    documents: list[Document]


async def saved(database: AsyncDatabase[Document]) -> list[Saved]:
    collections = []
    async for found in await database.list_collections():
        collection = database[found["name"]]
        indexes = [
            IndexModel(info["key"], name=name, unique="unique" in info, sparse="sparse" in info)
            for name, info in (await collection.index_information()).items()
            if name != "_id_"
        ]
        documents = await collection.find().to_list()
        options = {key: each for key, each in found["options"].items() if key in ("capped", "size")}
        collections.append(Saved(collection.name, options, indexes, documents))
    return collections


async def restore(database: AsyncDatabase[Document], collections: list[Saved]) -> None:
    await database.client.drop_database(database)
    for each in collections:
        made = await database.create_collection(each.name, check_exists=False, **each.options)
        if each.indexes:
            await made.create_indexes(each.indexes)
        if each.documents:
            await made.insert_many(each.documents)


async def check(case: RepairCase) -> None:
    """Let another keeper go on: the log is dense, and has every entry once; states and ids fit."""
    store = case.make_store(case.url, case.kind)
    await store.open()
    await store.append([op("after")])
    assert set(await live_states(store)) == {*case.objects, "video/after"}
    entries = await whole_log(store)
    first = entries[0].offset
    assert [entry.offset for entry in entries] == list(range(first, first + len(entries)))
    texts = [(entry.event, entry.data) for entry in entries]
    for entry in case.log:
        assert texts.count((entry.event, entry.data)) == 1
    assert [each for each in texts if '"id":"after"' in each[1]] == texts[-1:]
    assert await case.database.oplog_ops.count_documents({"n": {"$gt": 0}}) == len(entries)
    await store.close()


async def check_ids(case: RepairCase) -> None:
    """Demand that a consumer can resume behind each entry that it ever saw."""
    store = case.make_store(case.url, case.kind)
    await store.open()
    for entry in case.log:
        bounds = await store.locate(entry.offset)
        position = EventId(entry.ms // 1000, entry.ms % 1000, entry.offset)
        assert isinstance(resolve(position, bounds, now_ms()), After)
    await store.close()


async def cut_everywhere(
    url: str,
    kind: CollectionKind,
    make_store: MakeStore,
    prepare: Callable[[RepairCase], Awaitable[None]],
    work: Callable[[str, CollectionKind], Awaitable[None]],
    verify: Callable[[RepairCase], Awaitable[None]],
) -> list[str]:
    """Cut the work after each of its commands, each time in the database as it was prepared.

    A read leaves the database as the command before it did, so only the first one is cut. Return
    the commands of the run that was not cut.
    """

    async with AsyncMongoClient[Document](url) as client:
        case = RepairCase(url, client.get_default_database(), kind, make_store)
        await prepare(case)
        prepared = await saved(case.database)

        async def run(commands: int) -> list[str]:
            names = await cut_off(
                url,
                commands,
                lambda: restore(case.database, prepared),
                lambda address: work(address, kind),
            )
            await verify(case)
            row = await case.database.oplog_meta.find_one({"_id": "oplog_ops"})
            assert row is not None
            assert "repair" not in row
            return names

        whole = await run(MOST_COMMANDS)
        assert len(whole) < MOST_COMMANDS
        for commands, name in enumerate(whole, 1):
            if commands == 1 or name not in READS:
                assert await run(commands) == whole[:commands]
        return whole


@pytest.mark.parametrize("prepare", PREPARATIONS, ids=lambda each: each.__name__)
async def test_a_keeper_that_is_cut_off_after_any_command_loses_and_doubles_nothing(
    plain_url: str, make_store: MakeStore, prepare: Callable[[RepairCase], Awaitable[None]]
) -> None:
    await cut_everywhere(plain_url, "plain", make_store, prepare, keep, check)


@pytest.mark.parametrize(
    "prepare", [index_dropped, without_offsets], ids=lambda each: each.__name__
)
async def test_ids_stay_valid_where_the_entries_are_whole(
    plain_url: str, make_store: MakeStore, prepare: Callable[[RepairCase], Awaitable[None]]
) -> None:
    await cut_everywhere(plain_url, "plain", make_store, prepare, keep, check_ids)


@pytest.mark.parametrize(
    "prepare", [index_dropped, dropped_and_written], ids=lambda each: each.__name__
)
async def test_a_keeper_of_a_capped_log_may_be_cut_off_too(
    capped_url: str, make_store: MakeStore, prepare: Callable[[RepairCase], Awaitable[None]]
) -> None:
    await cut_everywhere(capped_url, "capped", make_store, prepare, keep, check)


async def begin_epoch(url: str, kind: CollectionKind) -> None:
    link = Link(url)

    async def hold() -> bool:
        return True

    try:
        await link.greet()
        setup = Setup(link, Log(link), kind, None, 1 << 20)
        await setup.new_epoch(await link.now_ms())
        await setup.keep(hold)
    finally:
        await link.close()


async def unfolded(case: RepairCase) -> None:
    await case.begin()


async def check_epoch(case: RepairCase) -> None:
    """Demand all objects, and each entry that was not folded in the log exactly once."""
    store = case.make_store(case.url, case.kind)
    await store.open()
    await store.append([op("after")])
    assert set(await live_states(store)) == {*case.objects, "video/after"}
    entries = await whole_log(store)
    first = entries[0].offset
    assert first in (1, 5)
    assert [entry.offset for entry in entries] == list(range(first, 9))
    texts = [(entry.event, entry.data) for entry in entries]
    assert texts[-4:-1] == [(entry.event, entry.data) for entry in case.log[4:]]
    bounds = await store.locate()
    assert bounds.first_offset == first
    assert bounds.head.offset == 8
    await store.close()


async def test_a_new_epoch_that_is_cut_off_after_any_command_loses_nothing(
    plain_url: str, make_store: MakeStore
) -> None:
    names = await cut_everywhere(plain_url, "plain", make_store, unfolded, begin_epoch, check_epoch)
    assert names.count("renameCollection") == 2


async def test_a_late_insert_while_the_log_is_made_anew_is_in_it(
    plain_url: str, make_store: MakeStore
) -> None:
    async with AsyncMongoClient[Document](plain_url) as client:
        case = RepairCase(plain_url, client.get_default_database(), "plain", make_store)
        await doubled(case)
        for commands in range(1, MOST_COMMANDS):  # up to where the log is set aside
            with (
                Cutting(plain_url, commands) as cutting,
                contextlib.suppress(PyMongoError, StoreUnavailableError),
            ):
                await keep(cutting.address, "plain")
            if "oplog_ops" not in await case.database.list_collection_names():
                break
        await case.insert_stray(8, "late")
        await check(case)
        assert "video/late" in case.objects

"""Repairs that run to their end."""

import tracemalloc
from collections.abc import Awaitable, Callable

import pytest
from pymongo import AsyncMongoClient

from oplogd.model.event_id import Mark
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.log.log import Log
from oplogd.store.mongo.setup.setup import Setup
from tests.integration.mongo.repair.repair_cases import (
    Document,
    RepairCase,
    doubled,
    index_dropped,
    keep,
)
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.operations import op, whole_log


async def test_an_index_that_is_gone_is_created_again_and_nothing_else_changes(
    capped_url: str, make_store: MakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    """As after convertToCapped, which drops it."""
    async with AsyncMongoClient[Document](capped_url) as client:
        database = client.get_default_database()
        case = RepairCase(capped_url, database, "capped", make_store)
        await case.begin()
        states = await database.oplog_states.find().to_list()
        options = await database.oplog_ops.options()
        names = set(await database.list_collection_names())
        await database.oplog_ops.drop_index("offset")
        await keep(capped_url, "capped")
        assert await database.oplog_states.find().to_list() == states
        assert await database.oplog_ops.options() == options
        assert set(await database.list_collection_names()) == names
        assert "offset" in await database.oplog_ops.index_information()
        assert "the entries stay as they are" in caplog.text
        store = make_store(capped_url, "capped")
        await store.open()
        assert await whole_log(store) == case.log


@pytest.mark.parametrize("prepare", [index_dropped, doubled], ids=lambda each: each.__name__)
async def test_a_repair_does_not_hold_the_log_in_memory(
    plain_url: str, make_store: MakeStore, prepare: Callable[[RepairCase], Awaitable[None]]
) -> None:
    count, size = 1_500, 20_000
    async with AsyncMongoClient[Document](plain_url) as client:
        case = RepairCase(plain_url, client.get_default_database(), "plain", make_store)
        store = make_store(plain_url, "plain", lease=60, max_bytes=1 << 30)
        await store.open()
        for start in range(0, count, 50):
            await store.append(
                [op(str(n), "insert", "big", ("p" * size,)) for n in range(start, start + 50)]
            )
        await store.close()
        case.is_filled = True
        await prepare(case)
        tracemalloc.start()
        await keep(plain_url, "plain")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < count * size / 3
        assert await case.database.oplog_ops.count_documents({"n": {"$gt": 0}}) == count + (
            prepare is doubled
        )


async def test_entries_that_no_collection_holds_any_more_are_counted(
    plain_url: str, make_store: MakeStore
) -> None:
    async with AsyncMongoClient[Document](plain_url) as client:
        case = RepairCase(plain_url, client.get_default_database(), "plain", make_store)
        await case.begin()  # the last three are not folded
        await case.database.oplog_ops.drop()
        await case.insert_stray(6, "late")  # in the place of one of them
        link = Link(plain_url)
        await link.greet()
        log = Log(link)
        log.known.saw_entry(Mark(7, case.log[-1].ms))

        async def hold() -> bool:
            return True

        setup = Setup(link, log, "plain", None, 1 << 20)
        await setup.keep(hold)
        await link.close()
        (warning,) = setup.warnings.values()
        assert warning.startswith("2 operations have left the log")
        found = await case.database.oplog_ops.find_one({})
        assert found is not None
        assert (found["n"], found["data"]["id"]) == (8, "late")

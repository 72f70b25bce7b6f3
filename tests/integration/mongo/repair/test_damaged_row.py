"""A damaged document of the log in ``oplog_meta`` ends no agent."""

import asyncio
from typing import Any

import pytest
from pymongo import MongoClient

from oplogd.errors import StoreUnavailableError
from oplogd.store.mongo import Timing
from tests.kits.mongo.fixtures import MakeStore
from tests.kits.mongo.operations import live_states, op, whole_log

# The next check of the collections comes soon.
SOON = Timing(keep_seconds=0.05)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("n", ...),
        ("n", 1.5),
        ("ts", float("nan")),
        ("first", None),
        ("created", [1]),
        ("max_bytes", "x"),
        ("set_aside", [1]),
    ],
)
async def test_a_damaged_row_ends_no_agent_and_all_goes_on_once_it_is_put_right(
    member: str, value: Any, plain_url: str, make_store: MakeStore
) -> None:
    holder, other = (make_store(plain_url, "plain", lease=60, timing=SOON) for _ in range(2))
    await holder.open()
    await other.open()
    await other.append([op("a")])
    await other.checkpoint()
    with MongoClient[dict[str, Any]](plain_url) as client:
        meta = client.get_default_database().oplog_meta
        row = meta.find_one({"_id": "oplog_ops"}) or {}
        meta.update_one(
            row, {"$unset": {member: ""}} if value is ... else {"$set": {member: value}}
        )
        with pytest.raises(StoreUnavailableError, match=f"is damaged: its member {member}"):
            await other.locate()
        async with asyncio.timeout(120):
            while "is damaged" not in str(holder.projection.trouble):
                await asyncio.sleep(0.01)
        meta.replace_one({"_id": "oplog_ops"}, row)
    await holder.append([op("b")])
    async with asyncio.timeout(120):
        assert (await live_states(other)).keys() == {"video/a", "video/b"}
    assert [entry.offset for entry in await whole_log(holder)] == [1, 2]


async def test_what_nobody_expects_in_the_collections_ends_no_agent(
    plain_url: str, make_store: MakeStore
) -> None:
    store = make_store(plain_url, "plain", timing=SOON)
    await store.open()
    await store.append([op("a")])
    await store.checkpoint()
    with MongoClient[dict[str, Any]](plain_url) as client:
        meta = client.get_default_database().oplog_meta
        meta.update_one({"_id": "oplog_ops"}, {"$set": {"repair": "by hand"}})
        async with asyncio.timeout(120):
            while "not understood" not in str(store.projection.trouble):
                await asyncio.sleep(0.01)
        meta.update_one({"_id": "oplog_ops"}, {"$unset": {"repair": ""}})
    await store.append([op("b")])
    async with asyncio.timeout(120):
        assert (await live_states(store)).keys() == {"video/a", "video/b"}
